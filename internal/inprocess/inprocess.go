// Package inprocess connects clients of package net/http to a handler in the same process: there
// is no port, no connection and no TLS handshake.
//
// A Transport is an http.RoundTripper. Handlers and clients see what they would see over HTTP/2:
// responses are streamed, a client that does not read holds the handler up, either side can cancel,
// and a response that the handler breaks off ends with io.ErrUnexpectedEOF. A request that asks for
// an upgrade is shown to the handler as HTTP/1.1, and can be hijacked.
//
// These things need a connection, and do not exist here: informational responses (1xx) other than
// 101, which the client does not get; server push; CONNECT; and http.Response.TLS. The transport
// does not ask for compression on its own: the client gets the response as the handler sends it.
//
// All goroutines wait on channels and condition variables, so that client and server can run in a
// bubble of package testing/synctest. They must be in the same one.
package inprocess

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// DefaultHeaderBytes is the limit for a request's headers, as in net/http.
	DefaultHeaderBytes = http.DefaultMaxHeaderBytes
	// bufferBytes is how many bytes wait for a reader, in each direction of an exchange: about what
	// the windows of HTTP/2 and the buffers of a socket hold.
	bufferBytes = 256 << 10
	// heldBytes is how many bytes of a response wait for its end before its headers are sent. If the
	// response ends meanwhile, it gets a Content-Length, as in net/http.
	heldBytes = 2 << 10
	// clientAddress is http.Request.RemoteAddr.
	clientAddress = "127.0.0.1:0"
	// finish is how long running requests may take when the server stops.
	finish = 600 * time.Millisecond
	// abandon is how long the handlers of broken requests may take to notice.
	abandon = 50 * time.Millisecond
)

// Server calls a handler for the clients in its process. The fields must not change after the first
// request. The methods are safe for concurrent use.
type Server struct {
	// Handler responds to the requests.
	Handler http.Handler
	// Host is the host in the URLs of requests, with its port if it has one; requests for other
	// hosts fail. Empty: any.
	Host string
	// HeaderBytes limits a request's headers: 431 above. Zero: DefaultHeaderBytes.
	HeaderBytes int
	// WriteTimeout is how long each write of a handler may wait for the client, unless the handler
	// sets another one; then the response is broken off. Zero: no limit.
	WriteTimeout time.Duration
	// Drain ends the handler's long-running requests; it does not wait for them. Nil: there are none.
	Drain func()
	// Log gets the panics of handlers; nil: they are not logged.
	Log *slog.Logger

	mu      sync.Mutex
	stopped bool
	running map[*exchange]struct{} // exchanges whose handler has not returned, or was hijacked
	idle    chan struct{}          // closed when none runs any more; nil: Stop does not wait
}

// Transport returns the transport of one client. The handler sees the values of ctx in the contexts of
// requests; the end of ctx does not cancel them. state is http.Request.TLS, which has the client's
// certificates; nil: there are none.
func (s *Server) Transport(ctx context.Context, state *tls.ConnectionState) *Transport {
	return &Transport{s: s, context: context.WithoutCancel(ctx), state: state}
}

// Stop refuses new requests as a closed port does, ends the long-running ones, waits for
// the others, at most 0.6 seconds, and breaks off those that still run. It is idempotent.
func (s *Server) Stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	if s.Drain != nil {
		s.Drain()
	}
	if s.wait(finish) {
		return
	}
	s.mu.Lock()
	left := make([]*exchange, 0, len(s.running))
	for x := range s.running {
		left = append(left, x)
	}
	s.mu.Unlock()
	for _, x := range left {
		x.end(errStopped)
	}
	s.wait(abandon)
}

// wait waits until no request runs, at most for d, and reports whether none does.
func (s *Server) wait(d time.Duration) bool {
	s.mu.Lock()
	if len(s.running) == 0 {
		s.mu.Unlock()
		return true
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-idle:
		return true
	case <-t.C:
		return false
	}
}

// begin counts an exchange, and reports false if the server has stopped.
func (s *Server) begin(x *exchange) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	if s.running == nil {
		s.running = map[*exchange]struct{}{}
	}
	s.running[x] = struct{}{}
	return true
}

// done forgets an exchange.
func (s *Server) done(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, x)
	if len(s.running) == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// Transport is an http.RoundTripper for one client of a Server. It is safe for concurrent use.
type Transport struct {
	s       *Server
	context context.Context //nolint:containedctx // of the client, as http.Server.ConnContext has it
	state   *tls.ConnectionState
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	request, err := t.request(r)
	if err == nil {
		err = context.Cause(r.Context())
	}
	if err != nil {
		closeBody(r)
		return nil, err
	}
	x := newExchange(t, r)
	if !t.s.begin(x) {
		closeBody(r)
		return nil, errRefused(r.URL.Host)
	}
	x.run(request)
	<-x.responded
	return x.result, x.failure
}

// CloseIdleConnections does nothing: there are no connections. http.Client and client-go call it.
func (t *Transport) CloseIdleConnections() {}

// errStopped ends the requests that still run when the server stops. Clients do not see it.
var errStopped = errors.New("inprocess: the server has stopped")

// errRefused is the error of a request to a server that has stopped. Clients treat it as they treat
// a closed port.
func errRefused(host string) error {
	return &net.OpError{Op: "dial", Net: "inprocess", Addr: address(host), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// address is the net.Addr of an end of an exchange.
type address string

func (a address) Network() string { return "inprocess" }
func (a address) String() string  { return string(a) }

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}

// panicked logs the panic of a handler.
func (s *Server) panicked(v any, stack []byte) {
	if s.Log != nil {
		s.Log.Error("panic in a handler", "panic", fmt.Sprint(v), "stack", string(stack))
	}
}
