// Package http2 serves HTTP/2 (RFC 9113) to an http.Handler. It is made for connections with
// many streams that each send little: watches. It replaces the implementation of net/http
// through http.Server.TLSNextProto, and behaves like it for handlers and clients.
//
// # Sending
//
// Handlers append frames to one buffer per connection, within flow control and the buffer's
// limit. The first handler that flushes becomes the sender: it lets other goroutines that are
// ready run first (runtime.Gosched), then takes the buffer and writes it with one call.
// Frames that are appended meanwhile go out with the next write. So an event for a hundred
// streams of a connection takes one TLS write and one system call, a single response is
// written by its own handler, and no write waits for a timer:
//
//	handler 1   append, flush: yield ........ take, write ...
//	handler 2          append, flush: handler 1 sends
//	handler 3               append, flush: handler 1 sends
//
// net/http passes each frame to the goroutine of the connection and then to one that writes,
// in TLS records of 4 KiB.
//
// A handler that waits for events need not be woken: another handler of the connection can
// write for it (TryWrite, which never blocks), and flush once for all.
//
// # Receiving
//
// One goroutine reads the connection; each handler has its own goroutine. The reader leaves
// sending to other goroutines, so that a client that sends without reading cannot block it.
//
// Not supported: server push, priorities, trailers, WebSockets over CONNECT, and a computed
// Content-Length. Bytes that a handler writes and does not flush may stay in the buffer until
// the handler returns or the buffer holds sendBytes/2.
package http2

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// prefaceTimeout is how long a client may take to send the connection preface.
	prefaceTimeout = 10 * time.Second
	// farewell is how long a client may take to close the connection after a GOAWAY and all
	// its responses.
	farewell = time.Second
	// earlyReset is how long after the response a stream is reset whose client still sends its
	// body. Some clients (curl) lose the response if the reset comes at once.
	earlyReset = 20 * time.Millisecond
	// sendBytes bounds the send buffer of a connection; handlers wait when it is full. As
	// much again may be in the write under way.
	sendBytes = 128 << 10
	// maxTurns is how often the sender yields before a write while other goroutines append.
	// One yield is not enough for many goroutines, and each delays the write.
	maxTurns = 4
	// turnBytes is how much a handler appends before the next handler in the queue.
	turnBytes = 64 << 10
	// controlBytes bounds the send buffer including control frames and headers, which do not
	// wait. A client that exceeds it does not read: the connection is closed.
	controlBytes = 1 << 20
	// unauthenticatedControlBytes is controlBytes for a client that has not authenticated.
	unauthenticatedControlBytes = 64 << 10
	// restBytes bounds the end of a response that a stream keeps, so that its handler can
	// return before the client reads. Most responses are smaller.
	restBytes = 16 << 10
	// spareFrames is how many frames a header block may have beyond twice the necessary
	// number.
	spareFrames = 8
	// keptBytes bounds the buffers for frames and for header blocks of an idle connection,
	// keptFields its buffer for header fields.
	keptBytes  = 4 << 10
	keptFields = 64
)

// Server serves connections. A field must not be zero unless its comment says what that
// means, and must not change while the server serves. All methods are safe for concurrent
// use.
type Server struct {
	// MaxStreams is how many requests a connection may have at once.
	MaxStreams int
	// HeaderBytes bounds the names and values of a request's headers, plus 32 bytes for each
	// (RFC 9113, 6.5.2). Larger headers get 431.
	HeaderBytes int
	// UploadBytes is the flow control window for request bodies, of a connection and of each
	// stream: how many bytes a connection buffers for its handlers. At least 65,535.
	UploadBytes int
	// IdleTimeout is how long a connection may be without a request.
	IdleTimeout time.Duration
	// HeaderTimeout is how long a client may take from the first frame of a header block
	// to the last one; zero: DefaultHeaderTimeout.
	HeaderTimeout time.Duration
	// WriteTimeout bounds one write to the connection, mostly of 128 KiB or less. It is also
	// the default for how long a Write of a handler may wait for the client (see
	// SetWriteTimeout), and how long an unauthenticated client may stay after a GOAWAY.
	WriteTimeout time.Duration
	// TransportBytes bounds the memory that waits for clients, of all connections together;
	// zero: DefaultTransportBytes. It counts responses that are not sent yet, bodies that are
	// not read yet and headers, beyond 16 KiB of each connection. Above it, clients get no
	// upload window, and connections whose clients do not read are closed: unauthenticated
	// ones first, the largest first.
	TransportBytes int64
	// Authenticated reports whether the client of a connection has authenticated; nil: all
	// have. It is called with every write, so it must be fast, and once true it stays true.
	Authenticated func(net.Conn) bool
	// Log gets panics of handlers at error level and errors of clients at debug level.
	Log *slog.Logger

	mu       sync.Mutex
	conns    map[*conn]struct{} // guarded by mu
	stopping bool               // guarded by mu

	workers workers
	date    atomic.Pointer[date]

	used       atomic.Int64 // of TransportBytes
	overBudget atomic.Bool  // shed is running
	ended      ended
}

// Serve serves a connection until it ends. It is a function for
// http.Server.TLSNextProto.
func (s *Server) Serve(_ *http.Server, t *tls.Conn, h http.Handler) {
	c := newConn(s, t, h)
	s.mu.Lock()
	if s.conns == nil {
		s.conns = map[*conn]struct{}{}
	}
	s.conns[c] = struct{}{}
	stopping := s.stopping
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	c.serve(stopping)
}

// Shutdown sends GOAWAY on all connections, also on later ones. Running requests go on; a
// connection is closed after its last one. Shutdown does not wait, and is idempotent. It is a
// function for http.Server.RegisterOnShutdown.
func (s *Server) Shutdown() {
	s.mu.Lock()
	s.stopping = true
	s.workers.stop()
	s.mu.Unlock()
	for _, c := range s.all() {
		c.shutdown()
	}
}
