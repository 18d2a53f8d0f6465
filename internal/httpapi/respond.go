package httpapi

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/deflate"
	"github.com/tidemark-dev/tidemark/internal/uuid"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Values of headers that are the same for all responses. They are never changed.
var (
	noCache         = []string{"no-cache, private"}
	noSniff         = []string{"nosniff"}
	plainText       = []string{"text/plain; charset=utf-8"}
	htmlType        = []string{"text/html; charset=utf-8"}
	octetStream     = []string{"application/octet-stream"}
	jsonType        = []string{string(wire.JSON)}
	yamlType        = []string{string(wire.YAML)}
	gzipEncoding    = []string{"gzip"}
	varyEncoding    = []string{"Accept-Encoding"}
	retrySoon       = []string{"1"}
	closeConnection = []string{"close"}
	varyAccept      = []string{"Accept"}
	publicCache     = []string{"public"}
)

// auditIDBytes bounds an audit ID that the client sends; the rest is cut off. kube-apiserver cuts it off at the same
// length, but in its log alone.
const auditIDBytes = 64

// identify sets the headers that every response has. The audit ID is the client's or a new
// one.
func (q *request) identify() {
	h := q.header()
	h["Cache-Control"] = noCache
	if given := q.r.Header["Audit-Id"]; len(given) > 0 && given[0] != "" {
		q.auditID[0] = strings.Clone(given[0][:min(len(given[0]), auditIDBytes)]) // audit events do not keep the rest
	} else {
		q.auditID[0] = q.newUUID()
	}
	h["Audit-Id"] = q.auditID[:]
}

// newUUID returns a random UUID that is no secret, so it needs no cryptographic randomness.
func (q *request) newUUID() string {
	var b [16]byte
	if c := &q.h.c; c.Random != nil && q.r.Method != http.MethodGet && q.r.Method != http.MethodHead {
		c.Random(b[:])
		return uuid.From(b)
	}
	binary.LittleEndian.PutUint64(b[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(b[8:], rand.Uint64())
	return uuid.From(b)
}

// pretty reports whether JSON is to be indented: on request, and for curl, wget and browsers.
func (q *request) pretty(o wire.Output) bool {
	if o.Pretty {
		return true
	}
	if strings.Contains(q.r.URL.RawQuery, "pretty") {
		if text := q.query().Get("pretty"); text != "" {
			yes, _ := strconv.ParseBool(text)
			return yes
		}
	}
	agent := q.r.Header["User-Agent"]
	if len(agent) == 0 {
		return false
	}
	return strings.HasPrefix(agent[0], "curl") || strings.HasPrefix(agent[0], "Wget") || strings.HasPrefix(agent[0], "Mozilla/5.0")
}

// json responds with one JSON value in the negotiated medium. In binary media, it writes
// Status and discovery documents; show writes objects.
func (q *request) json(code int, value []byte, o wire.Output) error {
	value = bytes.TrimSuffix(value, []byte("\n"))
	q.audited.sends(value)
	binary := o.Binary()
	if binary != nil || o.Media == wire.YAML || q.pretty(o) {
		b, err := q.encode(value, o)
		if err != nil {
			return err
		}
		media := jsonType
		switch {
		case binary != nil:
			media = binary.ContentType
		case o.Media == wire.YAML:
			media = yamlType
		}
		return q.send(code, media, b)
	}
	if len(value) > q.h.c.Limits.WriteBatchBytes {
		return q.send(code, jsonType, value, newline)
	}
	// One write of a copy is cheaper than two writes, one of them for a newline.
	room := q.h.buffer(len(value) + 1)
	whole := append(append((*room)[:0], value...), '\n')
	err := q.send(code, jsonType, whole)
	if err == nil { // otherwise the connection may still use the bytes
		q.h.giveBack(room, whole)
	}
	return err
}

// encode returns a document, given as JSON, in a representation.
func (q *request) encode(value []byte, o wire.Output) ([]byte, error) {
	switch binary := o.Binary(); {
	case binary != nil:
		return binary.Append(nil, value)
	case o.Media == wire.YAML:
		return wire.ToYAML(value)
	case q.pretty(o):
		return wire.Indent(value)
	}
	return value, nil
}

// status responds with a Status.
func (q *request) status(code int, s *metav1.Status, o wire.Output) {
	q.audited.responds(s)
	if err := q.json(code, encodeStatus(s), o); err != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
}

// text responds with plain text.
func (q *request) text(code int, body string) {
	q.header()["X-Content-Type-Options"] = noSniff
	if err := q.send(code, plainText, []byte(body)); err != nil {
		panic(http.ErrAbortHandler)
	}
}

var newline = []byte("\n")

// send writes a whole response, in one part or several.
func (q *request) send(code int, contentType []string, body ...[]byte) error {
	size := 0
	for _, part := range body {
		size += len(part)
	}
	if err := q.holdResponse(size); err != nil {
		return err
	}
	h := q.header()
	h["Content-Type"] = contentType
	if size > q.h.c.Limits.CompressAbove && q.acceptsGzip() {
		return q.sendCompressed(code, slices.Concat(body...))
	}
	q.length[0] = strconv.Itoa(size)
	h["Content-Length"] = q.length[:]
	q.writeHeader(code)
	q.auditComplete()
	return q.writeLast(body...)
}

// sendCompressed writes a whole response in gzip.
func (q *request) sendCompressed(code int, body []byte) error {
	q.compressed()
	q.writeHeader(code)
	q.auditComplete()
	var m deflate.Member
	return q.writeLast(m.End(m.Add(m.Begin(nil), deflate.Compress(body))))
}

func (q *request) compressed() {
	h := q.header()
	h["Content-Encoding"] = gzipEncoding
	if other := h["Vary"]; len(other) > 0 {
		h["Vary"] = slices.Concat(other, varyEncoding)
	} else {
		h["Vary"] = varyEncoding
	}
}

func (q *request) acceptsGzip() bool {
	lines := q.r.Header["Accept-Encoding"]
	return len(lines) > 0 && wire.AcceptsGzip(strings.Join(lines, ","))
}

// leftoverTimeout bounds how long net/http reads a body that the handler has not read.
const leftoverTimeout = time.Second

// writeHeader starts the response.
func (q *request) writeHeader(code int) {
	q.wrote, q.code = true, code
	q.auditHeaders(code)
	if q.r.ProtoMajor == 1 && q.r.ContentLength != 0 && !q.bodyRead {
		// net/http reads the rest of the body before it responds.
		_ = http.NewResponseController(q.w).SetReadDeadline(time.Now().Add(leftoverTimeout))
	}
	q.w.WriteHeader(code)
	q.sendHeaders(code)
}

// sendHeaders sends the headers of a response without a body. The request is reused after it, and
// the headers share its memory.
func (q *request) sendHeaders(code int) {
	if code == http.StatusNoContent || code == http.StatusNotModified {
		_ = http.NewResponseController(q.w).Flush()
	}
}

// write writes a part of the response. If the client does not read it in time, the response is
// broken off.
func (q *request) write(b []byte) error {
	return q.outside(false, len(b), func() error { return q.writeOut(b) })
}

// writeLast writes the end of the response. The request takes no seat again.
func (q *request) writeLast(parts ...[]byte) error {
	bytes := 0
	for _, b := range parts {
		bytes += len(b)
	}
	return q.outside(true, bytes, func() error {
		for _, b := range parts {
			if err := q.writeOut(b); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeOut writes a part of the response, whether or not the request has its seat.
func (q *request) writeOut(b []byte) error {
	q.limitWrite()
	n, err := q.w.Write(b)
	q.bytes += int64(n)
	if err == http.ErrBodyNotAllowed { // HEAD
		err = nil
	}
	return err
}

// limitWrite bounds how long the next write may wait for the client: WriteTimeout, and
// after the first write at most the time that is left for the request.
func (q *request) limitWrite() {
	d := q.h.c.Limits.WriteTimeout
	if !q.deadline.IsZero() && q.bytes > 0 {
		d = max(1, min(d, time.Until(q.deadline)))
	}
	q.setWriteTimeout(d)
}

func (q *request) setWriteTimeout(d time.Duration) {
	if w, ok := q.w.(interface{ SetWriteTimeout(d time.Duration) }); ok { // HTTP/2
		w.SetWriteTimeout(d)
		return
	}
	_ = http.NewResponseController(q.w).SetWriteDeadline(time.Now().Add(d))
}

// countingWriter is the response of another handler. It counts bytes and notes the status.
type countingWriter struct {
	http.ResponseWriter
	q *request
}

// delegate calls another handler for the response. bytes estimates the memory that it holds.
func (q *request) delegate(h http.Handler, bytes int) error {
	if err := q.holdResponse(bytes); err != nil {
		return err
	}
	h.ServeHTTP(&countingWriter{q.w, q}, q.r)
	if q.code == 0 {
		q.code = http.StatusOK
	}
	return nil
}

// WriteHeader implements http.ResponseWriter.
func (c *countingWriter) WriteHeader(code int) {
	if !c.q.wrote {
		c.q.wrote, c.q.code = true, code
		c.q.auditHeaders(code)
	}
	c.ResponseWriter.WriteHeader(code)
	c.q.sendHeaders(code)
}

// Write implements http.ResponseWriter.
func (c *countingWriter) Write(b []byte) (int, error) {
	if !c.q.wrote {
		c.q.wrote, c.q.code = true, http.StatusOK
		c.q.auditHeaders(http.StatusOK)
	}
	var n int
	err := c.q.outside(false, len(b), func() (err error) {
		c.q.limitWrite()
		n, err = c.ResponseWriter.Write(b)
		return err
	})
	c.q.bytes += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (c *countingWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
