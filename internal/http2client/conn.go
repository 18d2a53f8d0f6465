// Package http2client sends requests over one HTTP/2 connection (RFC 9113). It is made for small requests and
// responses that many goroutines exchange with one server: calls of webhooks. A Conn is what an entry "h2" of
// http.Transport.TLSNextProto returns; the transport dials, and calls with HTTP/1.1 where a server has no HTTP/2.
//
// Three goroutines take part in a request:
//
//	caller   starts a stream and wakes the writer; waits for the response
//	writer   encodes what all callers have started since its last write, and sends it with one call
//	reader   takes frames, and wakes the caller when its response is complete
//
// So a request takes one TLS record and one system call, and a server that does not read holds up the writer,
// but no caller beyond its deadline. net/http starts a goroutine for each request, sends its headers and its body
// one after the other, and wakes the caller for each part of the response.
//
// The package does not support server push, trailers, informational responses that a caller sees, or bodies of requests
// that block when they are read.
package http2client

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	tableBytes = 4096       // of header compression: the protocol's default
	firstGrant = 64<<10 - 1 // the protocol's first window
	maxWindow  = 1<<31 - 1  // of flow control
	// connWindow is the window of the connection for all bodies. Streams limit it: each holds up to
	// firstGrant bytes.
	connWindow = 1 << 30
	// maxFrame bounds the frames that are sent, and that are read: the protocol's first size.
	maxFrame = 16 << 10
	// sendBytes is how much the writer appends before it writes.
	sendBytes = 64 << 10
	// controlBytes limits the unsent control frames. A server that exceeds it sends frames that
	// require responses, and does not read.
	controlBytes = 1 << 20
	// firstStreams is how many requests may run until the server sends its limit.
	firstStreams = 100
	// maxID is the largest stream ID; a connection that has reached it takes no more requests.
	maxID = 1<<31 - 1
	// checkEvery is how often the time limits of Config are checked.
	checkEvery = 5 * time.Second
)

// ErrUnprocessed is the error of a request that the server has not processed: it can be sent again.
var ErrUnprocessed = errors.New("http2: the server did not process the request")

var (
	errIdle    = errors.New("http2: the connection was idle")
	errSilent  = errors.New("http2: the server does not respond to pings")
	errStalled = errors.New("http2: the server does not read")
	errClosed  = errors.New("http2: the response is closed")
)

// ErrUnusable is the error of a request that a connection cannot take. http.Transport sends it on another connection.
var ErrUnusable error = unusable{}

type unusable struct{}

func (unusable) Error() string { return "http2: the connection takes no more requests" }

// IsHTTP2NoCachedConnError marks the error for http.Transport.
func (unusable) IsHTTP2NoCachedConnError() {}

// Config has the limits of a connection. All must be set.
type Config struct {
	// HeaderBytes bounds the headers of a response.
	HeaderBytes uint32
	// IdleTimeout is how long a connection without requests stays open.
	IdleTimeout time.Duration
	// PingAfter is how long the server may be silent before it gets a ping, and PingTimeout how long it may be
	// silent after that. WriteTimeout bounds one write to the connection. The connection is closed up to 5 s later.
	PingAfter, PingTimeout, WriteTimeout time.Duration
}

// Conn is a connection. Its methods are safe for concurrent use.
type Conn struct {
	config Config
	conn   net.Conn
	wake   chan struct{} // a value for the writer: there is something to send
	done   chan struct{} // closed when the connection has ended
	credit atomic.Int64  // frames that the server may send: see credit.go

	mu      sync.Mutex // guards the following, and the streams
	streams map[uint32]*stream
	nextID  uint32
	err     error // why the connection has ended; nil: it has not
	away    bool  // it takes no more requests
	used    bool  // it has had a request
	owed    int   // bytes of bodies that were read, and that the server may not send again yet

	out         []byte    // frames that wait to be sent
	queue       []*stream // streams whose body waits to be sent, in order
	window      int64     // of the connection, for bodies
	firstWindow int64     // of a new stream
	maxStreams  int
	encoder     *hpack.Encoder
	block       bytes.Buffer // the header block that is being encoded

	// Times; zero: there is none.
	idle    time.Time // since when there is no request
	read    time.Time // of the last frame
	pinged  time.Time
	writing time.Time // the beginning of the write under way
	timer   *time.Timer
}

// New returns a client on a connection whose TLS handshake is done. It starts the goroutines of the connection, which
// end with it.
func New(conn net.Conn, config Config) *Conn {
	now := time.Now()
	c := &Conn{
		config: config, conn: conn, wake: make(chan struct{}, 1), done: make(chan struct{}), streams: map[uint32]*stream{}, nextID: 1,
		window: firstGrant, firstWindow: firstGrant, maxStreams: firstStreams, idle: now, read: now,
	}
	c.credit.Store(firstCredit)
	c.encoder = hpack.NewEncoder(&c.block)
	c.out = append(c.out, h2.ClientPreface...)
	c.frame(h2.FrameSettings, 0, 0, 12)
	c.setting(h2.SettingEnablePush, 0)
	c.setting(h2.SettingMaxHeaderListSize, config.HeaderBytes)
	c.windowUpdate(0, connWindow-firstGrant)
	c.timer = time.AfterFunc(checkEvery, c.check)
	c.notify()
	go c.write()
	go c.readAll()
	return c
}

// Usable reports whether the connection takes another request.
func (c *Conn) Usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usable()
}

// usable is Usable. The lock is held.
func (c *Conn) usable() bool {
	return c.err == nil && !c.away && len(c.streams) < c.maxStreams && c.nextID <= maxID
}

// Ended reports whether the connection is closed.
func (c *Conn) Ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

// CloseIfIdle closes the connection if no request is under way.
func (c *Conn) CloseIfIdle() {
	c.mu.Lock()
	idle := len(c.streams) == 0
	c.away = c.away || idle
	c.mu.Unlock()
	if idle {
		c.end(errIdle)
	}
}

// end ends the connection and all requests on it. The lock is not held.
func (c *Conn) end(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	for id, s := range c.streams {
		s.fail(err)
		delete(c.streams, id)
	}
	c.queue = nil
	close(c.done)
	c.timer.Stop()
	c.mu.Unlock()
	c.conn.Close() // it ends the write and the read under way
}

// check closes a connection whose time is over, and sends pings. It is the function of timer.
func (c *Conn) check() {
	now := time.Now()
	c.mu.Lock()
	if !c.read.Before(c.pinged) {
		c.pinged = time.Time{}
	}
	var err error
	switch {
	case !c.writing.IsZero() && now.Sub(c.writing) >= c.config.WriteTimeout:
		err = errStalled
	case !c.pinged.IsZero() && now.Sub(c.pinged) >= c.config.PingTimeout:
		err = errSilent
	case len(c.streams) == 0 && (c.away || now.Sub(c.idle) >= c.config.IdleTimeout):
		err = errIdle
	case c.pinged.IsZero() && now.Sub(c.read) >= c.config.PingAfter:
		c.pinged = now
		c.frame(h2.FramePing, 0, 0, 8)
		c.out = append(c.out, "tidemark"...)
		c.notify()
	}
	if err == nil && c.err == nil {
		c.timer.Reset(checkEvery)
	}
	c.mu.Unlock()
	if err != nil {
		c.end(err)
	}
}

// remove removes a stream that has ended. The lock is held.
func (c *Conn) remove(s *stream) {
	if c.streams[s.id] != s {
		return
	}
	delete(c.streams, s.id)
	if s.queued {
		c.leave(s)
	}
	if len(c.streams) == 0 {
		c.idle = time.Now()
		if c.away {
			c.notify() // the writer closes the connection
		}
	}
}

// reset ends a stream on both sides. The lock is held.
func (c *Conn) reset(s *stream, code h2.ErrCode) {
	if c.streams[s.id] != s {
		return
	}
	c.frame(h2.FrameRSTStream, 0, s.id, 4)
	c.uint32(uint32(code))
	c.notify()
	c.remove(s)
}

// closed returns the error of requests under way when reading fails.
func closed(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
