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

// errGone is the error of whatever outlives its connection.
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

	reader // of the goroutine that reads alone

	mu      sync.Mutex // guards all that follows, and the streams
	streams map[uint32]*stream
	running int    // handlers
	lastID  uint32 // of the newest stream that was taken
	err     error  // why the connection is over; nil: it is not
	away    bool   // GOAWAY was sent
	idle    time.Time
	timer   *time.Timer // closes a connection that is idle, or does not go
	resets  [128]uint32 // the newest streams that were reset from here
	reset   int         // how many were
	uploads int         // bytes of bodies that may come
	owed    int         // of them, those that were read and not granted again
	allowed int         // what both and what was not read add up to

	// When the next read fails; zero: never for this reason.
	helloUntil time.Time // the client has not said that it speaks HTTP/2
	blockUntil time.Time // a header block is not complete
	leaveUntil time.Time // the client was told to go, and has all its answers

	flying  int // bytes that are being sent, with what they are encrypted to
	kept    int // bytes that are kept for the client beside those to send
	rests   int // of them, the ends of answers
	charged int // of them all, what the server's budget knows

	sender
}

func newConn(s *Server, t *tls.Conn, h http.Handler) *conn {
	c := &conn{s: s, tls: t, handler: h, remote: t.RemoteAddr().String(), streams: map[uint32]*stream{}, uploads: firstGrant, allowed: firstGrant, idle: time.Now()}
	base := context.Background()
	if b, ok := h.(interface{ BaseContext() context.Context }); ok { // net/http's way to pass it on
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

// preface reads what every client says first.
func (c *conn) preface() error {
	var said [len(h2.ClientPreface)]byte
	if _, err := io.ReadFull(c.tls, said[:]); err != nil {
		return err
	}
	if !bytes.Equal(said[:], []byte(h2.ClientPreface)) {
		c.log("no HTTP/2", nil)
		return h2.ConnectionError(h2.ErrCodeProtocol)
	}
	return nil
}

// survives deals with what a frame did wrong. Whether the connection goes on is
// the answer.
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

// drain sends what waits to be sent, and reads what the client sends meanwhile: to
// close a connection with something unread is to have the client lose what it has
// not read itself.
func (c *conn) drain() {
	c.mu.Lock()
	c.flushLater()
	c.leaveUntil, c.blockUntil = time.Now().Add(farewell), time.Time{}
	c.setReadDeadline()
	c.mu.Unlock()
	_, _ = io.Copy(io.Discard, c.tls)
}

// shutdown tells the client to go when its requests have ended.
func (c *conn) shutdown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.away {
		c.goAway(h2.ErrCodeNo)
		c.flushLater()
	}
}

// goAway says that no stream after the last one is taken. The lock is held.
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

// endIfDone gives a client that was told to go, and has all its answers, a while to
// close the connection, whatever it asks for meanwhile. The lock is held.
func (c *conn) endIfDone() {
	if c.away && c.leaveUntil.IsZero() && len(c.streams) == 0 && len(c.out) == 0 && !c.sending {
		c.leaveUntil = time.Now().Add(farewell)
		c.setReadDeadline()
	}
}

// setReadDeadline has reads fail when the first of the reasons comes true. The lock is
// held.
func (c *conn) setReadDeadline() {
	var first time.Time
	for _, t := range []time.Time{c.helloUntil, c.blockUntil, c.leaveUntil} {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	_ = c.tls.SetReadDeadline(first)
}

// checkIdle ends the connection if it has had no request for the idle timeout, or if it
// is a stranger's that was told to go and has not. It is the timer's; the timer is not
// touched by requests.
func (c *conn) checkIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.s.IdleTimeout
	if len(c.streams) == 0 {
		left -= time.Since(c.idle)
	}
	switch {
	case c.err != nil:
	case c.away && !c.isKnown():
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
	if sending { // and would wait for the client, as the farewell of TLS would
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
	c.tls.NetConn().Close() // what reads notices
}

func (c *conn) log(what string, err error) {
	c.s.Log.Debug("http2: "+what, "client", c.remote, "err", err)
}

// hello says what the server takes. The lock is held.
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
	if more := c.s.UploadBytes - firstGrant; more > 0 && c.isKnown() && !c.s.overBudget.Load() {
		c.windowUpdate(0, more)
		c.uploads += more
		c.allowed += more
	}
}
