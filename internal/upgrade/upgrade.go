// Package upgrade forwards a request to a backend: as a plain request, or as one that upgrades its
// connection (WebSocket, SPDY). An upgraded connection is copied byte for byte, with a pair of goroutines and
// small buffers, until one side ends.
//
// The package protects the server from its clients and backends: headers of the hop are removed in both
// directions, a redirect is never followed, after a request for an upgrade anything but 101 is a plain
// response that ends the connection of the client, and nothing is collected without a limit.
package upgrade

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
)

// Proxy forwards one request. Its zero value is not usable: Target is required, and Transport or Dial.
type Proxy struct {
	// Target is the URL at the backend: scheme (http or https), host, path and query.
	Target *url.URL
	// Transport sends requests that ask for no upgrade. It must not follow redirects.
	Transport http.RoundTripper
	// Dial connects to the backend for an upgrade: for https with TLS, and without HTTP/2. See Dial for an
	// implementation. The connection is closed by Serve. Nil: upgrades are refused.
	Dial func(ctx context.Context, target *url.URL) (net.Conn, error)
	// Prepare changes the request to the backend before it is sent: it is a copy without the headers of the hop,
	// whose Host is that of the client's request. Its URL must stay. Nil: nothing is changed.
	Prepare func(*http.Request)
	// Prefix is the path of the proxy in front of Target.Path, as the client knows it. In responses that are not
	// upgrades, a Location of the backend, and links in HTML, get it. The backend finds the whole path in
	// X-Forwarded-Uri. Empty: nothing is rewritten.
	Prefix string
	// RefuseRedirects makes a redirect of the backend a 502 without a Location.
	RefuseRedirects bool
}

// Unreachable is the error of a plain request that the backend did not respond to.
type Unreachable struct{ Err error }

func (e *Unreachable) Error() string { return "error trying to reach service: " + e.Err.Error() }

// Unwrap returns the error of the transport.
func (e *Unreachable) Unwrap() error { return e.Err }

// IsUpgrade reports whether a request asks for an upgrade of its connection.
func IsUpgrade(r *http.Request) bool { return protocol(r.Header) != "" }

// protocol returns the protocol to which headers upgrade a connection; empty: they do not.
func protocol(h http.Header) string {
	if !httpguts.HeaderValuesContainsToken(h["Connection"], "Upgrade") {
		return ""
	}
	return h.Get("Upgrade")
}

// Serve forwards the request and its response. It ends when the response is complete, an upgraded connection
// ends, or the context of the request does. An error means that nothing was written, and that the caller has to respond.
// If a response breaks off, Serve panics with http.ErrAbortHandler. w must allow Hijack for upgrades, directly or through
// Unwrap.
func (p *Proxy) Serve(w http.ResponseWriter, r *http.Request) error {
	if IsUpgrade(r) {
		return p.upgrade(w, r)
	}
	return p.plain(w, r)
}

// outgoing returns the request to the backend.
func (p *Proxy) outgoing(r *http.Request) *http.Request {
	out := r.Clone(r.Context())
	target := *p.Target
	out.URL, out.RequestURI, out.Close = &target, "", false
	trailers := httpguts.HeaderValuesContainsToken(r.Header["Te"], "trailers")
	removeHop(out.Header)
	if trailers {
		out.Header["Te"] = []string{"trailers"}
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = []string{""} // otherwise net/http adds its own
	}
	appendForwarded(out.Header, r.RemoteAddr)
	if p.Prefix != "" {
		out.Header["X-Forwarded-Uri"] = []string{joinPath(p.Prefix, target.EscapedPath())}
	}
	if p.Prepare != nil {
		p.Prepare(out)
	}
	return out
}

// hop are the headers that concern one connection.
var hop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// removeHop removes the headers of the hop, and those that the header Connection names.
func removeHop(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name != "" {
				h.Del(name)
			}
		}
	}
	for _, name := range hop {
		delete(h, name)
	}
}

// appendForwarded adds the address of the client to those of the proxies before.
func appendForwarded(h http.Header, remote string) {
	address, _, err := net.SplitHostPort(remote)
	if err != nil {
		return
	}
	all := append(h["X-Forwarded-For"][:len(h["X-Forwarded-For"]):len(h["X-Forwarded-For"])], address)
	h["X-Forwarded-For"] = []string{strings.Join(all, ", ")}
}

// plain forwards a request that asks for no upgrade.
func (p *Proxy) plain(w http.ResponseWriter, r *http.Request) error {
	out := p.outgoing(r)
	if r.ContentLength == 0 {
		out.Body = nil
	}
	if out.Body != nil {
		body := &requestBody{from: out.Body}
		out.Body = body
		defer body.end()
	}
	resp, err := p.Transport.RoundTrip(out)
	if err != nil {
		return &Unreachable{err}
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return fmt.Errorf("the backend switched to %.40q, which was not requested", resp.Header.Get("Upgrade"))
	}
	removeHop(resp.Header)
	if p.RefuseRedirects && isRedirect(resp) {
		const text = "the backend attempted to redirect this request, which is not permitted"
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, text)
		return nil
	}
	if p.Prefix != "" {
		if err := p.rewrite(out, resp); err != nil {
			return err
		}
	}
	for _, name := range cors {
		delete(resp.Header, name)
	}
	respond(w, resp)
	return nil
}

// cors are the headers by which a backend would allow pages of other origins to use the API.
var cors = []string{"Access-Control-Allow-Credentials", "Access-Control-Allow-Headers", "Access-Control-Allow-Methods", "Access-Control-Allow-Origin"}

func isRedirect(resp *http.Response) bool {
	return resp.StatusCode >= 300 && resp.StatusCode <= 399 && resp.Header.Get("Location") != ""
}

// respond writes a response. What the backend has sent so far is flushed.
func respond(w http.ResponseWriter, resp *http.Response) {
	h := w.Header()
	for name, values := range resp.Header {
		h[name] = append(h[name], values...)
	}
	for name := range resp.Trailer {
		h.Add("Trailer", name)
	}
	w.WriteHeader(resp.StatusCode)
	client := http.NewResponseController(w)
	if resp.ContentLength < 0 { // the body may begin much later
		if err := client.Flush(); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	room := buffers.Get().(*[buffer]byte)
	defer buffers.Put(room)
	for {
		n, err := resp.Body.Read(room[:])
		if n > 0 {
			if _, failed := w.Write(room[:n]); failed != nil {
				panic(http.ErrAbortHandler)
			}
			if err == nil {
				if failed := client.Flush(); failed != nil {
					panic(http.ErrAbortHandler)
				}
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the client must not take a part for the whole
		}
	}
	for name, values := range resp.Trailer {
		h[name] = values
	}
}

// buffer is the size of a buffer for one direction: that of a record of TLS.
const buffer = 16 << 10

var buffers = sync.Pool{New: func() any { return new([buffer]byte) }}

// requestBody is the body of a request. A transport may read it until end is called, and not after that.
type requestBody struct {
	mu    sync.Mutex
	from  io.Reader
	ended bool // guarded by mu
}

// Read implements io.Reader.
func (b *requestBody) Read(to []byte) (int, error) {
	b.mu.Lock()
	ended := b.ended
	b.mu.Unlock()
	if ended {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.from.Read(to)
}

// Close implements io.Closer. The server closes the body of its request itself.
func (b *requestBody) Close() error { return nil }

func (b *requestBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}
