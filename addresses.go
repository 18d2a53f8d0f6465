package tidemark

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidemark-dev/tidemark/internal/serving"
)

// CheckAddresses returns an error unless BindAddress is empty or an IP address, and MoreAddresses are other IP addresses
// and paths of sockets.
func (s *Server) CheckAddresses() error {
	if net.ParseIP(s.bindAddress()) == nil {
		return fmt.Errorf("the address to listen on, %q, is not an IP address", s.BindAddress)
	}
	seen := map[string]bool{s.bindAddress(): true}
	for _, a := range s.MoreAddresses {
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
	return nil
}

// socketPath returns the path of an address that is a unix socket.
func socketPath(address string) (path string, socket bool) {
	return strings.CutPrefix(address, "unix:")
}

// listen opens the ports first: clients that connect early wait instead of being refused. With the port zero, all
// addresses have the port that the first one gets.
func (s *Server) listen(ctx context.Context) (all []net.Listener, err error) {
	if s.Port < 0 || s.Port > 65535 {
		return nil, fmt.Errorf("the port %d is not one: want 1 to 65535, or 0 for a free one", s.Port)
	}
	defer func() {
		if err != nil {
			closeAll(all)
		}
	}()
	port := s.Port
	for _, a := range append([]string{s.bindAddress()}, s.MoreAddresses...) {
		if path, socket := socketPath(a); socket {
			l, err := serving.ListenUnix(path)
			if err != nil {
				return all, fmt.Errorf("cannot listen on %s: %w", a, err)
			}
			all = append(all, l)
			continue
		}
		l, err := listenTCP(ctx, a, port)
		if err != nil {
			return all, err
		}
		all = append(all, l)
		port = l.Addr().(*net.TCPAddr).Port
	}
	return all, nil
}

func listenTCP(ctx context.Context, host string, port int) (net.Listener, error) {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d of %s is taken by another process: stop it, or choose another port with --secure-port (Server.Port; 0 picks a free one)", port, host)
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

func (s *Server) bindAddress() string {
	if s.BindAddress == "" {
		return "127.0.0.1"
	}
	return s.BindAddress
}

// address returns the URL for clients on this machine, and the name that they
// check the certificate against.
func (s *Server) address(l net.Listener) (url, serverName string) {
	a := l.Addr().(*net.TCPAddr)
	host := a.IP.String()
	switch {
	case a.IP.IsUnspecified() && net.ParseIP(s.bindAddress()).To4() != nil:
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

// CheckAdvertiseAddress returns an error unless AdvertiseAddress is empty or the address of one machine.
func (s *Server) CheckAdvertiseAddress() error {
	if s.AdvertiseAddress == "" {
		return nil
	}
	if ip, err := netip.ParseAddr(s.AdvertiseAddress); err != nil || ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "" {
		return fmt.Errorf("the advertised address, %q, is not the IP address of a machine", s.AdvertiseAddress)
	}
	return nil
}

// CheckCertificateNames returns an error unless CertificateNames are DNS names, without wildcards, and IP
// addresses.
func (s *Server) CheckCertificateNames() error {
	for _, name := range s.CertificateNames {
		if net.ParseIP(name) == nil && len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Errorf("the name for the certificate, %q, is neither a DNS name nor an IP address", name)
		}
	}
	return nil
}
