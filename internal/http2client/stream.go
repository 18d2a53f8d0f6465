package http2client

import (
	"context"
	"io"
	"net/http"
	"strconv"

	h2 "golang.org/x/net/http2"
)

// enough is how much of a response's body wakes its caller before the response is complete. The server may always send
// as much.
const enough = firstGrant / 2

// stream is a request and its response. The connection's lock guards it.
type stream struct {
	c      *Conn
	id     uint32
	ctx    context.Context
	signal chan struct{} // a value for the caller: the stream has changed

	source io.Reader // the body of the request
	unsent int64     // how much of it has to be sent
	sent   bool      // the request is sent to its end
	queued bool
	window int64 // for the body of the request

	response *http.Response // nil: its headers are not there yet
	body     []byte         // received and unread bytes
	taken    int            // how much of body is read
	received int64
	declared int64 // Content-Length; negative: unknown
	grant    int   // window for the body of the response
	owed     int   // bytes that were read, and that the server may not send again yet
	infos    int   // informational responses
	returned bool  // the caller has the response
	ended    bool  // the response is complete
	err      error // why the stream has failed
}

// RoundTrip implements http.RoundTripper. The length of the body must be known, and reading it must not block.
func (c *Conn) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	s, err := c.begin(r)
	if err != nil {
		return nil, err
	}
	for {
		c.mu.Lock()
		switch {
		case s.response != nil && (s.ended || s.waiting() >= enough):
			s.returned = true
			c.mu.Unlock()
			s.response.Request, s.response.Body = r, (*body)(s)
			return s.response, nil
		case s.err != nil:
			c.mu.Unlock()
			return nil, s.err
		}
		c.mu.Unlock()
		select {
		case <-s.signal:
		case <-s.ctx.Done():
			s.cancel()
			return nil, s.ctx.Err()
		}
	}
}

// begin starts a stream.
func (c *Conn) begin(r *http.Request) (*stream, error) {
	s := &stream{c: c, ctx: r.Context(), signal: make(chan struct{}, 1), source: r.Body, unsent: max(r.ContentLength, 0), sent: r.ContentLength <= 0, declared: -1, grant: firstGrant}
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.used
	c.used = true
	switch {
	case c.err != nil && first:
		return nil, c.err // http.Transport would dial for ever
	case !c.usable() && first:
		return nil, ErrUnprocessed
	case !c.usable():
		c.away = true // the transport forgets it
		if len(c.streams) == 0 {
			c.notify()
		}
		return nil, ErrUnusable
	}
	s.id, s.window = c.nextID, c.firstWindow
	if err := c.headers(s, r); err != nil {
		c.block.Reset()
		return nil, err
	}
	c.nextID += 2
	c.streams[s.id] = s
	add(&c.credit, requestCredit+int(s.unsent/sentPerCredit))
	c.enqueue(s)
	c.notify()
	return s, nil
}

// cancel ends the stream for the caller. The lock is not held.
func (s *stream) cancel() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.reset(s, h2.ErrCodeCancel)
	if s.body, s.taken = nil, 0; s.err == nil {
		s.ended, s.err = false, errClosed
	}
}

// fail ends the stream with an error. The lock is held.
func (s *stream) fail(err error) {
	if s.err == nil && !s.ended {
		s.err = err
	}
	s.wake()
}

func (s *stream) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// waiting returns how much of the body is not read. The lock is held.
func (s *stream) waiting() int { return len(s.body) - s.taken }

// finish ends the response. The lock is held.
func (s *stream) finish() {
	s.ended = true
	if s.declared >= 0 && s.received != s.declared {
		s.ended, s.err = false, io.ErrUnexpectedEOF
	}
	if s.sent {
		s.c.remove(s)
	} else {
		s.c.reset(s, h2.ErrCodeNo) // the server does not need the rest of the request
	}
	s.wake()
}

// body is the body of the response.
type body stream

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	s := (*stream)(b)
	for {
		s.c.mu.Lock()
		if n := copy(p, s.body[s.taken:]); n > 0 || len(p) == 0 {
			s.took(n)
			s.c.mu.Unlock()
			return n, nil
		}
		ended, err := s.ended, s.err
		s.c.mu.Unlock()
		switch {
		case ended:
			return 0, io.EOF
		case err != nil:
			return 0, err
		}
		select {
		case <-s.signal:
		case <-s.ctx.Done():
			s.cancel()
			return 0, s.ctx.Err()
		}
	}
}

// took counts bytes that the caller has read. The lock is held.
func (s *stream) took(n int) {
	if s.taken += n; s.taken == len(s.body) {
		s.body, s.taken = s.body[:0], 0
	}
	if s.owed += n; s.owed >= enough && !s.ended && s.err == nil {
		s.c.windowUpdate(s.id, s.owed)
		s.grant += s.owed
		s.owed = 0
		s.c.notify()
	}
}

// Close implements io.Closer. The rest of the response is lost.
func (b *body) Close() error {
	(*stream)(b).cancel()
	return nil
}

// declaredLength returns the value of Content-Length, -1 if it is unknown.
func declaredLength(h http.Header) int64 {
	values := h["Content-Length"]
	if len(values) != 1 {
		return -1
	}
	n, err := strconv.ParseUint(values[0], 10, 63)
	if err != nil {
		return -1
	}
	return int64(n)
}
