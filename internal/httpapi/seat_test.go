package httpapi_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/http2"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// editor is the header of a user who may do everything and is not exempt from limits.
const editor = "Authorization: Bearer editor"

// closed is an HTTP/2 connection whose client takes no byte of any response's body.
type closed struct {
	t      *testing.T
	conn   *tls.Conn
	framer *h2.Framer
	block  bytes.Buffer
	hpack  *hpack.Encoder
	next   uint32
}

func ourHTTP2(t testing.TB) *http2.Server {
	return &http2.Server{
		MaxStreams: 250, HeaderBytes: 1 << 20, UploadBytes: 256 << 10, IdleTimeout: time.Minute, WriteTimeout: time.Minute,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// dialClosed opens one.
func (s *server) dialClosed(t *testing.T) *closed {
	t.Helper()
	conn, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{RootCAs: s.client.Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com", NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &closed{t: t, conn: conn, framer: h2.NewFramer(conn, conn), next: 1}
	c.hpack = hpack.NewEncoder(&c.block)
	io.WriteString(conn, h2.ClientPreface)
	if err := c.framer.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	return c
}

// send sends a request, with a token unless that is empty, and with the beginning of a
// body unless that is empty.
func (c *closed) send(method, path, token, body string) {
	c.t.Helper()
	c.block.Reset()
	fields := [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "example.com"}, {":path", path}, {"user-agent", "closed"}}
	if token != "" {
		fields = append(fields, [2]string{"authorization", "Bearer " + token})
	}
	if body != "" {
		fields = append(fields, [2]string{"content-type", "application/json"})
	}
	for _, f := range fields {
		c.hpack.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	err := c.framer.WriteHeaders(h2.HeadersFrameParam{StreamID: c.next, BlockFragment: c.block.Bytes(), EndHeaders: true, EndStream: body == ""})
	if err == nil && body != "" {
		err = c.framer.WriteData(c.next, false, []byte(body))
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.next += 2
}

// statuses reads the heads of the responses to n requests.
func (c *closed) statuses(n int) (all []string) {
	c.t.Helper()
	d := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			all = append(all, f.Value)
		}
	})
	for len(all) < n {
		f, err := c.framer.ReadFrame()
		if err != nil {
			c.t.Fatalf("after %v: %v", all, err)
		}
		if f, ok := f.(*h2.HeadersFrame); ok {
			d.Write(f.HeaderBlockFragment())
		}
	}
	return all
}

// TestClosedWindows: clients that read no byte of their responses do not block other clients,
// whether they are authorized or not.
func TestClosedWindows(t *testing.T) {
	for _, row := range []struct{ what, method, path, token, want string }{
		{"anonymous reads", "GET", maps, "", "403"},
		{"wrong tokens", "GET", maps, "wrong", "401"},
		{"anonymous writes", "DELETE", maps + "/a", "", "403"},
		{"reads without rights", "GET", maps, "bob", "403"},
		{"reads of objects", "GET", maps + "/a", "editor", "200"},
		{"lists", "GET", maps, "editor", "200"},
		{"dry-runs", "DELETE", maps + "/a?dryRun=All", "editor", "200"},
		{"discovery", "GET", "/apis", "editor", "200"},
		{"metrics", "GET", "/metrics", "editor", "200"},
	} {
		t.Run(row.what, func(t *testing.T) {
			s := start(t, wiring{config: func(c *httpapi.Config) { c.Limits.InFlight, c.Limits.MutatingInFlight, c.NoFairness = 1, 1, true }})
			s.create(t, "default", "a", 100<<10)
			c := s.dialClosed(t)
			for range 5 {
				c.send(row.method, row.path, row.token, "")
				if got := c.statuses(1); got[0] != row.want { // one after the other: each has its seat first
					t.Fatalf("the stalled request: %s, want %s", got, row.want)
				}
				if row.want != "200" {
					c = s.dialClosed(t) // the server ends connections of clients without rights
				}
				s.seatsReturn(t)
			}
			if a := s.do(t, "GET", maps+"/a", "", editor); a.code != 200 {
				t.Errorf("a read at the same time: %d", a.code)
			}
			if a := s.do(t, "DELETE", maps+"/a", "", editor); a.code != 200 {
				t.Errorf("a write at the same time: %d", a.code)
			}
		})
	}
}

// seatsReturn waits until stalled requests have given their seats back.
func (s *server) seatsReturn(t *testing.T) {
	t.Helper()
	const metric = "\napiserver_current_inflight_requests{request_kind="
	await.True(t, "the seats of stalled requests", func() bool {
		text := s.do(t, "GET", "/metrics", "").body // which executes itself
		return strings.Contains(text, metric+`"readOnly"} 1`) && strings.Contains(text, metric+`"mutating"} 0`)
	})
}

// waiting returns how many bytes the requests hold that wait for their clients.
func (s *server) waiting(t *testing.T) int64 {
	t.Helper()
	_, rest, ok := strings.Cut(s.do(t, "GET", "/metrics", "").body, "\ntidemark_waiting_requests_bytes ")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(line, 64)
	if !ok || err != nil {
		t.Fatalf("the metric: %q, %v", line, err)
	}
	return int64(n)
}

// TestUnfinishedBodies: clients that do not finish their bodies do not block other clients.
func TestUnfinishedBodies(t *testing.T) {
	s := start(t, wiring{config: func(c *httpapi.Config) { c.Limits.MutatingInFlight, c.NoFairness = 1, true }})
	c := s.dialClosed(t)
	for before := s.waiting(t); before < 20<<15; { // until about 20 wait
		c.send("POST", maps, "editor", `{"metadata"`)
		last := before // each has the only seat until it waits
		await.True(t, "a request that waits", func() bool { before = s.waiting(t); return before != last })
	}
	for i := range 20 {
		s.create(t, "default", fmt.Sprint("a", i), 10)
	}
}

// TestUnfinishedBodyOfMount: a client that does not finish the body of a request to a mounted handler
// does not block other clients. The handler gets the whole body, within the limit.
func TestUnfinishedBodyOfMount(t *testing.T) {
	got := make(chan string, 10)
	mounted := httpapi.Mount{Path: "/mounted", BodyBytes: 100, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		got <- fmt.Sprint(string(b), err)
	})}
	s := start(t, wiring{config: func(c *httpapi.Config) {
		c.Limits.MutatingInFlight, c.NoFairness, c.Mounts = 1, true, []httpapi.Mount{mounted}
	}})
	c := s.dialClosed(t)
	before := s.waiting(t)
	c.send("POST", "/mounted", "editor", "one ")
	// It gives its seat back while it waits for its body.
	await.True(t, "what a waiting request counts", func() bool { return s.waiting(t) >= before+32<<10 })
	if a := s.do(t, "POST", maps, `{"metadata":{"name":"a"}}`, editor); a.code != http.StatusCreated {
		t.Errorf("a write at the same time: %d", a.code)
	}
	if err := c.framer.WriteData(1, true, []byte("two")); err != nil {
		t.Fatal(err)
	}
	if code := c.statuses(1)[0]; code != "200" {
		t.Errorf("the response is %s", code)
	}
	if text := <-got; text != "one two<nil>" {
		t.Errorf("the handler got %q", text)
	}
	if a := s.do(t, "POST", "/mounted", strings.Repeat("x", 101)); a.code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body above the limit: %d", a.code)
	}
	if a := s.do(t, "POST", "/mounted", ""); a.code != http.StatusOK || <-got != "<nil>" {
		t.Errorf("a request without a body: %d", a.code)
	}
}

// TestWaitingBytes: the bytes that the server holds while it waits for clients are bounded. Requests beyond the bound
// get 429 with Retry-After.
func TestWaitingBytes(t *testing.T) {
	s := start(t, wiring{config: func(c *httpapi.Config) { c.Limits.WaitingBytes = 1 << 20 }})
	s.create(t, "default", "a", 200<<10)
	before := s.waiting(t)
	c := s.dialClosed(t)
	for range 40 {
		c.send("GET", maps, "admin", "")
	}
	ok := 0
	for _, code := range c.statuses(40) {
		switch code {
		case "200":
			ok++
		case "429":
		default:
			t.Errorf("a response of %s", code)
		}
	}
	if ok == 0 || ok > 4 {
		t.Errorf("%d lists of 200 KiB wait in 1 MiB", ok)
	}
	a := s.do(t, "GET", maps, "")
	if code, reason, _ := a.status(t); code != 429 || reason != "TooManyRequests" || a.header.Get("Retry-After") != "1" {
		t.Errorf("one more: %d %s, %v", code, reason, a.header)
	}
	if a := s.do(t, "POST", maps, `{"metadata":{"name":"b"},"data":{"k":"`+strings.Repeat("x", 900<<10)+`"}}`); a.code != 429 {
		t.Errorf("a large body: %d", a.code)
	}
	if a := s.do(t, "GET", "/livez", ""); a.code != 200 {
		t.Errorf("health: %d", a.code)
	}
	c.conn.Close()
	for range 40 {
		s.waitEnded(t, "GET "+maps)
	}
	if a := s.do(t, "GET", maps, ""); a.code != 200 {
		t.Errorf("when the client has gone: %d", a.code)
	}
	for range 2 { // the requests of the other client
		s.waitEnded(t, "GET "+maps)
	}
	if n := s.waiting(t); n > before+200<<10 { // there are metrics of more routes by now
		t.Errorf("%d bytes are still counted, %d were before", n, before)
	}
}

// TestAnonymousConnections: the connection of an unauthenticated client ends with its
// request. The connection of an authenticated client does not.
func TestAnonymousConnections(t *testing.T) {
	s := start(t, wiring{})
	for token, ends := range map[string]bool{"": true, "wrong": true, "bob": false, "admin": false} {
		c := s.dialClosed(t)
		c.send("GET", maps, token, "")
		away, responded := false, false
		for !responded || ends && !away {
			f, err := c.framer.ReadFrame()
			if err != nil {
				t.Fatalf("with token %q: %v", token, err)
			}
			switch f.(type) {
			case *h2.GoAwayFrame:
				away = true
			case *h2.HeadersFrame:
				if responded = ends; !ends { // a GOAWAY would stand before the response to a ping
					c.framer.WritePing(false, [8]byte{1})
				}
			case *h2.PingFrame:
				responded = true
			}
		}
		if away != ends {
			t.Errorf("with token %q the connection ends: %v", token, away)
		}
	}
}

// TestRefusedConnections: over HTTP/1.1, a client without valid credentials that is refused
// loses its connection. Health checks without credentials keep theirs.
func TestRefusedConnections(t *testing.T) {
	s := start(t, wiring{http1: true})
	for _, row := range []struct {
		token, method, path string
		code                int
		ends                bool
	}{
		{"", "GET", maps, 403, true},
		{"", "POST", maps, 403, true},
		{"wrong", "GET", maps, 401, true},
		{"wrong", "GET", "/livez", 401, true},
		{"", "GET", "/livez", 200, false},
		{"", "GET", "/version", 200, false},
		{"bob", "GET", maps, 403, false},
		{"admin", "GET", maps, 200, false},
		{"admin", "GET", maps + "/none", 404, false},
	} {
		r, err := http.NewRequest(row.method, s.URL+row.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if row.token != "" {
			r.Header.Set("Authorization", "Bearer "+row.token)
		}
		resp, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != row.code || resp.Close != row.ends {
			t.Errorf("%+v: %d, the connection ends: %v", row, resp.StatusCode, resp.Close)
		}
	}
}

// TestManyParameters: a query with more parameters than can be read is refused. It is not executed
// without them.
func TestManyParameters(t *testing.T) {
	s := start(t, wiring{})
	s.create(t, "default", "a", 10)
	more := strings.Repeat("&x", 10_001)
	for _, row := range [][3]string{
		{"POST", maps + "?dryRun=All" + more, `{"metadata":{"name":"b"}}`},
		{"DELETE", maps + "?labelSelector=none%3Dnone" + more, ""},
		{"DELETE", maps + "/a?dryRun=All" + more, ""},
		{"GET", maps + "?watch=1&timeoutSeconds=1" + more, ""},
	} {
		if code, reason, _ := s.do(t, row[0], row[1], row[2]).status(t); code != 400 || reason != "BadRequest" {
			t.Errorf("%s %.60s: %d %s", row[0], row[1], code, reason)
		}
	}
	if a, b := s.do(t, "GET", maps+"/a", ""), s.do(t, "GET", maps+"/b", ""); a.code != 200 || b.code != 404 {
		t.Errorf("afterwards: %d, %d", a.code, b.code)
	}
}

// TestErrorsAreSmall: whatever is sent, an error says a bounded amount of it, and little
// to a client without rights.
func TestErrorsAreSmall(t *testing.T) {
	s := start(t, wiring{})
	long := strings.Repeat("<", 10_000)
	for token, most := range map[string]int{"bob": 20 << 10, "": 20 << 10, "admin": 2 << 20} {
		for _, path := range []string{maps + "/" + long, "/apis/" + long + "/v1/x", "/" + long, "/api/v1/namespaces/" + long + "/pods/x/log"} {
			a := s.do(t, "GET", path, "", "Authorization: Bearer "+token)
			if a.code < 400 || len(a.body) > most {
				t.Errorf("token %q, %.40s: %d with %d bytes", token, path, a.code, len(a.body))
			}
		}
	}
	s.create(t, "default", "a", 10)
	config := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","finalizers":["x"` + strings.Repeat(`,""`, 100_000) + `]}}`
	a := s.do(t, "PATCH", maps+"/a?fieldManager=m", config, "Content-Type: application/apply-patch+yaml")
	if a.code < 400 || len(a.body) > 2<<20 {
		t.Errorf("an apply with 100,000 finalizers: %d with %d bytes", a.code, len(a.body))
	}
}

// TestResponsesKeepTheirSeats: the response of a write that does not fit into the memory for
// waiting requests keeps its seat instead.
func TestResponsesKeepTheirSeats(t *testing.T) {
	s := start(t, wiring{config: func(c *httpapi.Config) {
		c.Limits.WaitingBytes, c.Limits.MutatingInFlight, c.NoFairness = 200<<10, 2, true
	}})
	s.create(t, "default", "a", 10)
	target := registry.Target{Type: builtin.Catalog().Lookup("", "v1", "configmaps"), Namespace: "default"}
	large := registry.Body{Media: wire.JSON, Bytes: fmt.Appendf(nil, `{"metadata":{"name":"large"},"data":{"k":%q}}`, strings.Repeat("<", 500<<10))}
	if _, err := s.registry.Create(t.Context(), target, large, registry.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	c := s.dialClosed(t)
	for range 2 { // each gets the objects
		c.send("DELETE", maps+"?dryRun=All", "editor", "")
		if got := c.statuses(1); got[0] != "200" {
			t.Fatalf("a deletion: %s", got)
		}
	}
	if a := s.do(t, "DELETE", maps+"/a", "", editor); a.code != 429 {
		t.Errorf("a write at the same time: %d", a.code)
	}
	if a := s.do(t, "GET", maps+"/a", "", editor); a.code != 200 {
		t.Errorf("a read at the same time: %d", a.code)
	}
}

// TestLongSelectors: a selector with too many terms is refused.
func TestLongSelectors(t *testing.T) {
	s := start(t, wiring{})
	for _, row := range []struct {
		selector string
		terms    int
		want     int
	}{
		{"labelSelector=", 10_000, 400},
		{"fieldSelector=", 10_000, 400},
		{"labelSelector=", 1000, 200},
	} {
		term := "!a"
		if strings.HasPrefix(row.selector, "field") {
			term = "metadata.name!=a"
		}
		path := maps + "?" + row.selector + url.QueryEscape(strings.Repeat(term+",", row.terms)+term)
		if a := s.do(t, "GET", path, ""); a.code != row.want {
			t.Errorf("%s with %d terms: %d %.200s", row.selector, row.terms, a.code, a.body)
		}
		if a := s.do(t, "GET", path, "", "Authorization: Bearer bob"); a.code != 403 {
			t.Errorf("%s with %d terms, without rights: %d", row.selector, row.terms, a.code)
		}
	}
}
