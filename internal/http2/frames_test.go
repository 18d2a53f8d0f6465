package http2_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// client is a client whose frames the tests choose.
type client struct {
	*h2.Framer
	t     testing.TB
	c     *tls.Conn
	block bytes.Buffer
	e     *hpack.Encoder
}

// dial opens a connection and sends the settings. It does not wait for the server's.
func dial(t testing.TB, ts *httptest.Server, settings ...h2.Setting) *client {
	t.Helper()
	config := ts.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"h2"}
	c, err := tls.Dial("tcp", ts.Listener.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	p := &client{Framer: h2.NewFramer(c, c), t: t, c: c}
	p.e = hpack.NewEncoder(&p.block)
	io.WriteString(c, h2.ClientPreface)
	p.WriteSettings(settings...)
	return p
}

// ask begins a request; fields are name, value, name, value.
func (p *client) ask(id uint32, end bool, method, path string, fields ...string) {
	all := append([]string{":method", method, ":scheme", "https", ":authority", "localhost", ":path", path}, fields...)
	for i := 0; i < len(all); i += 2 {
		p.e.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]})
	}
	p.WriteHeaders(h2.HeadersFrameParam{StreamID: id, BlockFragment: p.block.Bytes(), EndStream: end, EndHeaders: true})
	p.block.Reset()
}

// until reads frames until one is as wanted; an error ends the test, or is
// returned when that is wanted.
func (p *client) until(what string, want func(h2.Frame) bool) {
	p.t.Helper()
	for {
		f, err := p.ReadFrame()
		if err != nil {
			p.t.Fatalf("waiting for %s: %v", what, err)
		}
		if want(f) {
			return
		}
	}
}

// code reads until the server gives the connection up, and returns why.
func (p *client) code() h2.ErrCode {
	p.t.Helper()
	var code h2.ErrCode
	p.until("GOAWAY", func(f h2.Frame) bool {
		away, ok := f.(*h2.GoAwayFrame)
		if ok {
			code = away.ErrCode
		}
		return ok
	})
	return code
}

// reset reads until the stream is reset, and returns why.
func (p *client) reset(id uint32) h2.ErrCode {
	p.t.Helper()
	var code h2.ErrCode
	p.until(fmt.Sprintf("a reset of %d", id), func(f h2.Frame) bool {
		r, ok := f.(*h2.RSTStreamFrame)
		if ok = ok && r.StreamID == id; ok {
			code = r.ErrCode
		}
		return ok
	})
	return code
}

func ended(id uint32) func(h2.Frame) bool {
	return func(f h2.Frame) bool {
		switch f := f.(type) {
		case *h2.DataFrame:
			return f.StreamID == id && f.StreamEnded()
		case *h2.HeadersFrame:
			return f.StreamID == id && f.StreamEnded()
		}
		return false
	}
}

// hold is a handler that knows /quick, /hold (until the request's context ends),
// /flood (writes until it fails) and /read (the body, to its end).
type hold struct {
	running atomic.Int64
	ended   chan error // gets the error that ended a /hold, a /flood or a /read
}

func newHold() *hold { return &hold{ended: make(chan error, 1000)} }

func (h *hold) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.running.Add(1)
	defer h.running.Add(-1)
	switch r.URL.Path {
	case "/quick":
		io.WriteString(w, "hello")
	case "/hold":
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		h.ended <- r.Context().Err()
	case "/flood":
		for {
			if _, err := w.Write(big(64 << 10)); err != nil {
				h.ended <- err
				return
			}
		}
	case "/read":
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w, n)
		h.ended <- err
	}
}

// TestErrors checks that an error of a client ends the stream or the connection.
func TestErrors(t *testing.T) {
	for name, test := range map[string]struct {
		do     func(p *client)
		code   h2.ErrCode
		stream uint32 // zero: the connection
	}{
		"no settings":           {do: func(p *client) { p.WritePing(false, [8]byte{}) }, code: h2.ErrCodeProtocol},
		"a frame that is large": {do: func(p *client) { p.WriteSettings(); p.WriteData(0, false, big(20_000)) }, code: h2.ErrCodeFrameSize},
		"a stream that is even": {do: func(p *client) { p.WriteSettings(); p.ask(2, true, "GET", "/quick") }, code: h2.ErrCodeProtocol},
		"a stream that was":     {do: func(p *client) { p.WriteSettings(); p.ask(5, true, "GET", "/quick"); p.ask(3, true, "GET", "/quick") }, code: h2.ErrCodeStreamClosed},
		"data of no stream":     {do: func(p *client) { p.WriteSettings(); p.WriteData(1, false, nil) }, code: h2.ErrCodeProtocol},
		"a window of no stream": {do: func(p *client) { p.WriteSettings(); p.WriteWindowUpdate(1, 1) }, code: h2.ErrCodeProtocol},
		"a reset of no stream":  {do: func(p *client) { p.WriteSettings(); p.WriteRSTStream(1, h2.ErrCodeCancel) }, code: h2.ErrCodeProtocol},
		"a push": {do: func(p *client) {
			p.WriteSettings()
			p.WritePushPromise(h2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		}, code: h2.ErrCodeProtocol},
		"a window too large": {do: func(p *client) { p.WriteSettings(); p.WriteWindowUpdate(0, 1<<31-1) }, code: h2.ErrCodeFlowControl},
		"a stream's window too large": {do: func(p *client) {
			p.WriteSettings()
			p.ask(1, true, "GET", "/hold")
			p.WriteWindowUpdate(1, 1<<31-1)
		}, code: h2.ErrCodeFlowControl, stream: 1},
		"windows too large later": {do: func(p *client) {
			p.WriteSettings()
			p.ask(1, true, "GET", "/hold")
			p.WriteWindowUpdate(1, 1<<31-1-65535)
			p.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 65536})
		}, code: h2.ErrCodeFlowControl},
		"more than the window": {do: func(p *client) {
			p.WriteSettings()
			p.ask(1, false, "POST", "/hold")
			for range 17 {
				p.WriteData(1, false, big(16<<10))
			}
		}, code: h2.ErrCodeFlowControl},
		"no header compression": {do: func(p *client) {
			p.WriteSettings()
			p.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true})
		}, code: h2.ErrCodeCompression},
		"headers without end": {do: func(p *client) {
			p.WriteSettings()
			p.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
			for range 20 { // each repeats one field: the limit is on the bytes sent
				p.WriteContinuation(1, false, bytes.Repeat([]byte{0x82}, 16<<10))
			}
		}, code: h2.ErrCodeEnhanceYourCalm},
		"upper case":     {do: func(p *client) { p.WriteSettings(); p.ask(1, true, "GET", "/quick", "Accept", "x") }, code: h2.ErrCodeProtocol, stream: 1},
		"a bad value":    {do: func(p *client) { p.WriteSettings(); p.ask(1, true, "GET", "/quick", "accept", "a\nb") }, code: h2.ErrCodeProtocol, stream: 1},
		"a connection's": {do: func(p *client) { p.WriteSettings(); p.ask(1, true, "GET", "/quick", "connection", "close") }, code: h2.ErrCodeProtocol, stream: 1},
		"no path":        {do: func(p *client) { p.WriteSettings(); p.ask(1, true, "GET", "quick") }, code: h2.ErrCodeProtocol, stream: 1},
		"a bad method":   {do: func(p *client) { p.WriteSettings(); p.ask(1, true, "G T", "/quick") }, code: h2.ErrCodeProtocol, stream: 1},
		"two paths":      {do: func(p *client) { p.WriteSettings(); p.ask(1, true, "GET", "/quick", ":path", "/hold") }, code: h2.ErrCodeProtocol, stream: 1},
		"a late path":    {do: func(p *client) { p.WriteSettings(); p.ask(1, true, "GET", "/quick", "a", "b", ":path", "/hold") }, code: h2.ErrCodeProtocol, stream: 1},
		"two lengths": {do: func(p *client) {
			p.WriteSettings()
			p.ask(1, false, "PUT", "/hold", "content-length", "1", "content-length", "2")
		}, code: h2.ErrCodeProtocol, stream: 1},
		"no length":         {do: func(p *client) { p.WriteSettings(); p.ask(1, false, "PUT", "/hold", "content-length", "-1") }, code: h2.ErrCodeProtocol, stream: 1},
		"a length, no body": {do: func(p *client) { p.WriteSettings(); p.ask(1, true, "PUT", "/hold", "content-length", "1") }, code: h2.ErrCodeProtocol, stream: 1},
		"less than said": {do: func(p *client) {
			p.WriteSettings()
			p.ask(1, false, "PUT", "/hold", "content-length", "5")
			p.WriteData(1, true, []byte("four"))
		}, code: h2.ErrCodeProtocol, stream: 1},
		"more than said": {do: func(p *client) {
			p.WriteSettings()
			p.ask(1, false, "PUT", "/hold", "content-length", "5")
			p.WriteData(1, false, []byte("sixsix"))
		}, code: h2.ErrCodeProtocol, stream: 1},
		"trailers that go on": {do: func(p *client) {
			p.WriteSettings()
			p.ask(1, false, "PUT", "/hold")
			p.ask(1, false, "PUT", "/hold")
		}, code: h2.ErrCodeProtocol, stream: 1},
		"data after the end": {do: func(p *client) {
			p.WriteSettings()
			p.ask(1, true, "GET", "/hold")
			p.WriteData(1, false, []byte("x"))
		}, code: h2.ErrCodeStreamClosed, stream: 1},
		"it waits for itself": {do: func(p *client) { p.WriteSettings(); p.WritePriority(1, h2.PriorityParam{StreamDep: 1}) }, code: h2.ErrCodeProtocol, stream: 1},
	} {
		t.Run(name, func(t *testing.T) {
			ts := start(t, server(t.Output()), newHold())
			config := ts.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			config.NextProtos = []string{"h2"}
			c, err := tls.Dial("tcp", ts.Listener.Addr().String(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			p := &client{Framer: h2.NewFramer(c, c), t: t, c: c}
			p.AllowIllegalWrites = true
			p.e = hpack.NewEncoder(&p.block)
			io.WriteString(c, h2.ClientPreface)
			test.do(p)
			if test.stream != 0 {
				if got := p.reset(test.stream); got != test.code {
					t.Errorf("reset with %v, want %v", got, test.code)
				}
				return
			}
			if got := p.code(); got != test.code {
				t.Errorf("GOAWAY with %v, want %v", got, test.code)
			}
		})
	}
}

// TestLargeHeaders: they get a response, and the connection goes on.
func TestLargeHeaders(t *testing.T) {
	ts := start(t, server(t.Output()), newHold())
	p := dial(t, ts) // net/http's client knows the bound, and would not send them
	var status string
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for i := range 20 {
		p.e.WriteField(hpack.HeaderField{Name: fmt.Sprint("x-", i), Value: strings.Repeat("~", 4000)})
	}
	block := bytes.Clone(p.block.Bytes())
	p.block.Reset()
	p.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:16<<10], EndStream: true})
	for block = block[16<<10:]; len(block) > 16<<10; block = block[16<<10:] {
		p.WriteContinuation(1, false, block[:16<<10])
	}
	p.WriteContinuation(1, true, block)
	p.until("a response", func(f h2.Frame) bool {
		m, ok := f.(*h2.MetaHeadersFrame)
		if ok {
			status = m.PseudoValue("status")
		}
		return ok
	})
	if status != "431" {
		t.Errorf("status %s", status)
	}
	p.ask(3, true, "GET", "/quick")
	p.until("a later response", func(f h2.Frame) bool {
		d, ok := f.(*h2.DataFrame)
		return ok && d.StreamID == 3 && d.StreamEnded()
	})
}

// TestManyStreams: streams over the limit are refused; so are those that come while
// the handlers of reset ones still run.
func TestManyStreams(t *testing.T) {
	s := server(t.Output())
	s.MaxStreams = 5
	h := newHold()
	release := make(chan struct{})
	ts := start(t, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.running.Add(1)
		defer h.running.Add(-1)
		<-release // whatever the client does
	}))
	p := dial(t, ts)
	id := uint32(1)
	for range 5 {
		p.ask(id, true, "GET", "/")
		id += 2
	}
	p.ask(id, true, "GET", "/")
	if code := p.reset(id); code != h2.ErrCodeRefusedStream {
		t.Errorf("the sixth stream: %v", code)
	}
	for range 1000 { // rapid reset
		id += 2
		p.ask(id, true, "GET", "/")
		p.WriteRSTStream(id, h2.ErrCodeCancel)
		p.WriteRSTStream(id-10, h2.ErrCodeCancel)
	}
	p.WritePing(false, [8]byte{1})
	p.until("a pong", func(f h2.Frame) bool { _, ok := f.(*h2.PingFrame); return ok })
	if n := h.running.Load(); n > 10 {
		t.Errorf("%d handlers run", n)
	}
	close(release)
	for id += 2; ; id += 2 { // there is room again, as soon as the handlers have gone
		p.ask(id, true, "GET", "/")
		refused := false
		p.until("a response", func(f h2.Frame) bool {
			r, ok := f.(*h2.RSTStreamFrame)
			refused = ok && r.StreamID == id
			return refused || ended(id)(f)
		})
		if !refused {
			return
		}
	}
}

// TestAskedAndNotRead: a client that causes responses and does not read them gets a GOAWAY
// before it fills the memory.
func TestAskedAndNotRead(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(f *h2.Framer) error{
		"pings":    func(f *h2.Framer) error { return f.WritePing(false, [8]byte{}) },
		"settings": func(f *h2.Framer) error { return f.WriteSettings() },
		"resets":   func(f *h2.Framer) error { return f.WritePriority(1, h2.PriorityParam{StreamDep: 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var many bytes.Buffer
			for f := h2.NewFramer(&many, nil); many.Len() < 1<<20; {
				if err := ask(f); err != nil {
					t.Fatal(err)
				}
			}
			p := dial(t, start(t, server(t.Output()), newHold()))
			for { // for a second after the GOAWAY, the server discards its input
				if _, err := p.c.Write(many.Bytes()); err != nil {
					return
				}
			}
		})
	}
}

// TestFlood: a client that does not read a response holds up neither the other
// streams' handlers nor the server's memory, and loses its connection in time.
func TestFlood(t *testing.T) {
	s := server(t.Output())
	s.WriteTimeout = 300 * time.Millisecond
	h := newHold()
	ts := start(t, s, h)
	p := dial(t, ts, h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1<<31 - 1})
	p.WriteWindowUpdate(0, 1<<30)
	for id := uint32(1); id < 20; id += 2 {
		p.ask(id, true, "GET", "/flood")
	}
	for range 10 {
		if err := <-h.ended; err == nil {
			t.Error("all was written")
		}
	}
}

// TestUploadWithoutReading: a client that writes all it has before it reads does not
// lock itself out, however much is on its way to it.
func TestUploadWithoutReading(t *testing.T) {
	h := newHold()
	ts := start(t, server(t.Output()), h)
	p := dial(t, ts, h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1<<31 - 1})
	p.WriteWindowUpdate(0, 1<<30)
	p.ask(1, true, "GET", "/flood") // fills all buffers between the two
	p.ask(3, false, "POST", "/read", "content-length", "200000")
	for left := 200_000; left > 0; left -= 10_000 {
		p.WriteData(3, left == 10_000, big(10_000))
	}
	if err := <-h.ended; err != nil {
		t.Error(err)
	}
}

// TestResetOfAClient: the handler of a stream that the client resets learns of it.
func TestResetOfAClient(t *testing.T) {
	h := newHold()
	ts := start(t, server(t.Output()), h)
	for _, path := range []string{"/hold", "/flood", "/read"} {
		p := dial(t, ts)
		p.ask(1, false, "POST", path)
		p.until("settings", func(f h2.Frame) bool { _, ok := f.(*h2.SettingsFrame); return ok })
		p.WriteRSTStream(1, h2.ErrCodeCancel)
		if err := <-h.ended; err == nil {
			t.Errorf("%s was not told", path)
		}
		p.ask(3, false, "POST", path)
		p.c.Close()
		if err := <-h.ended; err == nil {
			t.Errorf("%s was not told that the client is gone", path)
		}
	}
}

// TestShutdown: streams that run end as they would; later ones are not taken; the
// connection ends with its last stream.
func TestShutdown(t *testing.T) {
	t.Parallel()
	s := server(t.Output())
	proceed := make(chan struct{})
	ts := start(t, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		<-proceed
		io.WriteString(w, "the end")
	}))
	p := dial(t, ts)
	p.ask(1, true, "GET", "/")
	p.until("headers", func(f h2.Frame) bool { _, ok := f.(*h2.HeadersFrame); return ok })
	s.Shutdown()
	p.until("GOAWAY", func(f h2.Frame) bool {
		away, ok := f.(*h2.GoAwayFrame)
		if ok && (away.LastStreamID != 1 || away.ErrCode != h2.ErrCodeNo) {
			t.Errorf("%v", away)
		}
		return ok
	})
	p.ask(3, true, "GET", "/")
	close(proceed)
	p.until("the end", ended(1))
	for {
		f, err := p.ReadFrame()
		if err != nil {
			break
		}
		if f.Header().StreamID == 3 {
			t.Errorf("the late stream got %v", f)
		}
	}
}

// TestRandomBodies sends bodies of random length both ways, over many streams at once, with random
// windows and frame sizes, and compares them.
func TestRandomBodies(t *testing.T) {
	const minIncrement = 32 // smaller window updates count as control frames
	rnd := testrand.New(t)
	s := server(t.Output())
	s.UploadBytes = 65536 + rnd.IntN(100_000)
	ts := start(t, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n, seed uint64
		fmt.Sscan(r.URL.Query().Get("n"), &n)
		fmt.Sscan(r.URL.Query().Get("seed"), &seed)
		rnd := rand.New(rand.NewPCG(seed, n))
		received := make(chan int64, 1)
		go func() {
			n, _ := io.Copy(io.Discard, r.Body)
			received <- n
		}()
		pattern := big(1 << 16)
		for at := uint64(0); at < n; {
			size := min(1+rnd.Uint64N(30_000), n-at)
			from := at % 16
			if _, err := w.Write(pattern[from : from+size]); err != nil {
				t.Errorf("writing: %v", err)
				return
			}
			if at += size; rnd.IntN(4) == 0 {
				http.NewResponseController(w).Flush()
			}
		}
		if got := <-received; got != r.ContentLength {
			t.Errorf("%d bytes of %d came", got, r.ContentLength)
		}
	}))
	tr := &http.Transport{TLSClientConfig: ts.Client().Transport.(*http.Transport).TLSClientConfig, ForceAttemptHTTP2: true, HTTP2: &http.HTTP2Config{
		MaxReadFrameSize: 16<<10 + rnd.IntN(100_000), MaxReceiveBufferPerStream: 4*minIncrement + rnd.IntN(200_000), MaxReceiveBufferPerConnection: 65536 + rnd.IntN(300_000),
	}}
	defer tr.CloseIdleConnections()
	var wg sync.WaitGroup
	for range 60 {
		n, up, seed := rnd.IntN(600_000), rnd.IntN(300_000), rnd.Uint64()
		wg.Go(func() {
			resp, err := (&http.Client{Transport: tr}).Post(fmt.Sprintf("%s/?n=%d&seed=%d", ts.URL, n, seed), "a/b", bytes.NewReader(big(up)))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			all, err := io.ReadAll(resp.Body)
			if err != nil || !bytes.Equal(all, big(n + 16)[:n]) {
				t.Errorf("%d bytes of %d: %v", len(all), n, err)
			}
		})
	}
	wg.Wait()
}

// FuzzFrames: whatever a client sends, its connection ends when it hangs up.
func FuzzFrames(f *testing.F) {
	var seed bytes.Buffer
	fr := h2.NewFramer(&seed, nil)
	fr.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 10})
	fr.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x83, 0x87, 0x84, 0x41, 0x01, 'x'}, EndHeaders: true})
	fr.WriteData(1, false, []byte("hello"))
	fr.WriteWindowUpdate(1, 100)
	fr.WriteDataPadded(1, true, []byte("x"), make([]byte, 10))
	fr.WriteHeaders(h2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x82, 0x87, 0x84}, EndStream: true, EndHeaders: true})
	fr.WriteRSTStream(3, h2.ErrCodeCancel)
	fr.WritePing(false, [8]byte{})
	fr.WriteGoAway(0, h2.ErrCodeNo, nil)
	f.Add(seed.Bytes())
	f.Add([]byte{})
	ts := start(f, server(io.Discard), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
		if r.Method == "GET" {
			<-r.Context().Done()
		}
	}))
	f.Fuzz(func(t *testing.T, frames []byte) {
		p := dial(t, ts)
		p.c.Write(frames)
		p.c.CloseWrite()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.Copy(io.Discard, p.c)
		}()
		await.Value(t, "the end of the connection", ended)
	})
}
