package world

import (
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

// loopbackName is the TLS server name that selects the server's own certificate if the user
// configured another one, so that the kubeconfig works with any certificate.
const loopbackName = "apiserver-loopback-client"

// listen opens the ports first: clients that connect early wait instead of being refused. With the port zero, all
// addresses have the port that the first one gets.
func (l *Listen) listen(ctx context.Context) (all []net.Listener, err error) {
	defer func() {
		if err != nil {
			closeAll(all)
		}
	}()
	port := l.Port
	for _, a := range l.Addresses {
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

// socketPath returns the path of an address that is a unix socket.
func socketPath(address string) (path string, socket bool) {
	return strings.CutPrefix(address, "unix:")
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

// address returns the URL for clients on this machine, and the name that they
// check the certificate against.
func (p *process) address(l net.Listener) (url, serverName string) {
	a := l.Addr().(*net.TCPAddr)
	host := a.IP.String()
	switch {
	case a.IP.IsUnspecified() && net.ParseIP(p.Listen.Addresses[0]).To4() != nil:
		host = "127.0.0.1"
	case a.IP.IsUnspecified():
		host = "::1"
	}
	if p.TLS.own() {
		serverName = loopbackName
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(a.Port)), serverName
}

// reachedAt returns where other machines reach the server.
func (p *process) reachedAt() netip.AddrPort {
	if p.listeners == nil {
		return netip.AddrPortFrom(netip.Addr{}, inProcessPort)
	}
	at := reached(p.listeners[0])
	if a := p.Listen.Advertise; a != "" {
		at = netip.AddrPortFrom(netip.MustParseAddr(a).Unmap(), at.Port())
	}
	return at
}

// advertisedURL is url for clients on other machines, too.
func (p *process) advertisedURL() string {
	if p.Listen.Advertise == "" || p.listeners == nil {
		return p.url
	}
	return "https://" + p.reachedAt().String()
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
