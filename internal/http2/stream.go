package http2

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"time"

	h2 "golang.org/x/net/http2"
)

// stream is a request and its response. The connection's lock guards its fields,
// unless they say otherwise.
type stream struct {
	c       *conn
	id      uint32
	request *http.Request      // nil once the handler has it
	cancel  context.CancelFunc // of the request's context

	err    error // why nothing is read or written any more; nil: the stream is open
	window int64 // bytes of the response's body that may be sent

	// The request's body.
	body      []byte // received and not read
	bodyErr   error  // the result of a read when body is empty; nil: it waits
	bodyEnded bool   // all of it was received
	closed    bool   // the handler will not read it
	finished  bool   // the handler has returned
	proceed   bool   // the client waits for 100 (Continue)
	declared  int64  // its length; -1: unknown
	received  int64
	uploads   int // the rest of the window
	owed      int // bytes that were read, and that the client may not send again yet

	readable, writable chan struct{} // get a value when the goroutine may go on; nil: none has waited

	readUntil  time.Time   // reads of the body fail from then on; zero: they do not
	readTimer  *time.Timer // wakes a read at readUntil; nil: no read has waited with a deadline
	writeTimer *time.Timer // of SetWriteDeadline; nil: there is none

	stall   stallTimer // of the write that waits for the client, or of rest
	waiters int        // goroutines that wait to write

	headerBytes int    // of the request, while its handler runs
	rest        []byte // the end of the response that the handler did not wait for

	responseState // of the handler's goroutine
}

func newStream(c *conn, id uint32, end bool) *stream {
	s := &stream{c: c, id: id, window: c.firstWindow, declared: -1, uploads: c.s.UploadBytes, stall: stallTimer{limit: c.s.WriteTimeout}}
	if end {
		s.bodyEnded, s.bodyErr, s.declared = true, io.EOF, 0
	}
	return s
}

// wake lets the goroutine that waits on the channel check again.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // no goroutine waits, or it is woken already
	}
}

// wait waits until the channel gets a value. It releases the lock meanwhile.
func (s *stream) wait(on *chan struct{}) {
	if *on == nil {
		*on = make(chan struct{}, 1)
	}
	woken := *on
	s.c.mu.Unlock()
	<-woken
	s.c.mu.Lock()
}

// fail ends the stream for its handler.
func (s *stream) fail(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	if !s.bodyEnded {
		s.bodyErr = err
		s.drop()
	}
	if s.rest != nil {
		s.dropRest()
		s.c.leave(slices.Index(s.c.queue, s))
		s.c.next()
	}
	s.cancel()
	wake(s.readable)
	wake(s.writable)
}

// unread buffers a part of the body, and reports whether the handler may read it.
func (s *stream) unread(data []byte) bool {
	if s.closed || s.bodyErr != nil {
		return false
	}
	if len(data) == 0 {
		return true
	}
	if s.body == nil && s.declared > 0 { // the client may not send that much
		s.body = make([]byte, 0, max(len(data), int(min(s.declared, 8<<10))))
	}
	s.body = append(s.body, data...)
	s.c.keep(len(data))
	wake(s.readable)
	return true
}

// endBody handles the end of the request.
func (s *stream) endBody() error {
	if s.declared >= 0 && s.received != s.declared {
		return h2.StreamError{StreamID: s.id, Code: h2.ErrCodeProtocol}
	}
	s.bodyEnded = true
	if s.bodyErr == nil {
		s.bodyErr = io.EOF
	}
	wake(s.readable)
	if s.ended {
		s.c.remove(s)
	}
	return nil
}

// errFinished is the error of reads and writes after the handler has returned.
var errFinished = errors.New("http2: the request's handler has returned")

// run calls the handler.
func (s *stream) run(h http.Handler) {
	returned := false
	defer func() { s.finish(recover(), returned) }()
	r := s.request
	s.request = nil // so that a watch can free it
	h.ServeHTTP((*response)(s), r)
	returned = true
}

// finish ends the stream after its handler. If the handler has not returned, it has panicked
// or ended its goroutine.
func (s *stream) finish(v any, returned bool) {
	if v != nil && v != http.ErrAbortHandler { //nolint:errorlint // it is not wrapped
		s.c.s.Log.Error("http2: panic in a handler", "client", s.c.remote, "panic", v, "stack", string(debug.Stack()))
	}
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.keep(-s.headerBytes)
	s.stopTimers()
	s.closed, s.finished = true, true
	s.drop()
	switch {
	case s.err != nil: // the client is gone
	case !returned:
		c.resetStream(s.id, h2.ErrCodeInternal)
	default:
		s.end()
	}
	if s.err == nil && s.rest == nil {
		s.err = errFinished
	}
	s.cancel()
	c.flush()
}

// drop discards the part of the body that was not read.
func (s *stream) drop() {
	if n := len(s.body); n > 0 {
		s.body = nil
		s.c.keep(-n)
		s.c.grant(n)
	}
}

// stopTimers stops the timers of the handler's calls.
func (s *stream) stopTimers() {
	for _, t := range []*time.Timer{s.readTimer, s.writeTimer} {
		if t != nil {
			t.Stop()
		}
	}
	if s.rest == nil {
		s.stall.stop()
	}
}

// body is the body of a request.
type body stream

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	s := (*stream)(b)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for {
		if s.bodyErr == nil && !s.readUntil.IsZero() && !time.Now().Before(s.readUntil) {
			s.bodyErr = os.ErrDeadlineExceeded
		}
		switch {
		case s.closed && s.bodyErr != io.EOF: //nolint:errorlint // it is set as it is
			return 0, http.ErrBodyReadAfterClose
		case len(s.body) > 0 && !errors.Is(s.bodyErr, os.ErrDeadlineExceeded):
			n := copy(p, s.body)
			if s.body = s.body[n:]; len(s.body) == 0 && s.bodyEnded {
				s.body = nil // free the memory: the handler may run for long
			}
			s.took(n)
			return n, nil
		case s.bodyErr != nil:
			return 0, s.bodyErr
		case len(p) == 0:
			return 0, nil
		}
		if s.proceed && !s.begun {
			s.proceed = false
			s.encode(http.StatusContinue, nil)
			s.c.headers(s.id, false)
			s.c.flush()
			continue
		}
		s.waitToRead()
	}
}

// waitToRead waits for more of the body, at most until the read deadline. It releases the
// lock meanwhile.
func (s *stream) waitToRead() {
	switch left := time.Until(s.readUntil); {
	case s.readUntil.IsZero():
	case s.readTimer == nil:
		s.readTimer = time.AfterFunc(left, func() {
			s.c.mu.Lock()
			defer s.c.mu.Unlock()
			wake(s.readable)
		})
	default:
		s.readTimer.Reset(left)
	}
	s.wait(&s.readable)
}

// took grants the client n bytes more, which the handler has read.
func (s *stream) took(n int) {
	s.c.keep(-n)
	s.c.grant(n)
	if !s.bodyEnded && s.err == nil {
		s.grant(n)
	}
	s.c.flush()
}

// grant lets the client send n bytes of this body more, in large steps.
func (s *stream) grant(n int) {
	if s.owed += n; s.owed >= s.c.s.UploadBytes/2 {
		s.c.windowUpdate(s.id, s.owed)
		s.uploads += s.owed
		s.owed = 0
	}
}

// Close implements io.Closer.
func (b *body) Close() error {
	s := (*stream)(b)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.closed = true
	s.drop()
	wake(s.readable)
	s.c.flushLater()
	return nil
}
