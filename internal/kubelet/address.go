package kubelet

import (
	"net"
	"net/netip"

	"github.com/tidemark-dev/tidemark/internal/netaddr"
)

// Allowed reports whether users may reach an address through the server: addresses of its own machine, of its link and of
// metadata services are not allowed, nor IPv6 addresses that may lead to such ones.
func Allowed(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	for _, b := range netaddr.Local(a) {
		if b.IsLoopback() || b.IsLinkLocalUnicast() || netaddr.Metadata(b) {
			return false
		}
	}
	b := netaddr.Embedded(a)
	return a.IsGlobalUnicast() && b.IsGlobalUnicast() && !netaddr.Metadata(b)
}

// Listens returns a Config.Own for a server that listens on these addresses. One without an address of its own stands for
// all addresses of the machine. A connection to the address 0.0.0.0 or :: leads to the machine, too.
func Listens(on ...net.Addr) func(netip.AddrPort) bool {
	var all []netip.AddrPort
	for _, a := range on {
		if t, ok := a.(*net.TCPAddr); ok {
			at := t.AddrPort()
			all = append(all, netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()))
		}
	}
	return func(at netip.AddrPort) bool {
		for _, own := range all {
			if own.Port() == at.Port() && (own.Addr() == at.Addr() || own.Addr().IsUnspecified() && isLocal(at.Addr()) || at.Addr().IsUnspecified()) {
				return true
			}
		}
		return false
	}
}

// isLocal reports whether an address is one of this machine.
func isLocal(a netip.Addr) bool {
	if a.IsLoopback() || a.IsUnspecified() {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true // rather refuse
	}
	for _, one := range all {
		if n, ok := one.(*net.IPNet); ok && n.IP.Equal(a.AsSlice()) {
			return true
		}
	}
	return false
}
