package tidemark

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"github.com/tidemark-dev/tidemark/internal/serving"
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

// listen opens the ports first: clients that connect early wait instead of being refused. With the port zero, all
// addresses have the port that the first one gets.
func (l *Listen) listen(ctx context.Context) (all []net.Listener, err error) {
	defer func() {
		if err != nil {
			closeAll(all)
		}
	}()
	port := l.Port
	for _, a := range append([]string{l.address()}, l.MoreAddresses...) {
		if path, socket := socketPath(a); socket {
			one, err := serving.ListenUnix(path)
			if err != nil {
				return all, fmt.Errorf("cannot listen on %s: %w", a, err)
			}
			all = append(all, one)
			continue
		}
		one, err := listenTCP(ctx, a, port)
		if err != nil {
			return all, err
		}
		all = append(all, one)
		port = one.Addr().(*net.TCPAddr).Port
	}
	return all, nil
}

func listenTCP(ctx context.Context, host string, port int) (net.Listener, error) {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d of %s is taken by another process: stop it, or choose another port with --secure-port (Listen.Port; 0 picks a free one)", port, host)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	return l, nil
}

func closeAll(all []net.Listener) {
	for _, l := range all {
		l.Close()
	}
}

func (l *Listen) address() string { return cmp.Or(l.Address, "127.0.0.1") }

// address returns the URL for clients on this machine, and the name that they
// check the certificate against.
func (s *Server) address(l net.Listener) (url, serverName string) {
	a := l.Addr().(*net.TCPAddr)
	host := a.IP.String()
	switch {
	case a.IP.IsUnspecified() && net.ParseIP(s.Listen.address()).To4() != nil:
		host = "127.0.0.1"
	case a.IP.IsUnspecified():
		host = "::1"
	}
	if s.ownCertificates() {
		serverName = loopbackName
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(a.Port)), serverName
}

// reached returns where other machines reach a listener: its address, or, if it listens on all
// addresses, the first one that is not of this machine alone. Only the port is valid when there
// is none.
func reached(l net.Listener) netip.AddrPort {
	a := l.Addr().(*net.TCPAddr).AddrPort()
	if !a.Addr().IsUnspecified() {
		return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return netip.AddrPortFrom(netip.Addr{}, a.Port())
	}
	for _, i := range all {
		n, ok := i.(*net.IPNet)
		if !ok || !n.IP.IsGlobalUnicast() {
			continue
		}
		if ip, ok := netip.AddrFromSlice(n.IP); ok && (ip.Unmap().Is4() || a.Addr().Is6()) {
			return netip.AddrPortFrom(ip.Unmap(), a.Port())
		}
	}
	return netip.AddrPortFrom(netip.Addr{}, a.Port())
}
