package tidemarktest

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"sync"
)

// session is a connection to a server, for all worlds of a process.
type session struct {
	control control
	api     http.RoundTripper // nil: the network
	lease   string            // that the worlds end with; empty: none

	mu          sync.Mutex
	connections map[peer]*connection // that Envs use
}

// peer is a server as clients check its certificate.
type peer struct{ ca, name string }

// connection is a connection to a server. Envs share it: a TLS handshake for each costs more than a short test.
type connection struct {
	*http.Transport
	peer  peer
	users int // guarded by session.mu
}

// connect returns the connection to a server. The caller calls disconnect when it does not need it any more.
func (s *session) connect(p peer) *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.connections[p]
	if c == nil {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(p.ca))
		c = &connection{peer: p, Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: p.name},
			ForceAttemptHTTP2: true,
		}}
		if s.connections == nil {
			s.connections = map[peer]*connection{}
		}
		s.connections[p] = c
	}
	c.users++
	return c
}

// disconnect closes a connection if no other Env needs it.
func (s *session) disconnect(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.users--; c.users == 0 {
		delete(s.connections, c.peer)
		c.CloseIdleConnections()
	}
}

// shared is the session with the process that the tests share. It lasts until this process ends.
var shared = sync.OnceValues(openShared)

// openSession returns a session with a host, which may be nil.
func openSession(h Host) (*session, error) {
	if h != nil {
		return &session{control: control{h.Control()}, api: h.API()}, nil
	}
	return shared()
}

// maxIdleControl is how many connections to the control API wait for the next request.
const maxIdleControl = 64

// attach takes a lease of the server with a control socket. The lease ends when this process does.
func attach(ctx context.Context, socket string) (*session, error) {
	s := &session{control: control{&http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: maxIdleControl,
	}}}
	// The context must not end the request: the lease would end with it.
	body, err := s.control.open(context.WithoutCancel(ctx), http.MethodPost, "leases", nil)
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(body).ReadBytes('\n')
	var lease struct{ Lease string }
	if err == nil {
		err = json.Unmarshal(line, &lease)
	}
	if err != nil {
		body.Close()
		return nil, err
	}
	s.lease = lease.Lease
	leases.Lock()
	defer leases.Unlock()
	leases.open = append(leases.open, body.Close)
	return s, nil
}

// leases holds the open answers, which would be closed if they were collected.
var leases struct {
	sync.Mutex
	open []func() error
}
