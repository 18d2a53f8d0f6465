// Package serving accepts connections for a handler: TLS, HTTP/2 and HTTP/1.1, limits for
// connections, and a graceful stop.
package serving

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/http2"
)

const (
	// finish is how long running requests may take when the server stops. With the other two
	// it leaves time to sync and close the log within a second.
	finish = 600 * time.Millisecond
	// hangUp is how long clients may take to close their connections after GOAWAY.
	hangUp = 50 * time.Millisecond
	// farewell bounds the writes that close the connections, of all of them together.
	farewell = 50 * time.Millisecond
)

// Config configures a Server.
type Config struct {
	// Listeners are closed by Stop.
	Listeners []net.Listener
	Handler   http.Handler
	// Drain ends the handler's long-running requests; it does not wait for them.
	Drain func()
	// Refuse makes the handler refuse new requests but those for its health and its metrics. Stop then accepts
	// connections until the running requests have ended. Nil: Stop accepts no connections.
	Refuse func()
	// GetCertificate is tls.Config.GetCertificate.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// MinVersion is the lowest version of TLS; zero: TLS 1.2.
	MinVersion uint16
	// CipherSuites are those of TLS 1.2 and below; nil: the default of crypto/tls.
	CipherSuites []uint16
	// Limits are the limits of connections.
	Limits Limits
	// Connections is how many connections may be open at once; further ones wait to be
	// accepted. Zero: MaxConnections(Memory).
	Connections int
	// Memory is how many bytes of memory the process may use. It bounds the connections. Zero: it is not known.
	Memory int64
	// HandshakeFailed is called for each TLS handshake that fails; it may be nil.
	HandshakeFailed func()
	// Log gets errors of connections.
	Log *slog.Logger
}

// Limits are the limits of connections. A field must not be zero unless its comment says what
// that means.
type Limits struct {
	HeaderBytes       int           // of a request's headers
	ReadHeaderTimeout time.Duration // of the TLS handshake, and of a request's headers
	IdleTimeout       time.Duration // of a connection without a request
	WriteTimeout      time.Duration // of a write on an HTTP/2 connection, or of a response on it
	Streams           int           // at once, of an HTTP/2 connection
	UploadBytes       int           // HTTP/2 flow control window, of a connection and of a stream
	TransportBytes    int64         // memory that waits for clients of all HTTP/2 connections; zero: http2.DefaultTransportBytes
}

// certificateBytes bounds the certificates of a client, which its connection keeps. A usual
// chain has 1 to 6 KiB; TLS allows 256 KiB.
const certificateBytes = 32 << 10

// Server serves from Start until Stop. All methods are safe for concurrent use.
type Server struct {
	http     *http.Server
	http2    *http2.Server
	listener *listener
	drain    func()
	refuse   func()        // nil: none
	served   chan struct{} // closed when the server has stopped accepting connections
	busy     busy
	log      *slog.Logger
}

// New makes a server. It accepts no connection yet.
func New(c Config) *Server {
	if c.Connections == 0 {
		c.Connections = MaxConnections(c.Memory)
	}
	s := &Server{
		listener: newListener(c.Listeners, listenerLimits{
			connections: c.Connections, unauthenticated: unauthenticatedConnections(c.Connections, c.Memory), transportBytes: c.Limits.TransportBytes,
		}),
		drain:  c.Drain,
		refuse: c.Refuse,
		served: make(chan struct{}),
		busy:   busy{idle: make(chan struct{}, 1)},
		log:    c.Log,
	}
	s.http2 = &http2.Server{
		MaxStreams:     c.Limits.Streams,
		HeaderBytes:    c.Limits.HeaderBytes,
		UploadBytes:    c.Limits.UploadBytes,
		IdleTimeout:    c.Limits.IdleTimeout,
		HeaderTimeout:  c.Limits.ReadHeaderTimeout,
		WriteTimeout:   c.Limits.WriteTimeout,
		TransportBytes: c.Limits.TransportBytes,
		Authenticated:  func(c net.Conn) bool { return c.(*connection).isAuthenticated() },
		Log:            c.Log,
	}
	serveHTTP2 := func(_ *http.Server, t *tls.Conn, h http.Handler) {
		conn := t.NetConn().(*connection)
		conn.shookHands()
		conn.headers.end()
		conn.headers.forget(conn.l.headers)
		s.http2.Serve(s.http, t, h)
	}
	s.http = &http.Server{
		Handler:           s.counted(c.Handler),
		ReadHeaderTimeout: c.Limits.ReadHeaderTimeout,
		IdleTimeout:       c.Limits.IdleTimeout,
		MaxHeaderBytes:    c.Limits.HeaderBytes,
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": serveHTTP2},
		TLSConfig: &tls.Config{
			MinVersion:     cmp.Or(c.MinVersion, tls.VersionTLS12),
			CipherSuites:   c.CipherSuites,
			GetCertificate: c.GetCertificate,
			NextProtos:     []string{"h2", "http/1.1"},
			// Whole records from the start: clients are near, and want throughput.
			DynamicRecordSizingDisabled: true,
			// Certificates are requested here and verified with the first request, so that
			// an invalid one gets 401.
			ClientAuth:            tls.RequestClientCert,
			VerifyPeerCertificate: checkSize,
		},
		ErrorLog: log.New(&errorLog{c.Log, c.HandshakeFailed}, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			conn := c.(*tls.Conn).NetConn().(*connection)
			return authn.WithConnection(context.WithValue(ctx, connectionKey{}, conn), conn.authenticate)
		},
		// For HTTP/1.1 only: a connection is active from the first byte after the handshake on.
		ConnState: func(c net.Conn, state http.ConnState) {
			conn := c.(*tls.Conn).NetConn().(*connection)
			switch state {
			case http.StateActive:
				conn.shookHands()
			case http.StateIdle: // until the next request
				conn.headers.begin(conn.l.headers)
			}
		},
	}
	s.http.RegisterOnShutdown(s.http2.Shutdown)
	return s
}

// Start serves on the listeners, and returns at once. It is called once, before Stop.
func (s *Server) Start() {
	var all sync.WaitGroup
	for _, one := range s.listener.all {
		all.Go(func() {
			err := s.http.ServeTLS(address{one, s.listener}, "", "")
			if !s.listener.isClosed() {
				s.log.Error("no more connections are accepted", "address", one.Addr(), "err", err)
			}
		})
	}
	go func() {
		all.Wait()
		close(s.served)
	}()
}

// TransportUsed returns how many bytes wait for clients of HTTP/2 connections: the part of
// Limits.TransportBytes that is used.
func (s *Server) TransportUsed() int64 { return s.http2.TransportUsed() }

// checkSize refuses client certificates that are too large.
func checkSize(chain [][]byte, _ [][]*x509.Certificate) error {
	size := 0
	for _, c := range chain {
		size += len(c)
	}
	if size > certificateBytes {
		return fmt.Errorf("the client's certificates have %d bytes together: want %d at most", size, certificateBytes)
	}
	return nil
}

// Stop stops the server within a second, or within two with Config.Refuse. In this order: it stops accepting connections and
// sends GOAWAY to HTTP/2 clients; long-running requests end cleanly; other requests finish;
// the connections that are still open are closed. It returns when all requests have ended or
// were cut off. It is idempotent.
func (s *Server) Stop() {
	if s.refuse != nil {
		s.refuse()
		s.drain()
		s.busy.wait(finish)
	}
	s.listener.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	gone := make(chan struct{})
	go func() {
		s.http.Shutdown(ctx)
		close(gone)
	}()
	s.drain()
	s.busy.wait(finish)
	// Give clients time to read the last responses and the GOAWAY. Then they close the
	// connection themselves and see no error.
	await(hangUp, gone, func() bool {
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
	cancel()
	<-gone
	s.listener.endWrites(farewell)
	s.http.Close()
	s.listener.closeConnections()
	<-s.served
	s.busy.wait(hangUp)
}

// counted returns a handler that counts the running requests.
func (s *Server) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headersRead(r)
		s.busy.running.Add(1)
		defer s.busy.done()
		h.ServeHTTP(w, r)
	})
}

// busy counts running requests.
type busy struct {
	running atomic.Int64
	idle    chan struct{} // gets a value when the count falls to zero
}

func (b *busy) done() {
	if b.running.Add(-1) == 0 {
		select {
		case b.idle <- struct{}{}:
		default:
		}
	}
}

// wait waits until no request runs, at most for d.
func (b *busy) wait(d time.Duration) {
	await(d, b.idle, func() bool { return b.running.Load() == 0 }) // the value of idle may be old
}

// await waits until done, at most for d, and looks again with each piece of news. It waits in parts, and a part counts
// for no more than its length: while the process waits for a CPU, neither requests nor clients get on.
func await(d time.Duration, news <-chan struct{}, done func() bool) {
	const part = 10 * time.Millisecond
	tick := time.NewTicker(part)
	defer tick.Stop()
	for d > 0 && !done() {
		select {
		case <-news:
		case <-tick.C:
			d -= part
		}
	}
}
