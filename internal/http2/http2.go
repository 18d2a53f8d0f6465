// Package http2 serves HTTP/2 (RFC 9113) to an http.Handler, for many streams that
// each say little: watches. It takes the place of net/http's own server through
// http.Server.TLSNextProto, and behaves as that one does, where a handler or a
// client could tell.
//
// # How bytes leave
//
// Handlers append frames to the one buffer of their connection, as far as flow
// control and the buffer's bound let them. The first handler that flushes sends: it lets all
// that is ready to run go first (runtime.Gosched), takes the buffer, and writes it
// in one go. What others append meanwhile goes next. So an event for a hundred
// streams of a connection is one TLS write and one system call, a lone answer is
// written by its own handler, and nothing waits for a timer:
//
//	handler 1   append, flush: yield ........ take, write ...
//	handler 2          append, flush: another one sends
//	handler 3               append, flush: another one sends
//
// net/http hands each frame to the connection's goroutine, and that one to another
// that writes, in TLS records of 4 KiB.
//
// A handler that waits for events need not even be woken: one of its connection's may
// write for all of them (TryWrite, which takes what has to wait for no client, all of it
// or nothing), and flush once.
//
// # How bytes come
//
// One goroutine reads a connection; each request's handler has one of its own. The
// reader has others send what it appends, so that a client that sends without
// reading cannot stall itself.
//
// Not here: server push, priorities, trailers, CONNECT for WebSockets, the length of
// answers whose handler does not say it. What a handler writes and does not flush may
// wait for its end, or for sendBytes/2 of the connection.
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
	// prefaceTimeout is how long a client may take to say that it speaks HTTP/2.
	prefaceTimeout = 10 * time.Second
	// farewell is how long a client that was told to go may take to close the
	// connection.
	farewell = time.Second
	// earlyReset is when a client that has its answer, and sends its body still, is
	// told to stop. Clients forget the answer if they are told both at once: curl does.
	earlyReset = 20 * time.Millisecond
	// sendBytes is how much of answers waits to be sent, of a connection, before
	// their handlers wait. As much again may be on its way.
	sendBytes = 128 << 10
	// maxTurns is how often who sends lets others append first, while they do: what many
	// goroutines do at once is not done in one turn. Answers of others wait as long.
	maxTurns = 4
	// turnBytes is how much a handler appends before others get their turn.
	turnBytes = 64 << 10
	// controlBytes is how much may wait to be sent in all before the connection is
	// given up. More than sendBytes is what a client has asked for and does not read:
	// acknowledgements, and heads of answers.
	controlBytes = 1 << 20
	// strangerControlBytes is the same of a client that has not authenticated.
	strangerControlBytes = 64 << 10
	// restBytes is how much of the end of an answer a stream keeps for its client when
	// its handler could return otherwise. Most answers are smaller.
	restBytes = 16 << 10
	// spareFrames is how many frames a header block may have beyond twice those that it
	// needs.
	spareFrames = 8
	// keptBytes is how much room for frames and header blocks a connection keeps that
	// has nothing to do, and keptFields that for fields.
	keptBytes  = 4 << 10
	keptFields = 64
)

// Server serves connections. Its fields must not change while it does, and none of
// them may be zero where it does not say what zero means. All methods are safe for
// concurrent use.
type Server struct {
	// MaxStreams is how many requests a connection may have at once.
	MaxStreams int
	// HeaderBytes bounds the names and values of a request's headers, with 32 bytes
	// for each (RFC 9113, 6.5.2). What is larger gets 431.
	HeaderBytes int
	// UploadBytes is how much of bodies that handlers have not read yet a connection
	// holds, 65,535 or more; it is the flow control window of a connection and of each
	// stream.
	UploadBytes int
	// IdleTimeout is how long a connection may have no request.
	IdleTimeout time.Duration
	// HeaderTimeout is how long a client may take from the first frame of a header block
	// to the last one; zero: DefaultHeaderTimeout.
	HeaderTimeout time.Duration
	// WriteTimeout is how long a connection may take for what is sent in one go, mostly
	// 128 KiB or less. It is also how long a Write may wait for the client if the handler
	// has set nothing else (SetWriteTimeout), and how long a client may stay that has not
	// authenticated and was told to go.
	WriteTimeout time.Duration
	// TransportBytes bounds what waits on clients, of all connections together; zero:
	// DefaultTransportBytes. It counts answers that are not sent yet, bodies that are not
	// read yet and headers, beyond 16 KiB of each connection. Above it clients get no more
	// room, and connections are ended that let the server wait: those first that have not
	// authenticated, those of them first that hold the most.
	TransportBytes int64
	// Authenticated reports whether the client of a connection has authenticated; nil: all
	// have. It is called with every write, so it must be fast, and once true it stays true.
	Authenticated func(net.Conn) bool
	// Log gets panics of handlers, as errors, and what clients do wrong, at debug level.
	Log *slog.Logger

	mu       sync.Mutex
	conns    map[*conn]struct{} // guarded by mu
	stopping bool               // guarded by mu

	workers workers
	date    atomic.Pointer[date]

	used       atomic.Int64 // of TransportBytes
	overBudget atomic.Bool  // shed runs until there is room again
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

// Shutdown tells all clients to go (GOAWAY), those too that come later. Requests
// that run go on; a connection ends with its last one. It does not wait, and is
// idempotent: a function for http.Server.RegisterOnShutdown.
func (s *Server) Shutdown() {
	s.mu.Lock()
	s.stopping = true
	s.workers.stop()
	s.mu.Unlock()
	for _, c := range s.all() {
		c.shutdown()
	}
}
