package http2

import (
	"context"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
)

// newRequest returns a request without method, URL and headers.
func (s *stream) newRequest() *http.Request {
	ctx, cancel := context.WithCancel(s.c.ctx)
	s.cancel = cancel
	r := (&http.Request{}).WithContext(ctx)
	r.Proto, r.ProtoMajor = "HTTP/2.0", 2
	r.TLS, r.RemoteAddr = s.c.state, s.c.remote
	r.Body = http.NoBody
	return r
}

// target has the pseudo-headers of a request.
type target struct{ method, scheme, authority, path string }

// set sets a pseudo-header. It reports false if the field is unknown, invalid or a duplicate.
func (t *target) set(f hpack.HeaderField) bool {
	var to *string
	switch f.Name {
	case ":method":
		to = &t.method
	case ":scheme":
		to = &t.scheme
	case ":authority":
		to = &t.authority
	case ":path":
		to = &t.path
	default:
		return false
	}
	if *to != "" || !httpguts.ValidHeaderFieldValue(f.Value) {
		return false
	}
	*to = f.Value
	return true
}

// url returns the URL of the target, nil if it is invalid.
func (t *target) url() *url.URL {
	if t.method == http.MethodConnect {
		if t.scheme != "" || t.path != "" || t.authority == "" {
			return nil
		}
		return &url.URL{Host: t.authority}
	}
	if t.scheme != "https" && t.scheme != "http" || t.path == "" {
		return nil
	}
	if t.path[0] != '/' && (t.path != "*" || t.method != http.MethodOptions) {
		return nil
	}
	u, err := url.ParseRequestURI(t.path)
	if err != nil {
		return nil
	}
	return u
}

// newHeader returns fields as headers, nil if they are malformed.
func newHeader(fields []hpack.HeaderField) http.Header {
	h := make(http.Header, len(fields))
	values := make([]string, 0, len(fields)) // one allocation for most of them
	var cookies []string
	for _, f := range fields {
		if f.IsPseudo() || !validField(f) {
			return nil
		}
		key := textproto.CanonicalMIMEHeaderKey(f.Name)
		switch before := h[key]; {
		case before == nil:
			values = append(values, f.Value)
			h[key] = values[len(values)-1 : len(values) : len(values)]
		case key == "Cookie":
			if cookies == nil {
				cookies = append(cookies, before[0])
			}
			cookies = append(cookies, f.Value)
		default:
			h[key] = append(before, f.Value)
		}
	}
	if cookies != nil { // RFC 9113, 8.2.3
		h["Cookie"][0] = strings.Join(cookies, "; ")
	}
	return h
}

// validField reports whether a request may have the field: RFC 9113, 8.2.
func validField(f hpack.HeaderField) bool {
	switch f.Name {
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		return false
	case "te":
		return f.Value == "trailers"
	}
	for i := range len(f.Name) {
		if c := f.Name[i]; 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return httpguts.ValidHeaderFieldName(f.Name) && httpguts.ValidHeaderFieldValue(f.Value)
}

// request returns the request of the current header block, nil if it is malformed (RFC 9113,
// 8.1.1).
func (c *conn) request(s *stream) *http.Request {
	var t target
	fields := c.fields
	for len(fields) > 0 && fields[0].IsPseudo() {
		if !t.set(fields[0]) {
			return nil
		}
		fields = fields[1:]
	}
	h, u := newHeader(fields), t.url()
	if h == nil || u == nil || !httpguts.ValidHeaderFieldName(t.method) || !s.declare(h["Content-Length"]) {
		return nil
	}
	r := s.newRequest()
	r.Method, r.URL, r.RequestURI, r.Header, r.Host = t.method, u, t.path, h, t.authority
	if t.method == http.MethodConnect {
		r.RequestURI = t.authority
	}
	if host := h["Host"]; len(host) > 0 {
		if r.Host == "" {
			r.Host = host[0]
		}
		delete(h, "Host")
	}
	s.head = t.method == http.MethodHead
	r.ContentLength = s.declared
	if !s.bodyEnded {
		r.Body = (*body)(s)
		if expect := h["Expect"]; len(expect) > 0 && strings.EqualFold(expect[0], "100-continue") {
			s.proceed = true
			delete(h, "Expect")
		}
	}
	return r
}

// declare sets the length of the body from Content-Length. It reports false if that is
// invalid.
func (s *stream) declare(lengths []string) bool {
	for _, text := range lengths {
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil || s.declared >= 0 && int64(n) != s.declared {
			return false
		}
		s.declared = int64(n)
	}
	return true
}

// tooLarge responds to a request whose headers are too large.
var tooLarge = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	const text = "The request's headers are too large.\n"
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(text))}
	w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
	_, _ = io.WriteString(w, text)
})
