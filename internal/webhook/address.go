package webhook

import (
	"errors"
	"net"
	"net/netip"
	"syscall"

	"github.com/tidemark-dev/tidemark/internal/netaddr"
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
	for _, b := range netaddr.Local(a) {
		if b.IsLinkLocalUnicast() || netaddr.Metadata(b) {
			return errors.New(callees + " at addresses that a local NAT64 may translate to link-local or metadata ones are not called")
		}
	}
	a = netaddr.Embedded(a)
	switch {
	case a.IsLinkLocalUnicast():
		return errors.New(callees + " at link-local addresses are not called")
	case a.IsMulticast(), a == broadcast:
		return errors.New(callees + " at multicast and broadcast addresses are not called")
	case a.IsUnspecified() || a.Is4() && a.As4()[0] == 0:
		return errors.New(callees + " at the unspecified address are not called")
	case netaddr.Metadata(a):
		return errors.New(callees + " at addresses of metadata services are not called")
	}
	return nil
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
