package webhook

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// A webhook configuration or a definition can name any URL, and the server calls it from its own
// network. So after resolving the name, the server rejects addresses that only its own machine
// should reach.

// dialer connects to webhooks. It has no state.
var dialer = Dialer("webhooks", nil)

// Dialer returns a dialer with the rules for the addresses of webhooks, for other servers that objects name. It checks each
// address that it dials, after the name was resolved. Callees is their name in errors, in the plural. More checks an
// address by further rules; nil: there are none.
func Dialer(callees string, more func(netip.AddrPort) error) net.Dialer {
	return net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if err := checkAddress(callees, at.Addr()); err != nil || more == nil {
			return err
		}
		return more(at)
	}}
}

// checkAddress returns an error for addresses that are not called. Loopback is allowed,
// because developers run webhooks on the same machine.
func checkAddress(callees string, a netip.Addr) error {
	a = a.WithZone("").Unmap()
	for _, b := range local(a) {
		if b.IsLinkLocalUnicast() || metadataAddresses[b] {
			return errors.New(callees + " at addresses that a local NAT64 may translate to link-local or metadata ones are not called")
		}
	}
	a = embedded(a)
	switch {
	case a.IsLinkLocalUnicast():
		return errors.New(callees + " at link-local addresses are not called")
	case a.IsMulticast(), a == broadcast:
		return errors.New(callees + " at multicast and broadcast addresses are not called")
	case a.IsUnspecified() || a.Is4() && a.As4()[0] == 0:
		return errors.New(callees + " at the unspecified address are not called")
	case metadataAddresses[a]:
		return errors.New(callees + " at addresses of metadata services are not called")
	}
	return nil
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// metadataAddresses are the addresses outside 169.254.0.0/16 at which clouds give credentials
// to machines.
var metadataAddresses = map[netip.Addr]bool{
	netip.MustParseAddr("fd00:ec2::254"):   true, // AWS
	netip.MustParseAddr("fd20:ce::254"):    true, // Google Cloud
	netip.MustParseAddr("100.100.100.200"): true, // Alibaba Cloud
	netip.MustParseAddr("168.63.129.16"):   true, // Azure
	netip.MustParseAddr("192.0.0.192"):     true, // Oracle Cloud
}

// translated has the IPv6 prefixes that embed an IPv4 address, and its offset.
var translated = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // NAT64
	{netip.MustParsePrefix("2002::/16"), 2},     // 6to4
	{netip.MustParsePrefix("::/96"), 12},        // IPv4-compatible
}

// embedded returns the IPv4 address that an IPv6 address embeds, or the address itself.
func embedded(a netip.Addr) netip.Addr {
	if !a.Is6() || a.IsLoopback() || a.IsUnspecified() {
		return a
	}
	for _, t := range translated {
		if b := a.As16(); t.prefix.Contains(a) {
			return netip.AddrFrom4([4]byte(b[t.at : t.at+4]))
		}
	}
	return a
}

// localPrefix is for NAT64 within a network (RFC 8215). Each network chooses the length of its own prefix within it.
var localPrefix = netip.MustParsePrefix("64:ff9b:1::/48")

// local returns the IPv4 addresses that an address with localPrefix may embed, one for each length of a prefix that
// RFC 6052 allows. Byte 8 is not part of them. It returns nil for other addresses.
func local(a netip.Addr) []netip.Addr {
	if !localPrefix.Contains(a) {
		return nil
	}
	b := a.As16()
	return []netip.Addr{
		netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}),   // /48
		netip.AddrFrom4([4]byte{b[7], b[9], b[10], b[11]}),  // /56
		netip.AddrFrom4([4]byte{b[9], b[10], b[11], b[12]}), // /64
		netip.AddrFrom4([4]byte(b[12:])),                    // /96
	}
}
