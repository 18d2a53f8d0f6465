// Package netaddr finds the IPv4 addresses that IPv6 addresses lead to, and the metadata services of clouds. Packages webhook
// and kubelet refuse addresses by it that users and stored objects name.
package netaddr

import "net/netip"

// Metadata reports whether an address is that of a cloud's metadata service, where a machine gets credentials. Those in
// 169.254.0.0/16 are not among them: callers refuse link-local addresses.
func Metadata(a netip.Addr) bool { return metadata[a] }

var metadata = map[netip.Addr]bool{
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

// Embedded returns the IPv4 address that an IPv6 address embeds, or the address itself.
func Embedded(a netip.Addr) netip.Addr {
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

// Local returns the IPv4 addresses that a NAT64 within a network may translate an address to, one for each length of a
// prefix that RFC 6052 allows. Byte 8 is not part of them. It returns nil for other addresses.
func Local(a netip.Addr) []netip.Addr {
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
