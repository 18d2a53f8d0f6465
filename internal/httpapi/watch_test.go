package httpapi_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
)

// watchReader reads the lines of a watch.
type watchReader struct {
	resp  *http.Response
	lines *bufio.Reader
}

func (s *server) watch(t testing.TB, path string, headers ...string) *watchReader {
	t.Helper()
	resp := s.open(t, t.Context(), "GET", path, nil, headers...)
	t.Cleanup(func() { resp.Body.Close() })
	return &watchReader{resp, bufio.NewReader(resp.Body)}
}

// next returns the next event: its type, and the name of its object. At the end
// of the watch both are empty.
func (w *watchReader) next(t testing.TB) (kind, name string) {
	t.Helper()
	line, err := w.lines.ReadString('\n')
	if err == io.EOF && line == "" {
		return "", ""
	}
	if err != nil {
		t.Fatalf("a watch broke off: %v, %q", err, line)
	}
	return parseEvent(t, line)
}

func parseEvent(t testing.TB, line string) (kind, name string) {
	t.Helper()
	var e struct {
		Type   string
		Object struct {
			Kind     string
			Metadata struct{ Name string }
		}
	}
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	return e.Type, e.Object.Metadata.Name
}

func (w *watchReader) want(t testing.TB, want ...string) {
	t.Helper()
	for _, e := range want {
		kind, name := w.next(t)
		if got := strings.TrimSpace(kind + " " + name); got != e {
			t.Errorf("event %q, want %q", got, e)
		}
	}
}

func TestWatch(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		s := start(t, wiring{http1: http1})
		s.create(t, "default", "a", 10)
		w := s.watch(t, maps+"?watch=1&allowWatchBookmarks=1")
		if w.resp.StatusCode != 200 || w.resp.Header.Get("Content-Type") != "application/json" || w.resp.Header.Get("Content-Encoding") != "" {
			t.Fatalf("%d %v", w.resp.StatusCode, w.resp.Header)
		}
		w.want(t, "ADDED a", "BOOKMARK")
		s.create(t, "default", "b", 300<<10)
		s.do(t, "DELETE", maps+"/a", "")
		w.want(t, "ADDED b", "DELETED a")
		s.handler.Drain()
		w.want(t, "") // a clean end
		if a := s.do(t, "GET", maps+"?watch=1", ""); a.code != 429 || a.header.Get("Retry-After") != "5" {
			t.Errorf("while draining: %d %s", a.code, a.body)
		}
		if a := s.do(t, "GET", maps, ""); a.code != 200 {
			t.Errorf("a list while draining: %d", a.code)
		}
	}
}

// TestWatchHeadersComeFirst has a watch without events.
func TestWatchHeadersComeFirst(t *testing.T) {
	t.Parallel() // waits for a second
	s := start(t, wiring{})
	w := s.watch(t, "/api/v1/namespaces/default/secrets?watch=1&timeoutSeconds=1")
	if w.resp.StatusCode != 200 {
		t.Fatal(w.resp.StatusCode)
	}
	w.want(t, "") // after a second
}

func TestWatchManyInitialEvents(t *testing.T) {
	s := start(t, wiring{})
	var want []string
	for i := range 700 {
		name := fmt.Sprintf("m-%03d", i)
		s.create(t, "default", name, 1000)
		want = append(want, "ADDED "+name)
	}
	w := s.watch(t, maps+"?watch=1&allowWatchBookmarks=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
	w.want(t, append(want, "BOOKMARK")...)
}

// TestWatchGzip: a watch that begins with the present objects is compressed if the client lists gzip, and each event
// can be read when it is sent.
func TestWatchGzip(t *testing.T) {
	const list = maps + "?watch=1&allowWatchBookmarks=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	for _, http1 := range []bool{false, true} {
		s := start(t, wiring{http1: http1})
		for i := range 20 {
			s.create(t, "default", fmt.Sprintf("m-%02d", i), 1000)
		}
		w := s.watch(t, list, "Accept-Encoding: deflate, gzip")
		if h := w.resp.Header; h.Get("Content-Encoding") != "gzip" || h.Get("Vary") != "Accept-Encoding" {
			t.Fatalf("the headers are %v", h)
		}
		counted := &countingReader{r: w.resp.Body}
		z, err := gzip.NewReader(counted)
		if err != nil {
			t.Fatal(err)
		}
		w.lines = bufio.NewReader(z)
		for i := range 20 {
			w.want(t, fmt.Sprintf("ADDED m-%02d", i))
		}
		w.want(t, "BOOKMARK")
		if counted.n > 10_000 {
			t.Errorf("the present objects take %d bytes, want less than half of their text", counted.n)
		}
		for i := range 3 {
			s.create(t, "default", fmt.Sprintf("n-%d", i), 10)
			w.want(t, fmt.Sprintf("ADDED n-%d", i))
		}
		s.create(t, "default", "o", 700_000)
		w.want(t, "ADDED o")
		s.do(t, "DELETE", maps+"/o", "")
		w.want(t, "DELETED o")
		s.handler.Drain()
		w.want(t, "")
	}
	s := start(t, wiring{})
	for path, encodings := range map[string][]string{
		list: {"identity", "deflate, gzip;q=0.5", "GZIP", "*", "br"},
		maps + "?watch=1&allowWatchBookmarks=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=1": {"gzip"},
		maps + "?watch=1": {"gzip"},
	} {
		for _, encoding := range encodings {
			if h := s.watch(t, path, "Accept-Encoding: "+encoding).resp.Header; h.Get("Content-Encoding") != "" {
				t.Errorf("%s with Accept-Encoding %s: %v", path, encoding, h)
			}
		}
	}
	plain := start(t, wiring{config: func(c *httpapi.Config) { c.PlainStreams = true }})
	if h := plain.watch(t, list, "Accept-Encoding: gzip").resp.Header; h.Get("Content-Encoding") != "" {
		t.Errorf("without the feature: %v", h)
	}
}

// countingReader counts the bytes that are read.
type countingReader struct {
	r io.Reader
	n int
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += n
	return n, err
}

func TestWatchOldPrefix(t *testing.T) {
	s := start(t, wiring{})
	s.create(t, "default", "a", 1)
	for _, path := range []string{"/api/v1/watch/configmaps", "/api/v1/watch/namespaces/default/configmaps?watch=false", "/api/v1/watch/namespaces/default/configmaps/a"} {
		s.watch(t, path).want(t, "ADDED a")
	}
	s.create(t, "default", "b", 1)
	one := s.watch(t, "/api/v1/watch/namespaces/default/configmaps/b")
	one.want(t, "ADDED b")
	s.create(t, "default", "c", 1)
	s.do(t, "DELETE", "/api/v1/namespaces/default/configmaps/b", "")
	one.want(t, "DELETED b")
	s.namespace(t, "other")
	s.watch(t, "/api/v1/watch/namespaces/other").want(t, "ADDED other")
	a := s.do(t, "GET", "/api/v1/watch/namespaces/default/configmaps/a?fieldSelector=metadata.name%3Db", "")
	if _, _, message := a.status(t); a.code != 400 || message != "fieldSelector metadata.name doesn't match requested name" {
		t.Errorf("another name in the selector: %d %s", a.code, message)
	}
}

func TestWatchInWords(t *testing.T) {
	s := start(t, wiring{})
	a := s.do(t, "GET", maps+"?watch=1", "", "Accept: application/yaml")
	if a.code != 406 || !strings.HasPrefix(a.body, "apiVersion: v1\ncode: 406\n") {
		t.Errorf("%d %s", a.code, a.body)
	}
	line, err := s.watch(t, maps+"?watch=1&resourceVersion=1").lines.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (`) {
		t.Errorf("%v %s", err, line)
	}
}

func TestWatchWebSocket(t *testing.T) {
	s := start(t, wiring{http1: true})
	s.create(t, "default", "a", 10)
	url := strings.Replace(s.URL, "https", "wss", 1) + maps + "?watch=1"
	header := http.Header{"Authorization": {"Bearer admin"}}
	conn, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPClient: s.client, HTTPHeader: header, Subprotocols: []string{"unknown"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow() //nolint:errcheck // the end of the test
	read := func() string {
		kind, data, err := conn.Read(t.Context())
		if err != nil || kind != websocket.MessageText {
			t.Fatalf("%v %v", kind, err)
		}
		e, name := parseEvent(t, string(data))
		return e + " " + name
	}
	if got := read(); got != "ADDED a" {
		t.Error(got)
	}
	s.create(t, "default", "b", 10)
	s.create(t, "default", "c", 10)
	if got := read() + ", " + read(); got != "ADDED b, ADDED c" {
		t.Error(got)
	}
	next := make(chan string, 1)
	go func() {
		_, data, err := conn.Read(t.Context())
		next <- fmt.Sprint(string(data), err)
	}()
	if err := conn.Ping(t.Context()); err != nil { // responded while the next message is waited for
		t.Error(err)
	}
	s.create(t, "default", "d", 10)
	if got := <-next; !strings.HasPrefix(got, `{"type":"ADDED"`) || !strings.Contains(got, `"name":"d"`) {
		t.Error(got)
	}
	s.handler.Drain()
	if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("the end: %v", err)
	}
}

// TestWatchWebSocketOrigin checks that pages of any origin may watch over a WebSocket, as in
// kube-apiserver: "kubectl proxy" forwards the origin of the page. A sandboxed page may not.
func TestWatchWebSocketOrigin(t *testing.T) {
	s := start(t, wiring{http1: true})
	s.create(t, "default", "a", 10)
	for _, path := range []string{maps + "?watch=1", strings.Replace(maps, "/api/v1/", "/api/v1/watch/", 1)} {
		for origin, want := range map[string]int{"": 101, "https://console.test": 101, "http://127.0.0.1:8001": 101, s.URL: 101, "null": 403, "a b": 403} {
			header := http.Header{"Authorization": {"Bearer admin"}}
			if origin != "" {
				header.Set("Origin", origin)
			}
			conn, resp, err := websocket.Dial(t.Context(), strings.Replace(s.URL, "https", "wss", 1)+path, &websocket.DialOptions{HTTPClient: s.client, HTTPHeader: header})
			if resp == nil || resp.StatusCode != want {
				t.Errorf("%s from %q: %v", path, origin, err)
			}
			if err == nil {
				conn.CloseNow() //nolint:errcheck // the end of the test
			}
		}
	}
}

// TestWatchWebSocketIgnoresMessages checks that messages of the client, also long ones, do not end
// a watch.
func TestWatchWebSocketIgnoresMessages(t *testing.T) {
	s := start(t, wiring{http1: true})
	s.create(t, "default", "a", 10)
	conn, _, err := websocket.Dial(t.Context(), strings.Replace(s.URL, "https", "wss", 1)+maps+"?watch=1", &websocket.DialOptions{HTTPClient: s.client, HTTPHeader: http.Header{"Authorization": {"Bearer admin"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow() //nolint:errcheck // the end of the test
	if _, _, err := conn.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, message := range []string{"", "keep alive", strings.Repeat("x", 100_000)} {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(message)); err != nil {
			t.Error(err)
		}
	}
	next := make(chan error, 1)
	go func() {
		_, _, err := conn.Read(t.Context())
		next <- err
	}()
	if err := conn.Ping(t.Context()); err != nil { // the server has read the messages before it
		t.Error(err)
	}
	s.create(t, "default", "b", 10)
	if err := <-next; err != nil {
		t.Error(err)
	}
}

func TestWatchLimit(t *testing.T) {
	s := start(t, wiring{config: func(c *httpapi.Config) { c.Limits.Watches, c.Limits.InFlight, c.NoFairness = 1, 1, true }})
	w := s.watch(t, maps+"?watch=1")
	if a := s.do(t, "GET", maps+"?watch=1", ""); a.code != 429 || a.header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d", a.code)
	}
	if a := s.do(t, "GET", maps, ""); a.code != 200 {
		t.Errorf("a list during a watch: %d", a.code)
	}
	w.resp.Body.Close()
	s.waitEnded(t, "GET "+maps) // of the refused one
	s.waitEnded(t, "GET "+maps) // of the list
	s.waitEnded(t, "GET "+maps)
	if w := s.watch(t, maps+"?watch=1"); w.resp.StatusCode != 200 {
		t.Errorf("after one ended: %d", w.resp.StatusCode)
	}
}

// TestManyWatches has 401 watches through one client, and 99 on one
// connection. Each sees its event, and other requests get a response.
func TestManyWatches(t *testing.T) {
	for name, n := range map[string]int{"client": 401, "connection": 99} {
		t.Run(name, func(t *testing.T) {
			s := start(t, wiring{})
			client := s.client
			if name == "connection" {
				client = s.oneConnection(t)
			}
			s.client = client
			watches := make([]*watchReader, n)
			for i := range watches {
				resp := s.open(t, t.Context(), "GET", maps+"?watch=1", nil)
				defer resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Fatalf("watch %d: %d", i, resp.StatusCode)
				}
				watches[i] = &watchReader{resp, bufio.NewReaderSize(resp.Body, 512)}
			}
			if a := s.do(t, "GET", maps, ""); a.code != 200 {
				t.Errorf("a list: %d", a.code)
			}
			s.create(t, "default", "a", 10)
			var wg sync.WaitGroup
			for _, w := range watches {
				wg.Go(func() { w.want(t, "ADDED a") })
			}
			wg.Wait()
		})
	}
}

// TestWatchSelectors: the selectors of open watches count as memory of their user, who gets half of
// it. Others may still open such watches, and all may open watches with short selectors. The memory
// is free again at the end.
func TestWatchSelectors(t *testing.T) {
	const limit, many = 8 << 20, 4000
	s := start(t, wiring{config: func(c *httpapi.Config) { c.Limits.WaitingBytes = limit }})
	for _, long := range []string{
		"labelSelector=" + strings.Repeat("key!=v,", many) + "key!=w",
		"fieldSelector=" + strings.Repeat("metadata.name!=v,", many) + "metadata.name!=x",
		"labelSelector=" + strings.Repeat("a,", 500) + "b", // of a kilobyte
	} {
		terms := 1 + strings.Count(long, ",")
		var open []*watchReader
		var last response
		for len(open) < 100 {
			resp := s.open(t, t.Context(), "GET", maps+"?watch=1&"+long, nil, "Authorization: Bearer editor")
			if resp.StatusCode != 200 {
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				last = response{resp.StatusCode, resp.Header, string(body)}
				break
			}
			open = append(open, &watchReader{resp, bufio.NewReader(resp.Body)})
		}
		if n := len(open); n < 3 || n*terms*100 > limit {
			t.Errorf("%.20s: %d watches with %d terms each were opened", long, n, terms)
		}
		if _, reason, message := last.status(t); last.code != 429 || reason != "TooManyRequests" || !strings.Contains(message, "selectors of requests") || last.header.Get("Retry-After") == "" {
			t.Errorf("%.20s: %d %s %q", long, last.code, reason, message)
		}
		s.watch(t, maps+"?watch=1&labelSelector=a%3Db", "Authorization: Bearer editor").resp.Body.Close()
		if w := s.watch(t, maps+"?watch=1&"+long); w.resp.StatusCode != 200 {
			t.Errorf("%.20s: another user: %d", long, w.resp.StatusCode)
		} else {
			w.resp.Body.Close()
		}
		for _, w := range open {
			w.resp.Body.Close()
		}
		for range len(open) + 3 {
			s.waitEnded(t, "GET "+maps)
		}
		w := s.watch(t, maps+"?watch=1&"+long, "Authorization: Bearer editor")
		if w.resp.StatusCode != 200 {
			t.Errorf("%.20s: after the others ended: %d", long, w.resp.StatusCode)
		}
		w.resp.Body.Close()
		s.waitEnded(t, "GET "+maps)
	}
}

// TestSelectorsOfLists: a list whose client does not read holds its selectors, so they are charged, too.
func TestSelectorsOfLists(t *testing.T) {
	const n, terms = 3, 4000
	s := start(t, wiring{})
	s.create(t, "default", "a", 100<<10)
	c := s.dialClosed(t)
	var held [2]int64
	last := s.waiting(t)
	for i, query := range []string{"", "?labelSelector=" + strings.Repeat("!a,", terms-1) + "!a"} {
		for range n {
			c.send("GET", maps+query, "editor", "")
			if got := c.statuses(1); got[0] != "200" {
				t.Fatalf("the status is %s, want 200", got[0])
			}
			before := last
			await.True(t, "a list that waits for its client", func() bool { last = s.waiting(t); return last > before })
		}
		held[i] = last
	}
	if without, with := held[0], held[1]-held[0]; with < without+n*terms*100 {
		t.Errorf("%d lists hold %d bytes, and %d with %d terms each", n, without, with, terms)
	}
}
