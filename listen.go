package tidemark

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/world"
)

// Listen has the addresses that a Server listens on, and those at which clients reach it. Its zero value is a free port of
// 127.0.0.1.
type Listen struct {
	// Address is the IP address to listen on; empty: 127.0.0.1. With "0.0.0.0"
	// or "::" every client that reaches this machine can connect.
	Address string
	// Port to listen on; zero: a free one.
	Port int
	// MoreAddresses are further addresses to listen on: IP addresses, with the same port, and paths of unix sockets
	// after "unix:". Clients of a socket speak TLS and authenticate as others do; only the user of the server can
	// connect to it. The limits for connections hold for all addresses together. Nil: none.
	MoreAddresses []string
	// AdvertiseAddress is the IP address at which other machines reach the server: that of the endpoints of the
	// Service "kubernetes" and of kubeconfigs. Empty: Address, or if that is all addresses, the first address
	// of the machine for endpoints, and a loopback address for kubeconfigs.
	AdvertiseAddress string
}

// Check returns an error unless Address is empty or an IP address, MoreAddresses are other IP addresses and paths of sockets,
// Port is one or zero, and AdvertiseAddress is empty or the address of one machine.
func (l *Listen) Check() error {
	if net.ParseIP(l.address()) == nil {
		return fmt.Errorf("the address to listen on, %q, is not an IP address", l.Address)
	}
	seen := map[string]bool{l.address(): true}
	for _, a := range l.MoreAddresses {
		path, socket := socketPath(a)
		switch {
		case socket && path == "":
			return fmt.Errorf("the address to listen on, %q, has no path", a)
		case !socket && net.ParseIP(a) == nil:
			return fmt.Errorf("the address to listen on, %q, is neither an IP address nor unix:PATH", a)
		case seen[a]:
			return fmt.Errorf("the address to listen on, %q, is there twice", a)
		}
		seen[a] = true
	}
	if l.Port < 0 || l.Port > 65535 {
		return fmt.Errorf("the port %d is not one: want 1 to 65535, or 0 for a free one", l.Port)
	}
	return checkAdvertised(l.AdvertiseAddress)
}

// checkAdvertised returns an error unless an address is empty or that of one machine.
func checkAdvertised(address string) error {
	if address == "" {
		return nil
	}
	if ip, err := netip.ParseAddr(address); err != nil || ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "" {
		return fmt.Errorf("the advertised address, %q, is not the IP address of a machine", address)
	}
	return nil
}

// socketPath returns the path of an address that is a unix socket.
func socketPath(address string) (path string, socket bool) {
	return strings.CutPrefix(address, "unix:")
}

func (l *Listen) address() string { return cmp.Or(l.Address, "127.0.0.1") }

func (l *Listen) config() world.Listen {
	return world.Listen{Addresses: append([]string{l.address()}, l.MoreAddresses...), Port: l.Port, Advertise: l.AdvertiseAddress}
}
