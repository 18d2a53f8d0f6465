package http2

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	h2 "golang.org/x/net/http2"
)

const (
	tableBytes = 4096       // of header compression, each way: the protocol's default
	maxWindow  = 1<<31 - 1  // of flow control
	firstSize  = 16 << 10   // of frames, until the client allows larger ones
	frameBytes = 64 << 10   // of the largest frame sent
	firstGrant = 64<<10 - 1 // the protocol's first window
)

// errGone is the error of streams whose connection is closed.
var errGone = errors.New("http2: the client's connection is closed")

// conn is a connection.
type conn struct {
	s       *Server
	tls     *tls.Conn
	handler http.Handler
	ctx     context.Context // of all requests; done when the connection is
	cancel  context.CancelFunc
	state   *tls.ConnectionState
	remote  string

	reader // used by the reading goroutine only

	mu      sync.Mutex // guards the following fields and the streams
	streams map[uint32]*stream
	running int    // handlers
	lastID  uint32 // of the newest stream that was accepted
	err     error  // why the connection has ended; nil: it has not
	away    bool   // GOAWAY was sent
	idle    time.Time
	timer   *time.Timer // see checkIdle
	resets  [128]uint32 // the newest streams that the server reset
	reset   int         // how many it reset
	uploads int         // the rest of the window for bodies
	owed    int         // bytes that were read, and that the client may not send again yet
	allowed int         // the whole window: uploads, owed, and bytes that were not read

	// Deadlines of reads; zero: none.
	helloUntil time.Time // for the preface and SETTINGS
	blockUntil time.Time // for the rest of a header block
	leaveUntil time.Time // after GOAWAY and all responses

	flying  int // bytes of the write under way, with their encrypted form
	kept    int // other bytes that are kept for the client, see keep
	rests   int // of kept: the ends of responses
	charged int // bytes of all charged to the server's budget

	sender
}

func newConn(s *Server, t *tls.Conn, h http.Handler) *conn {
	c := &conn{s: s, tls: t, handler: h, remote: t.RemoteAddr().String(), streams: map[uint32]*stream{}, uploads: firstGrant, allowed: firstGrant, idle: time.Now()}
	base := context.Background()
	if b, ok := h.(interface{ BaseContext() context.Context }); ok { // as net/http passes it
		base = b.BaseContext()
	}
	c.ctx, c.cancel = context.WithCancel(base)
	state := t.ConnectionState()
	c.state = &state
	c.reader.start(c)
	c.sender.start(c)
	c.helloUntil = time.Now().Add(prefaceTimeout)
	c.setReadDeadline()
	c.timer = time.AfterFunc(c.s.IdleTimeout, c.checkIdle)
	c.hello()
	return c
}

// serve reads until the connection ends.
func (c *conn) serve(stopping bool) {
	defer c.close()
	c.mu.Lock()
	c.flush()
	c.mu.Unlock()
	if !strong(c.state) {
		c.survives(h2.ConnectionError(h2.ErrCodeInadequateSecurity))
		return
	}
	if err := c.preface(); err != nil {
		return
	}
	if stopping {
		c.shutdown()
	}
	for first := true; ; first = false {
		f, err := c.framer.ReadFrame()
		switch {
		case err != nil:
		case first:
			if s, ok := f.(*h2.SettingsFrame); !ok || s.IsAck() {
				err = h2.ConnectionError(h2.ErrCodeProtocol)
				break
			}
			c.mu.Lock()
			c.helloUntil = time.Time{}
			c.setReadDeadline()
			c.mu.Unlock()
			fallthrough
		default:
			err = c.take(f)
			c.shrink(f)
		}
		if err != nil && !c.survives(err) {
			return
		}
	}
}

// strong reports whether HTTP/2 allows the version and the cipher suite of a connection: RFC
// 9113, 9.2. Of the suites of TLS 1.2 in package crypto/tls it allows those with an ephemeral
// key exchange and an AEAD cipher.
func strong(s *tls.ConnectionState) bool {
	switch s.CipherSuite {
	case tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256:
		return s.Version == tls.VersionTLS12
	}
	return s.Version >= tls.VersionTLS13
}

// preface reads the connection preface.
func (c *conn) preface() error {
	var got [len(h2.ClientPreface)]byte
	if _, err := io.ReadFull(c.tls, got[:]); err != nil {
		return err
	}
	if !bytes.Equal(got[:], []byte(h2.ClientPreface)) {
		c.log("no HTTP/2", nil)
		return h2.ConnectionError(h2.ErrCodeProtocol)
	}
	return nil
}

// survives handles the error of a frame, and reports whether the connection goes on.
func (c *conn) survives(err error) bool {
	var stream h2.StreamError
	var connection h2.ConnectionError
	if errors.As(err, &stream) {
		c.log("a stream failed", err)
		if flood := c.controls.add(1); flood != nil {
			err = flood
		}
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && c.open: // the header deadline passed
		connection = h2.ConnectionError(h2.ErrCodeEnhanceYourCalm)
	case errors.As(err, &connection):
	case errors.As(err, &stream):
		c.mu.Lock()
		c.resetStream(stream.StreamID, stream.Code)
		err := c.control()
		c.mu.Unlock()
		return err == nil || c.survives(err)
	case errors.Is(err, h2.ErrFrameTooLarge):
		connection = h2.ConnectionError(h2.ErrCodeFrameSize)
	default:
		return false // the client is gone
	}
	c.log("a connection failed", err)
	c.mu.Lock()
	c.goAway(h2.ErrCode(connection))
	c.mu.Unlock()
	c.drain()
	return false
}

// drain sends the rest of the buffer, and reads meanwhile: if a connection is closed with unread
// bytes, the client loses bytes that it has not read.
func (c *conn) drain() {
	c.mu.Lock()
	c.flushLater()
	c.leaveUntil, c.blockUntil = time.Now().Add(farewell), time.Time{}
	c.setReadDeadline()
	c.mu.Unlock()
	_, _ = io.Copy(io.Discard, c.tls)
}

// shutdown sends GOAWAY. The connection is closed when its requests have ended.
func (c *conn) shutdown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.away {
		c.goAway(h2.ErrCodeNo)
		c.flushLater()
	}
}

// goAway appends a GOAWAY: streams after the last one are not accepted. The lock is held.
func (c *conn) goAway(code h2.ErrCode) {
	c.away = true
	c.frame(h2.FrameGoAway, 0, 0, 8)
	c.uint32(c.lastID)
	c.uint32(uint32(code))
	if c.err == nil {
		c.timer.Reset(c.s.WriteTimeout)
	}
	c.endIfDone()
}

// endIfDone sets the deadline for closing the connection if GOAWAY and all responses were
// sent. The lock is held.
func (c *conn) endIfDone() {
	if c.away && c.leaveUntil.IsZero() && len(c.streams) == 0 && len(c.out) == 0 && !c.sending {
		c.leaveUntil = time.Now().Add(farewell)
		c.setReadDeadline()
	}
}

// setReadDeadline sets the earliest of the read deadlines. The lock is held.
func (c *conn) setReadDeadline() {
	var first time.Time
	for _, t := range []time.Time{c.helloUntil, c.blockUntil, c.leaveUntil} {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	_ = c.tls.SetReadDeadline(first)
}

// checkIdle sends GOAWAY if the connection has had no request for the idle timeout. It closes
// the connection of an unauthenticated client that stays after a GOAWAY. It is the function
// of timer, which requests do not reset.
func (c *conn) checkIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.s.IdleTimeout
	if len(c.streams) == 0 {
		left -= time.Since(c.idle)
	}
	switch {
	case c.err != nil:
	case c.away && !c.isAuthenticated():
		c.log("a client does not go", nil)
		c.sendFailed()
	case c.away:
	case left > 0:
		c.timer.Reset(left)
	default:
		c.goAway(h2.ErrCodeNo)
		c.flushLater()
	}
}

// close ends everything on the connection.
func (c *conn) close() {
	c.mu.Lock()
	c.fail(errGone)
	sending := c.sending
	c.stall.stop()
	c.mu.Unlock()
	c.timer.Stop()
	c.cancel()
	if sending { // the write, and the close alert of TLS, would wait for the client
		c.tls.NetConn().Close()
	}
	c.tls.Close()
}

// fail ends all streams. The lock is held.
func (c *conn) fail(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	for _, s := range c.streams {
		s.fail(err)
	}
	c.discharge()
}

// sendFailed ends a connection that cannot be written to. The lock is held.
func (c *conn) sendFailed() {
	c.fail(errGone)
	c.tls.NetConn().Close() // the reader fails
}

func (c *conn) log(what string, err error) {
	c.s.Log.Debug("http2: "+what, "client", c.remote, "err", err)
}

// hello appends SETTINGS. The lock is held.
func (c *conn) hello() {
	settings := []h2.Setting{
		{ID: h2.SettingMaxConcurrentStreams, Val: uint32(c.s.MaxStreams)},
		{ID: h2.SettingMaxHeaderListSize, Val: uint32(c.s.HeaderBytes)},
		{ID: h2.SettingInitialWindowSize, Val: uint32(c.s.UploadBytes)},
	}
	c.frame(h2.FrameSettings, 0, 0, 6*len(settings))
	for _, s := range settings {
		c.out = append(c.out, byte(s.ID>>8), byte(s.ID))
		c.uint32(s.Val)
	}
	if more := c.s.UploadBytes - firstGrant; more > 0 && c.isAuthenticated() && !c.s.overBudget.Load() {
		c.windowUpdate(0, more)
		c.uploads += more
		c.allowed += more
	}
}
