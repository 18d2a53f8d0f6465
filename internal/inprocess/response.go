package inprocess

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// response is the http.ResponseWriter of an exchange. It supports http.ResponseController. Only the
// handler's goroutine uses it, but for TryWrite, FlushError and the deadlines.
type response struct {
	x       *exchange
	header  http.Header
	head    bool // the request is a HEAD: there is no body
	upgrade bool // the request asks for an upgrade

	status   int         // zero: not set yet
	fixed    http.Header // the headers at WriteHeader
	length   int64       // by Content-Length; -1: unknown
	written  int64
	held     []byte // the beginning of the body, while the headers were not sent
	sent     bool
	ended    bool // the handler has returned
	hijacked bool

	announced []string // the names of the trailers in the header Trailer
}

func newResponse(x *exchange, r *http.Request) *response {
	return &response{x: x, header: make(http.Header, 8), head: r.Method == http.MethodHead, upgrade: r.ProtoMajor == 1, length: -1}
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. Informational responses are dropped.
func (w *response) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic("inprocess: invalid status " + strconv.Itoa(status))
	}
	if w.status != 0 || w.hijacked || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	w.status = status
	w.fixed = make(http.Header, len(w.header)+3)
	for name, values := range w.header {
		if w.sends(name) {
			w.fixed[http.CanonicalHeaderKey(name)] = valid(values)
		}
	}
	declared := w.fixed["Content-Length"]
	if len(declared) == 0 {
		return
	}
	if n, err := strconv.ParseUint(declared[0], 10, 63); err == nil {
		w.length = int64(n)
	} else {
		delete(w.fixed, "Content-Length")
	}
}

// sends reports whether the client gets a header.
func (w *response) sends(name string) bool {
	if strings.HasPrefix(name, http.TrailerPrefix) || !httpguts.ValidHeaderFieldName(name) {
		return false
	}
	switch http.CanonicalHeaderKey(name) {
	case "Connection", "Upgrade":
		return w.status == http.StatusSwitchingProtocols
	case "Keep-Alive", "Proxy-Connection", "Transfer-Encoding":
		return false
	}
	return true
}

// valid returns a copy of the values that may be sent.
func valid(values []string) []string {
	to := make([]string, 0, len(values))
	for _, v := range values {
		if httpguts.ValidHeaderFieldValue(v) {
			to = append(to, v)
		}
	}
	return to
}

// Write implements http.ResponseWriter. It returns when the client has p or the buffer has it.
func (w *response) Write(p []byte) (int, error) {
	if w.hijacked {
		return 0, http.ErrHijacked
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.detectType(p)
	switch {
	case !bodyAllowed(w.status):
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && w.written+int64(len(p)) > w.length:
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	if !w.sent && w.written <= heldBytes && w.written != w.length {
		if !w.head {
			w.held = append(w.held, p...)
		}
		return len(p), nil
	}
	if err := w.send(); err != nil {
		return 0, err
	}
	if w.head {
		return len(p), nil
	}
	n, err := w.x.download.write(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.x.end(errAborted)
	}
	return n, err
}

// WriteString implements io.StringWriter.
func (w *response) WriteString(p string) (int, error) { return w.Write([]byte(p)) }

// detectType sets the Content-Type by the beginning of the body.
func (w *response) detectType(p []byte) {
	if w.sent || w.written > 0 || len(p) == 0 || !bodyAllowed(w.status) || w.fixed.Get("Content-Encoding") != "" {
		return
	}
	if _, typed := w.fixed["Content-Type"]; !typed {
		w.fixed["Content-Type"] = []string{http.DetectContentType(p)}
	}
}

// send gives the client the headers, once, and the part of the body that was held.
func (w *response) send() error {
	if w.sent {
		return nil
	}
	w.sent = true
	if _, dated := w.fixed["Date"]; !dated {
		w.fixed["Date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
	}
	resp := &http.Response{
		Status: strconv.Itoa(w.status) + " " + http.StatusText(w.status), StatusCode: w.status,
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: w.fixed, ContentLength: w.length, Request: w.x.client,
	}
	if w.upgrade {
		resp.Proto, resp.ProtoMajor, resp.ProtoMinor = "HTTP/1.1", 1, 1
	}
	resp.Trailer = w.announce()
	switch {
	case w.status == http.StatusSwitchingProtocols:
		w.x.unlink() // before the client has the response and may cancel its context
		resp.Body = &upgraded{w.x}
	case w.head, !bodyAllowed(w.status), w.ended && w.written == 0 && !w.hasTrailers():
		resp.Body = http.NoBody
		if w.length < 0 && !w.head {
			resp.ContentLength = 0
		}
		defer w.x.read()
	default:
		resp.Body = responseBody{w.x}
	}
	if !w.x.respond(resp) {
		return errGone
	}
	held := w.held
	w.held = nil
	_, err := w.x.download.write(held)
	return err
}

// announce returns the trailers that are announced in the headers, without values.
func (w *response) announce() (all http.Header) {
	for _, line := range w.fixed["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = http.CanonicalHeaderKey(strings.TrimSpace(name)); httpguts.ValidTrailerHeader(name) {
				all = addTrailer(all, name, nil)
				w.announced = append(w.announced, name)
			}
		}
	}
	delete(w.fixed, "Trailer")
	return all
}

// hasTrailers reports whether the response has trailers, as far as it is known.
func (w *response) hasTrailers() bool {
	if len(w.announced) > 0 {
		return true
	}
	for name := range w.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

func addTrailer(to http.Header, name string, values []string) http.Header {
	if to == nil {
		to = http.Header{}
	}
	to[name] = values
	return to
}

// finish ends the response after the handler has returned.
func (w *response) finish() {
	w.ended = true
	switch {
	case w.hijacked:
		return
	case w.status == 0:
		w.WriteHeader(http.StatusOK)
	}
	if w.status == http.StatusSwitchingProtocols { // and not hijacked
		w.x.end(errAborted)
		return
	}
	if !w.sent && w.length < 0 && bodyAllowed(w.status) && (!w.head || w.written > 0) {
		w.length = w.written
		w.fixed["Content-Length"] = []string{strconv.FormatInt(w.written, 10)}
	}
	if w.written < w.length && !w.head && bodyAllowed(w.status) {
		_ = w.send() // it is broken off in any case
		w.x.end(errAborted)
		return
	}
	_ = w.send() // the client may be gone
	w.x.trailer = w.trailers()
	w.x.download.finish(io.EOF)
}

// trailers returns the trailers after the handler has returned, nil if there are none.
func (w *response) trailers() (all http.Header) {
	for _, name := range w.announced {
		all = addTrailer(all, name, valid(w.header[name]))
	}
	for name, values := range w.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			all = addTrailer(all, http.CanonicalHeaderKey(name), valid(values))
		}
	}
	return all
}

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError is for http.ResponseController. Written bytes are visible to the client once the
// headers are, so only the headers need it.
func (w *response) FlushError() error {
	if w.hijacked {
		return http.ErrHijacked
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if err := w.send(); err != nil {
		return err
	}
	return w.x.download.failed()
}

// EnableFullDuplex is for http.ResponseController. Handlers may always read while they write.
func (w *response) EnableFullDuplex() error { return nil }

// SetReadDeadline is for http.ResponseController. Reads of the body fail after it.
func (w *response) SetReadDeadline(at time.Time) error {
	w.x.upload.setDeadline(&w.x.upload.readUntil, at)
	return nil
}

// SetWriteDeadline is for http.ResponseController. A write that waits for the client until then
// breaks the response off.
func (w *response) SetWriteDeadline(at time.Time) error {
	w.x.download.setDeadline(&w.x.download.writeUntil, at)
	return nil
}

// SetWriteTimeout bounds how long each Write may wait for the client; zero: Server.WriteTimeout. It
// has the effect of a write deadline that is set before each write.
func (w *response) SetWriteTimeout(d time.Duration) {
	if d == 0 {
		d = w.x.t.s.WriteTimeout
	}
	w.x.download.setLimit(d)
}

// Connection identifies the client: it is equal for the responses of one transport.
func (w *response) Connection() any { return w.x.t }

// TryWrite is a Write that does not wait: it writes all of p or nothing. full is false: the client
// sees p at once. It fails before the headers are sent. Another goroutine than the handler's
// may call it while the handler does not write.
func (w *response) TryWrite(p []byte) (ok, full bool) {
	if !w.sent || w.length >= 0 || w.head || !bodyAllowed(w.status) || !w.x.download.tryWrite(p) {
		return false, false
	}
	w.written += int64(len(p))
	return true, false
}

// Unread is how many bytes of the response the client has not read. It is safe for concurrent use once
// the headers are sent.
func (w *response) Unread() int { return w.x.download.unread() }

// bodyAllowed reports whether a response with the status may have a body.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
