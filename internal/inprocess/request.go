package inprocess

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// userAgent is the User-Agent of a client that sets none, as of net/http.
const userAgent = "Go-http-client/2.0"

// request returns a request as the handler gets it, without its body and its context's
// cancellation. It shares nothing with the client's request that a handler may change.
func (t *Transport) request(r *http.Request) (*http.Request, error) {
	u, err := t.target(r)
	if err != nil {
		return nil, err
	}
	h, err := fields(r.Header)
	if err != nil {
		return nil, err
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{userAgent}
	} else if h.Get("User-Agent") == "" {
		delete(h, "User-Agent") // the client wants none
	}
	upgrade := upgrades(h)
	to := (&http.Request{
		Method: r.Method, URL: u, RequestURI: r.URL.RequestURI(), Host: r.Host, Header: h,
		Proto: "HTTP/2.0", ProtoMajor: 2, RemoteAddr: clientAddress, TLS: t.state, Body: http.NoBody,
	}).WithContext(t.context)
	if upgrade {
		to.Proto, to.ProtoMajor, to.ProtoMinor = "HTTP/1.1", 1, 1
	} else {
		for _, name := range ofConnections {
			delete(h, name)
		}
	}
	if to.Method == "" {
		to.Method = http.MethodGet
	}
	if to.Host == "" {
		to.Host = r.URL.Host
	}
	switch to.ContentLength = length(r); {
	case upgrade && to.ContentLength != 0:
		return nil, errors.New("inprocess: a request for an upgrade has a body")
	case to.ContentLength > 0 || to.ContentLength == 0 && sendsZero(to.Method):
		h["Content-Length"] = []string{strconv.FormatInt(to.ContentLength, 10)}
	}
	for name := range r.Trailer {
		if to.Trailer == nil {
			to.Trailer = http.Header{}
		}
		to.Trailer[http.CanonicalHeaderKey(name)] = nil
	}
	return to, nil
}

// ofConnections are the headers that belong to a connection, and are absent from requests of HTTP/2.
var ofConnections = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Upgrade"}

// target checks the line of a request, and returns its URL as a handler sees it.
func (t *Transport) target(r *http.Request) (*url.URL, error) {
	switch {
	case r.URL == nil:
		return nil, errors.New("inprocess: the request has no URL")
	case r.URL.Scheme != "https" && r.URL.Scheme != "http":
		return nil, fmt.Errorf("inprocess: unsupported protocol scheme %q", r.URL.Scheme)
	case r.URL.Host == "":
		return nil, errors.New("inprocess: the request's URL has no host")
	case t.s.Host != "" && !strings.EqualFold(r.URL.Host, t.s.Host):
		return nil, fmt.Errorf("inprocess: the request is for %q: this transport reaches %q alone", r.URL.Host, t.s.Host)
	case r.Method == http.MethodConnect:
		return nil, errors.New("inprocess: CONNECT needs a connection")
	case r.Method != "" && !httpguts.ValidHeaderFieldName(r.Method): // the same characters
		return nil, fmt.Errorf("inprocess: invalid method %q", r.Method)
	case r.Host != "" && !httpguts.ValidHostHeader(r.Host):
		return nil, fmt.Errorf("inprocess: invalid Host %q", r.Host)
	}
	uri := r.URL.RequestURI()
	if uri == "*" && r.Method == http.MethodOptions {
		return &url.URL{Path: "*"}, nil
	}
	return url.ParseRequestURI(uri)
}

// fields returns the headers of a request as a server sees them.
func fields(from http.Header) (http.Header, error) {
	n := 0
	for _, values := range from {
		n += len(values)
	}
	all := make([]string, 0, n+2) // one allocation for the values
	to := make(http.Header, len(from)+2)
	for name, values := range from {
		key := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case key == "Host", key == "Content-Length", key == "Transfer-Encoding", key == "Trailer":
			continue // the fields of http.Request have them
		case !httpguts.ValidHeaderFieldName(name):
			return nil, fmt.Errorf("inprocess: invalid header field name %q", name)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return nil, fmt.Errorf("inprocess: invalid header field value for %q", name) // the value may be a secret
			}
		}
		if len(values) == 0 {
			continue
		}
		if to[key] != nil { // another spelling
			to[key] = append(to[key], values...)
			continue
		}
		begin := len(all)
		for _, v := range values {
			all = append(all, strings.Trim(v, " \t"))
		}
		to[key] = all[begin:len(all):len(all)]
	}
	return to, nil
}

// size is about how many bytes the headers of a request have on the wire.
func size(r *http.Request) int {
	n := len(r.Method) + len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + 4
		}
	}
	return n
}

// upgrades reports whether a request asks for another protocol.
func upgrades(h http.Header) bool {
	return h.Get("Upgrade") != "" && httpguts.HeaderValuesContainsToken(h["Connection"], "Upgrade")
}

// length is the length of a request's body, -1 if it is unknown.
func length(r *http.Request) int64 {
	switch {
	case r.Body == nil, r.Body == http.NoBody:
		return 0
	case r.ContentLength > 0:
		return r.ContentLength
	}
	return -1
}

// sendsZero reports whether net/http sends a Content-Length of zero.
func sendsZero(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

// requestBody is the body of a request for the handler.
type requestBody struct{ x *exchange }

// Read implements io.Reader.
func (b requestBody) Read(p []byte) (int, error) { return b.x.upload.read(p) }

// Close implements io.Closer.
func (b requestBody) Close() error {
	b.x.upload.cut(http.ErrBodyReadAfterClose, errUnread)
	return nil
}

// errUnread ends the sending of a body that the handler does not read.
var errUnread = errors.New("inprocess: the handler does not read the body")

// send sends the body of the client's request to the handler. It has a goroutine of its own, because
// a read of the client's body may wait. If the handler does not need the rest, closeBody ends that read.
func (x *exchange) send(r *http.Request, to *http.Request) {
	defer x.closeBody()
	sent, err := x.copyBody(r.Body, to.ContentLength)
	switch {
	case x.upload.failed() != nil: // the handler needs no more
		return
	case err != nil:
	case to.ContentLength >= 0 && sent < to.ContentLength:
		err = fmt.Errorf("inprocess: the body has %d bytes, and the request's ContentLength is %d", sent, to.ContentLength)
	default:
		for name, values := range r.Trailer {
			if name = http.CanonicalHeaderKey(name); to.Trailer != nil {
				to.Trailer[name] = values
			}
		}
		x.upload.finish(io.EOF)
		return
	}
	x.end(err)
}

// copyBody copies a body, and returns an error if it is longer than declared (-1: not declared).
func (x *exchange) copyBody(body io.Reader, declared int64) (sent int64, err error) {
	size := int64(32 << 10)
	if declared >= 0 {
		size = min(size, declared+1)
	}
	for buf := make([]byte, size); ; {
		n, err := body.Read(buf)
		if declared >= 0 && sent+int64(n) > declared {
			return sent, fmt.Errorf("inprocess: the body has more bytes than the request's ContentLength, %d", declared)
		}
		if n > 0 {
			if _, err := x.upload.write(buf[:n]); err != nil {
				return sent, err
			}
			sent += int64(n)
		}
		if errors.Is(err, io.EOF) {
			return sent, nil
		}
		if err != nil {
			return sent, err
		}
	}
}
