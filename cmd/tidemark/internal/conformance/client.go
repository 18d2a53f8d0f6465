package conformance

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Limits on the responses of a server, which may be broken or hostile.
const (
	maxBodyBytes  = 16 << 20
	maxEventBytes = 8 << 20
	// keptBytes of a body are kept to be shown.
	keptBytes = 4 << 10
	// keptExchanges is how many requests a failure shows.
	keptExchanges = 4
)

// endpoint is where a server is, and how to be let in.
type endpoint struct {
	base   *url.URL
	config *rest.Config
	hidden secrets
}

func newEndpoint(config *rest.Config) (*endpoint, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("the server is %q: %w", config.Host, err)
	}
	return &endpoint{base: base, config: config}, nil
}

// conn is a connection of its own: requests through two of them may reach two
// servers behind one address.
type conn struct {
	http.RoundTripper
	close func()
}

func (e *endpoint) dial() (*conn, error) {
	tc, err := e.config.TransportConfig()
	if err != nil {
		return nil, err
	}
	var lowest http.RoundTripper = e.config.Transport
	end := func() {}
	if lowest == nil {
		h := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, DisableCompression: true, MaxResponseHeaderBytes: 1 << 20}
		if h.TLSClientConfig, err = transport.TLSConfigFor(tc); err != nil {
			return nil, err
		}
		if tc.Proxy != nil {
			h.Proxy = tc.Proxy
		}
		if tc.DialHolder != nil {
			h.DialContext = tc.DialHolder.Dial
		}
		lowest, end = h, h.CloseIdleConnections
	}
	rt, err := transport.HTTPWrappersForConfig(tc, spy{lowest, &e.hidden})
	if err != nil {
		return nil, err
	}
	return &conn{rt, end}, nil
}

// secrets are texts that were sent to be let in. A server that repeats them does
// not get them into a report.
type secrets struct {
	mu   sync.Mutex
	seen []string // guarded by mu
}

// maxSecrets bounds how many are remembered: tokens are renewed.
const maxSecrets = 64

func (s *secrets) add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text != "" && !slices.Contains(s.seen, text) && len(s.seen) < maxSecrets {
		s.seen = append(s.seen, text)
	}
}

func (s *secrets) hide(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range s.seen {
		text = strings.ReplaceAll(text, secret, "(hidden)")
	}
	return text
}

// spy records the headers that plugins and files put into a request last.
type spy struct {
	http.RoundTripper
	hidden *secrets
}

func (s spy) RoundTrip(req *http.Request) (*http.Response, error) {
	if scheme, credentials, ok := strings.Cut(req.Header.Get("Authorization"), " "); ok && scheme != "" {
		s.hidden.add(strings.TrimSpace(credentials))
	}
	return s.RoundTripper.RoundTrip(req)
}

// request is one to be sent.
type request struct {
	method, path, query string
	accept              string // empty: JSON
	contentType         string // empty: JSON where there is a body
	body                []byte
	conn                *conn   // nil: the check's own
	makes               created // the object that a POST makes, if any
}

// response is a complete response.
type response struct {
	x      *exchange
	code   int
	header http.Header
	body   []byte
}

// exchange is the record of a request and its response.
type exchange struct {
	request request
	url     string

	mu     sync.Mutex
	code   int
	header http.Header
	kept   []byte // the beginning of the body
	length int
	err    error
}

func (x *exchange) keep(b []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.length += len(b)
	x.kept = append(x.kept, b[:min(len(b), keptBytes-len(x.kept))]...)
}

func (x *exchange) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.err = err
}

// journal keeps the last exchanges. It is safe for concurrent use.
type journal struct {
	mu   sync.Mutex
	last []*exchange // guarded by mu
}

func (j *journal) add(x *exchange) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.last) == keptExchanges {
		j.last = slices.Delete(j.last, 0, 1)
	}
	j.last = append(j.last, x)
}

// show returns the exchanges as texts.
func (j *journal) show(hidden *secrets) []Exchange {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []Exchange
	for _, x := range j.last {
		all = append(all, Exchange{Request: hidden.hide(x.curl()), Response: hidden.hide(x.response())})
	}
	return all
}

// open sends a request, and returns when the head of the response is there.
func (e *endpoint) open(ctx context.Context, c *conn, r request, j *journal) (*http.Response, *exchange, error) {
	u := *e.base
	u.Path = strings.TrimSuffix(u.Path, "/") + r.path
	u.RawQuery = r.query
	x := &exchange{request: r, url: u.String()}
	j.add(x)
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, x, err
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept", r.acceptOrJSON())
	if kind := r.contentTypeOrJSON(); kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := c.RoundTrip(req)
	if err != nil {
		x.fail(err)
		return nil, x, err
	}
	x.mu.Lock()
	x.code, x.header = resp.StatusCode, resp.Header
	x.mu.Unlock()
	return resp, x, nil
}

// userAgent is also the name of the field manager.
const userAgent = "tidemark-conformance"

// send sends a request, and reads its response to the end.
func (e *endpoint) send(ctx context.Context, c *conn, r request, j *journal) (*response, error) {
	resp, x, err := e.open(ctx, c, r, j)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBodyBytes+1))
	x.keep(body)
	if err == nil && len(body) > maxBodyBytes {
		err = errors.New("the response is larger than 16 MiB")
	}
	if err != nil {
		x.fail(err)
		return nil, err
	}
	return &response{x: x, code: resp.StatusCode, header: resp.Header, body: body}, nil
}

const (
	asJSON     = "application/json"
	asYAML     = "application/yaml"
	asProtobuf = "application/vnd.kubernetes.protobuf"
	asCBOR     = "application/cbor"
)

func (r request) acceptOrJSON() string {
	if r.accept == "" {
		return asJSON
	}
	return r.accept
}

func (r request) contentTypeOrJSON() string {
	if r.contentType == "" && r.body != nil {
		return asJSON
	}
	return r.contentType
}

// curl formats the request as a curl command. The reader supplies the token.
func (x *exchange) curl() string {
	r := x.request
	var b strings.Builder
	text := printable(r.body) == string(r.body)
	if !text {
		fmt.Fprintf(&b, "base64 -d <<<%s | ", base64.StdEncoding.EncodeToString(r.body))
	}
	fmt.Fprintf(&b, "curl -k -X %s -H \"Authorization: Bearer $TOKEN\" -H %s", r.method, quote("Accept: "+r.acceptOrJSON()))
	if kind := r.contentTypeOrJSON(); kind != "" {
		fmt.Fprintf(&b, " -H %s", quote("Content-Type: "+kind))
	}
	switch {
	case !text:
		b.WriteString(" --data-binary @-")
	case r.body != nil:
		fmt.Fprintf(&b, " --data-binary %s", quote(string(r.body)))
	}
	fmt.Fprintf(&b, " %s", quote(x.url))
	return b.String()
}

// quote writes a word for a shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// shownHeaders are those that the documents speak of.
var shownHeaders = []string{"Content-Type", "Warning", "Retry-After"}

func (x *exchange) response() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var b strings.Builder
	if x.code > 0 {
		fmt.Fprintf(&b, "%d %s\n", x.code, http.StatusText(x.code))
		for _, name := range shownHeaders {
			for _, value := range x.header.Values(name) {
				fmt.Fprintf(&b, "%s: %.1000s\n", name, value)
			}
		}
		b.WriteByte('\n')
	}
	b.WriteString(printable(x.kept))
	if x.length > len(x.kept) {
		fmt.Fprintf(&b, "\n... (%d bytes)", x.length)
	}
	if x.err != nil {
		fmt.Fprintf(&b, "\n(%v)", x.err)
	}
	return strings.TrimSpace(b.String())
}

// printable replaces characters that are not allowed on a terminal or in XML.
func printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r == '\uFFFD' || r == '\uFFFE' || r == '\uFFFF' || r >= 0x80 && r < 0xa0 {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(string(b), "."))
}
