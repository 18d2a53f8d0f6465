package kubelet

import (
	"net"
	"net/netip"
)

// Allowed reports whether users may reach an address through the server: addresses of its own machine, of its link and of
// metadata services are not allowed, nor IPv6 addresses that lead to such ones.
func Allowed(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	if !a.IsGlobalUnicast() || metadata[a] {
		return false
	}
	for _, t := range translated {
		if b := a.As16(); a.Is6() && t.prefix.Contains(a) {
			inner := netip.AddrFrom4([4]byte(b[t.at : t.at+4]))
			return inner.IsGlobalUnicast() && !metadata[inner]
		}
	}
	return true
}

// metadata has the addresses outside 169.254.0.0/16 at which clouds give credentials to machines.
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
	{netip.MustParsePrefix("64:ff9b::/96"), 12},   // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/96"), 12}, // NAT64 within a network
	{netip.MustParsePrefix("2002::/16"), 2},       // 6to4
	{netip.MustParsePrefix("::/96"), 12},          // IPv4-compatible
}

// Listens returns a Config.Own for a server that listens on these addresses. One without an address of its own stands for
// all addresses of the machine.
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
			if own.Port() == at.Port() && (own.Addr() == at.Addr() || own.Addr().IsUnspecified() && isLocal(at.Addr())) {
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
