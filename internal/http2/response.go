package http2

import (
	"bytes"
	"cmp"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// response is the state of a response.
type responseState struct {
	header  http.Header
	status  int   // zero: not set yet
	head    bool  // the request is a HEAD: there is no body
	begun   bool  // the headers were appended
	ended   bool  // the end was appended
	length  int64 // of the body, by Content-Length; -1: unknown
	written int64
}

// response is the http.ResponseWriter of a stream. It supports http.ResponseController.
// Unlike with net/http, headers may still change between WriteHeader and the first Write or
// Flush.
type response stream

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header, 8) // one group of the map
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic("http2: invalid status " + strconv.Itoa(status))
	}
	s := (*stream)(w)
	if s.status != 0 {
		return
	}
	if status >= 200 {
		s.status = status
		return
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.err == nil {
		s.proceed = s.proceed && status != http.StatusContinue
		s.encode(status, s.header)
		s.c.headers(s.id, false)
		s.c.flush()
	}
}

// Write implements http.ResponseWriter. It returns when p is sent or in the send buffer. If p
// ends a response of known length and the rest is small, the stream keeps the rest, and Write
// does not wait for the client.
func (w *response) Write(p []byte) (int, error) {
	s := (*stream)(w)
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.begin(p, false)
	switch {
	case !bodyAllowed(s.status):
		return 0, http.ErrBodyNotAllowed
	case s.length >= 0 && s.written+int64(len(p)) > s.length:
		return 0, http.ErrContentLength
	case s.head:
		return len(p), s.err
	}
	n, err := s.append(p)
	if s.waiters == 0 && s.rest == nil {
		s.stall.end()
	}
	if err != nil {
		return n, err
	}
	if s.written == s.length && s.rest == nil && !s.ended && s.err == nil {
		s.ended = true
		if c.endStream(s.id); s.bodyEnded {
			c.remove(s)
		}
	}
	c.next()
	if len(c.out) >= sendBytes/2 {
		c.account()
		c.flush()
	}
	return len(p), nil
}

// Connection identifies the connection: it is equal for the responses of one connection.
func (w *response) Connection() any { return w.c }

// TryWrite is a non-blocking Write: it appends all of p or nothing. full reports that the
// caller should flush. It fails before the headers are sent.
func (w *response) TryWrite(p []byte) (ok, full bool) {
	s := (*stream)(w)
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	n := int64(len(p))
	if !s.begun || s.err != nil || s.length >= 0 || s.head || !bodyAllowed(s.status) ||
		len(c.queue) > 0 || n > min(turnBytes, int64(c.space()), s.window) {
		return false, false
	}
	c.window -= n
	s.window -= n
	s.written += n
	c.data(s.id, p)
	if len(c.out) < sendBytes/2 {
		return true, false
	}
	c.account()
	return true, true
}

// append appends a part of the body, and waits for the client if it must. The lock is held.
func (s *stream) append(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n, err := s.c.reserve(s, len(rest))
		if err != nil {
			return len(p) - len(rest), err
		}
		if n == 0 {
			s.leaveRest(rest)
			break
		}
		s.c.data(s.id, rest[:n])
		s.written += int64(n)
		rest = rest[n:]
	}
	return len(p), nil
}

// mayLeave reports whether the stream may keep the last n bytes, so that the handler need
// not wait for the client. The lock is held.
func (s *stream) mayLeave(n int) bool {
	return n <= restBytes && s.length >= 0 && s.written+int64(n) == s.length && !s.c.s.overBudget.Load() &&
		(s.c.rests+n <= unauthenticatedRestBytes || s.c.isAuthenticated())
}

// leaveRest keeps the end of the response until the client takes it, at most for the time that
// a write may wait. The lock is held.
func (s *stream) leaveRest(p []byte) {
	s.rest = bytes.Clone(p)
	s.written += int64(len(p))
	s.c.rests += len(p)
	s.c.keep(len(p))
	s.stall.begin(&s.c.mu, s)
}

// dropRest frees the end of the response: it was sent, or never will be. The lock is held.
func (s *stream) dropRest() {
	s.c.rests -= len(s.rest)
	s.c.keep(-len(s.rest))
	s.rest = nil
	s.stall.stop()
}

// stalled breaks the response off, because a write has waited for the client for too long.
func (s *stream) stalled() { s.breakOff() }

// resumeRest appends as much of the rest as the client takes. The lock is held.
func (s *stream) resumeRest() {
	c := s.c
	sent := 0
	for sent < len(s.rest) {
		n := c.turn(s, len(s.rest)-sent)
		if n == 0 {
			break
		}
		c.data(s.id, s.rest[sent:sent+n])
		sent += n
	}
	if sent == 0 {
		return
	}
	if sent < len(s.rest) {
		s.rest = s.rest[sent:]
		c.rests -= sent
		c.keep(-sent)
	} else {
		s.dropRest()
		s.ended = true
		c.endStream(s.id)
		if s.finished {
			s.err = errFinished
		}
		if s.bodyEnded || s.finished {
			s.conclude()
		}
		c.next()
	}
	c.flushLater()
}

// WriteString implements io.StringWriter.
func (w *response) WriteString(p string) (int, error) { return w.Write([]byte(p)) }

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError is for http.ResponseController. An error means that the stream has ended.
func (w *response) FlushError() error {
	s := (*stream)(w)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.begin(nil, false)
	s.c.flush()
	return s.err
}

// EnableFullDuplex is for http.ResponseController. HTTP/2 is always full duplex.
func (w *response) EnableFullDuplex() error { return nil }

// SetReadDeadline is for http.ResponseController. Reads of the body fail after it.
func (w *response) SetReadDeadline(at time.Time) error {
	s := (*stream)(w)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.readUntil = at
	wake(s.readable)
	return nil
}

// SetWriteDeadline is for http.ResponseController. A response that has not ended by then is broken
// off.
func (w *response) SetWriteDeadline(at time.Time) error {
	s := (*stream)(w)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.writeTimer != nil {
		s.writeTimer.Stop()
		s.writeTimer = nil
	}
	if at.IsZero() {
		return nil
	}
	var mine *time.Timer
	mine = time.AfterFunc(time.Until(at), func() {
		s.c.mu.Lock()
		defer s.c.mu.Unlock()
		if s.writeTimer == mine { // otherwise it was replaced while it fired
			s.breakOff()
		}
	})
	s.writeTimer = mine
	return nil
}

// SetWriteTimeout bounds how long each Write may wait for the client; zero:
// Server.WriteTimeout. It has the effect of a write deadline that is set before each write,
// and costs nothing while the client reads. Only one goroutine may write.
func (w *response) SetWriteTimeout(d time.Duration) {
	s := (*stream)(w)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.stall.setLimit(cmp.Or(d, s.c.s.WriteTimeout))
}

// breakOff resets the stream, unless the response has ended. The lock is held.
func (s *stream) breakOff() {
	if s.err == nil && !s.ended {
		s.fail(os.ErrDeadlineExceeded)
		s.c.resetStream(s.id, h2.ErrCodeInternal)
		s.c.flushLater()
	}
}

// begin appends the headers, once. p is the beginning of the body, end reports that p is
// all of it. The lock is held.
func (s *stream) begin(p []byte, end bool) {
	if s.begun {
		return
	}
	s.begun = true
	if s.status == 0 {
		s.status = http.StatusOK
	}
	h := (*response)(s).Header()
	s.length = -1
	if declared := h["Content-Length"]; len(declared) > 0 {
		if n, err := strconv.ParseUint(declared[0], 10, 63); err == nil {
			s.length = int64(n)
		} else {
			delete(h, "Content-Length")
		}
	}
	allowed := bodyAllowed(s.status)
	if end && allowed && !s.head && s.length < 0 {
		h["Content-Length"] = []string{"0"}
	} else if _, typed := h["Content-Type"]; !typed && allowed && len(p) > 0 && len(h["Content-Encoding"]) == 0 {
		h["Content-Type"] = []string{http.DetectContentType(p)}
	}
	if _, dated := h["Date"]; !dated {
		h["Date"] = s.c.s.now()
	}
	if s.err != nil {
		return
	}
	s.ended = end && (s.length <= 0 || s.head || !allowed) // otherwise the client expects a body
	s.encode(s.status, h)
	s.c.headers(s.id, s.ended)
	if c := s.c; !c.away && len(h["Connection"]) > 0 && strings.EqualFold(h["Connection"][0], "close") {
		c.goAway(h2.ErrCodeNo)
	}
}

// end ends the response after the handler has returned. The lock is held.
func (s *stream) end() {
	s.begin(nil, true)
	c := s.c
	switch {
	case s.rest != nil:
		return
	case s.ended:
	case s.written < s.length && !s.head && bodyAllowed(s.status):
		c.resetStream(s.id, h2.ErrCodeInternal) // the client must not take it for a complete one
		return
	default:
		s.ended = true
		c.endStream(s.id)
	}
	s.conclude()
}

// conclude removes a stream whose response has ended. If the client still sends its body, it
// resets the stream soon. The lock is held.
func (s *stream) conclude() {
	c := s.c
	if c.streams[s.id] != s {
		return
	}
	if s.bodyEnded {
		c.remove(s)
		return
	}
	time.AfterFunc(earlyReset, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err == nil && c.streams[s.id] == s {
			c.resetStream(s.id, h2.ErrCodeNo) // the rest of the body is not needed
			c.flushLater()
		}
	})
}

// bodyAllowed reports whether a response with the status may have a body.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// encode encodes headers into the connection's block. The lock is held.
func (s *stream) encode(status int, h http.Header) {
	e := s.c.encoder
	text := "200"
	if status != http.StatusOK {
		text = strconv.Itoa(status)
	}
	write(e, ":status", text)
	for key, values := range h {
		name, ok := lower(key)
		if !ok {
			continue
		}
		for _, v := range values {
			if httpguts.ValidHeaderFieldValue(v) {
				write(e, name, v)
			}
		}
	}
}

// write encodes a field. Values that differ in each response are not added to the table, where
// they would replace others.
func write(e *hpack.Encoder, name, value string) {
	unique := name == "audit-id" || name == "content-length"
	_ = e.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: unique}) // to memory
}

// lowered has the usual headers of responses in lower case, as HTTP/2 sends them.
var lowered = func() map[string]string {
	m := map[string]string{}
	for _, name := range []string{
		"Audit-Id", "Cache-Control", "Content-Encoding", "Content-Length", "Content-Type", "Date", "Etag", "Retry-After", "Vary", "Warning",
		"X-Content-Type-Options", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid",
	} {
		m[name] = strings.ToLower(name)
	}
	return m
}()

// lower returns the name of a header in lower case. ok is false for headers that HTTP/2 does
// not send.
func lower(key string) (name string, ok bool) {
	if name, ok := lowered[key]; ok {
		return name, true
	}
	switch key {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade":
		return "", false
	}
	return strings.ToLower(key), httpguts.ValidHeaderFieldName(key)
}

// date caches the Date header for a second.
type date struct {
	unix int64
	text []string
}

// now returns the Date header. Callers must not change it.
func (s *Server) now() []string {
	t := time.Now()
	d := s.date.Load()
	if d == nil || d.unix != t.Unix() {
		d = &date{t.Unix(), []string{t.UTC().Format(http.TimeFormat)}}
		s.date.Store(d)
	}
	return d.text
}
