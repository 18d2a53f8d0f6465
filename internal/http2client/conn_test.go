package http2client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tidemark-dev/tidemark/internal/testrand"
)

var limits = Config{HeaderBytes: 64 << 10, IdleTimeout: 90 * time.Second, PingAfter: 30 * time.Second, PingTimeout: 15 * time.Second, WriteTimeout: 15 * time.Second}

// server is the other side of a connection. Its methods fail the test.
type server struct {
	t    testing.TB
	conn net.Conn
	*h2.Framer
	block   bytes.Buffer
	encoder *hpack.Encoder
}

// dial returns a connection and its server, which has sent its settings.
func dial(t testing.TB, settings ...h2.Setting) (*Conn, *server) {
	t.Helper()
	here, there := net.Pipe()
	c := New(here, limits)
	t.Cleanup(func() {
		c.end(errIdle)
		there.Close()
	})
	s := &server{t: t, conn: there, Framer: h2.NewFramer(there, there)}
	s.encoder = hpack.NewEncoder(&s.block)
	s.ReadMetaHeaders = hpack.NewDecoder(tableBytes, nil)
	preface := make([]byte, len(h2.ClientPreface))
	if _, err := io.ReadFull(there, preface); err != nil || string(preface) != h2.ClientPreface {
		t.Fatalf("preface %q: %v", preface, err)
	}
	s.next(h2.FrameSettings)
	s.next(h2.FrameWindowUpdate)
	s.must(s.WriteSettings(settings...))
	s.next(h2.FrameSettings) // the acknowledgement
	return c, s
}

func (s *server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// next reads a frame of a type.
func (s *server) next(want h2.FrameType) h2.Frame {
	s.t.Helper()
	f, err := s.ReadFrame()
	s.must(err)
	if f.Header().Type != want {
		s.t.Fatalf("got %v, want %v", f, want)
	}
	return f
}

// request reads a request, and returns its stream and its body.
func (s *server) request() (id uint32, body []byte) {
	s.t.Helper()
	f := s.next(h2.FrameHeaders).(*h2.MetaHeadersFrame)
	for end := f.StreamEnded(); !end; {
		data := s.next(h2.FrameData).(*h2.DataFrame)
		body, end = append(body, data.Data()...), data.StreamEnded()
	}
	return f.StreamID, body
}

func (s *server) headers(id uint32, end bool, pairs ...string) {
	s.t.Helper()
	s.block.Reset()
	for i := 0; i < len(pairs); i += 2 {
		s.must(s.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}))
	}
	s.must(s.WriteHeaders(h2.HeadersFrameParam{StreamID: id, BlockFragment: s.block.Bytes(), EndHeaders: true, EndStream: end}))
}

func post(ctx context.Context, body string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://example.com/p?timeout=1s", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	return r
}

// result is the result of a call.
type result struct {
	code int
	body string
	err  error
}

// call sends a request on another goroutine.
func call(c *Conn, r *http.Request) chan result {
	got := make(chan result, 1)
	go func() {
		resp, err := c.RoundTrip(r)
		if err != nil {
			got <- result{err: err}
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		got <- result{resp.StatusCode, string(b), err}
	}()
	return got
}

// TestResponse: one call, with an informational response and trailers.
func TestResponse(t *testing.T) {
	c, s := dial(t)
	got := call(c, post(t.Context(), "hello"))
	id, body := s.request()
	if string(body) != "hello" {
		t.Errorf("the server got %q", body)
	}
	s.headers(id, false, ":status", "103", "link", "x")
	s.headers(id, false, ":status", "201", "content-type", "text/plain", "content-length", "4")
	s.must(s.WriteDataPadded(id, false, []byte("an"), make([]byte, 9)))
	s.next(h2.FrameWindowUpdate) // the padding
	s.must(s.WriteData(id, false, []byte("sw")))
	s.headers(id, true, "x-trailer", "y")
	if r := <-got; r != (result{201, "answ", nil}) {
		t.Errorf("got %+v", r)
	}
	if !c.Usable() {
		t.Error("the connection takes no more requests")
	}
}

// TestLargeBodies: bodies that are larger than the windows, both ways.
func TestLargeBodies(t *testing.T) {
	large := strings.Repeat("0123456789", 30_000)
	c, s := dial(t, h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1000})
	got := call(c, post(t.Context(), large))
	id := s.next(h2.FrameHeaders).Header().StreamID
	var body []byte
	for len(body) < len(large) {
		f := s.next(h2.FrameData).(*h2.DataFrame)
		if body = append(body, f.Data()...); f.StreamEnded() {
			break
		}
		s.must(s.WriteWindowUpdate(0, uint32(len(f.Data()))))
		s.must(s.WriteWindowUpdate(id, uint32(len(f.Data()))))
	}
	if string(body) != large {
		t.Fatalf("the server got %d bytes, want %d", len(body), len(large))
	}
	s.headers(id, false, ":status", "200")
	window := firstGrant
	for sent := 0; sent < len(large); {
		n := min(window, maxFrame, len(large)-sent)
		if n == 0 {
			window += int(s.next(h2.FrameWindowUpdate).(*h2.WindowUpdateFrame).Increment)
			continue
		}
		s.must(s.WriteData(id, sent+n == len(large), []byte(large[sent:sent+n])))
		sent, window = sent+n, window-n
	}
	if r := <-got; r.err != nil || r.body != large {
		t.Errorf("got %d bytes, %v, want %d", len(r.body), r.err, len(large))
	}
}

// TestSmallerWindow: a server makes the windows of streams smaller while a request is sent.
func TestSmallerWindow(t *testing.T) {
	c, s := dial(t, h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1000})
	got := call(c, post(t.Context(), strings.Repeat("x", 1500)))
	id := s.next(h2.FrameHeaders).Header().StreamID
	s.next(h2.FrameData)
	s.must(s.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 100}))
	s.next(h2.FrameSettings)
	s.must(s.WriteWindowUpdate(id, 10)) // it is still below zero
	s.must(s.WriteWindowUpdate(id, 1390))
	if f := s.next(h2.FrameData).(*h2.DataFrame); len(f.Data()) != 500 || !f.StreamEnded() {
		t.Errorf("got %v", f)
	}
	s.headers(id, true, ":status", "200")
	if r := <-got; r.err != nil {
		t.Error(r.err)
	}
}

// TestReadAfterClose: the rest of a response that was closed is lost.
func TestReadAfterClose(t *testing.T) {
	c, s := dial(t)
	responded := make(chan *http.Response)
	go func() {
		resp, err := c.RoundTrip(post(t.Context(), "x"))
		if err != nil {
			t.Error(err)
		}
		responded <- resp
	}()
	id, _ := s.request()
	s.headers(id, false, ":status", "200")
	for range 3 {
		s.must(s.WriteData(id, false, make([]byte, maxFrame)))
	}
	resp := <-responded
	go func() { _, _ = io.Copy(io.Discard, s.conn) }()
	if n, err := resp.Body.Read(make([]byte, 10)); n != 10 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	resp.Body.Close()
	if n, err := resp.Body.Read(make([]byte, 10)); n != 0 || !errors.Is(err, errClosed) {
		t.Errorf("after Close: %d, %v", n, err)
	}
}

// TestFailures checks the caller's error for each error of a server.
func TestFailures(t *testing.T) {
	for name, row := range map[string]struct {
		do   func(s *server, id uint32)
		want string
		ends bool // the connection ends, too
	}{
		"reset":               {func(s *server, id uint32) { s.must(s.WriteRSTStream(id, h2.ErrCodeInternal)) }, "stream error: stream ID 1; INTERNAL_ERROR; received from peer", false},
		"refused":             {func(s *server, id uint32) { s.must(s.WriteRSTStream(id, h2.ErrCodeRefusedStream)) }, ErrUnprocessed.Error(), false},
		"GOAWAY":              {func(s *server, id uint32) { s.must(s.WriteGoAway(0, h2.ErrCodeNo, nil)) }, ErrUnprocessed.Error(), true},
		"closed":              {func(s *server, id uint32) { s.conn.Close() }, "unexpected EOF", true},
		"no status":           {func(s *server, id uint32) { s.headers(id, true, "a", "b") }, "stream error: stream ID 1; PROTOCOL_ERROR", false},
		"switch of protocols": {func(s *server, id uint32) { s.headers(id, false, ":status", "101") }, "stream error: stream ID 1; PROTOCOL_ERROR", false},
		"infos without end": {func(s *server, id uint32) {
			for range maxInfos + 1 {
				s.headers(id, false, ":status", "103")
			}
		}, "stream error: stream ID 1; PROTOCOL_ERROR", false},
		"large headers": {func(s *server, id uint32) {
			pairs := []string{":status", "200"}
			for range 30 {
				pairs = append(pairs, "a", strings.Repeat("b", 3000))
			}
			s.headers(id, true, pairs...)
		}, "stream error: stream ID 1; ENHANCE_YOUR_CALM", false},
		"body before headers": {func(s *server, id uint32) { s.must(s.WriteData(id, true, []byte("x"))) }, "stream error: stream ID 1; PROTOCOL_ERROR", false},
		"short body": {func(s *server, id uint32) {
			s.headers(id, false, ":status", "200", "content-length", "3")
			s.must(s.WriteData(id, true, []byte("x")))
		}, "unexpected EOF", false},
		"long body": {func(s *server, id uint32) {
			s.headers(id, false, ":status", "200", "content-length", "3")
			s.must(s.WriteData(id, false, []byte("xxxx")))
		}, "stream error: stream ID 1; PROTOCOL_ERROR", false},
		"a stream of the server": {func(s *server, id uint32) { s.headers(2, true, ":status", "200") }, "connection error: PROTOCOL_ERROR", true},
		"a stream that is not":   {func(s *server, id uint32) { s.must(s.WriteRSTStream(9, h2.ErrCodeNo)) }, "connection error: PROTOCOL_ERROR", true},
		"push": {func(s *server, id uint32) {
			s.must(s.WritePushPromise(h2.PushPromiseParam{StreamID: id, PromiseID: 2, BlockFragment: nil, EndHeaders: true}))
		}, "connection error: PROTOCOL_ERROR", true},
		"window": {func(s *server, id uint32) { s.must(s.WriteWindowUpdate(0, 1<<31-1)) }, "connection error: FLOW_CONTROL_ERROR", true},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := dial(t)
			got := call(c, post(t.Context(), "x"))
			id, _ := s.request()
			go func() { // discards the frames of the client
				_, _ = io.Copy(io.Discard, s.conn)
			}()
			row.do(s, id)
			if r := <-got; r.err == nil || r.err.Error() != row.want {
				t.Errorf("got %+v, want %s", r, row.want)
			}
			if c.Usable() == row.ends {
				t.Errorf("the connection is usable: %t", !row.ends)
			}
		})
	}
}

// TestEmptyFrames: a server that sends frames which bring nothing, without end, loses the connection. One that sends many
// useful frames does not.
func TestEmptyFrames(t *testing.T) {
	block := []byte{0x88} // :status 200
	for name, send := range map[string]func(s *server, id uint32) func() error{
		"DATA": func(s *server, id uint32) func() error {
			s.headers(id, false, ":status", "200")
			return func() error { return s.WriteData(id, false, nil) }
		},
		"padded DATA": func(s *server, id uint32) func() error {
			s.headers(id, false, ":status", "200")
			return func() error { return s.WriteDataPadded(id, false, nil, nil) }
		},
		"CONTINUATION": func(s *server, id uint32) func() error {
			s.must(s.WriteHeaders(h2.HeadersFrameParam{StreamID: id, BlockFragment: block}))
			return func() error { return s.WriteContinuation(id, false, nil) }
		},
		"PING":          func(s *server, _ uint32) func() error { return func() error { return s.WritePing(true, [8]byte{}) } },
		"SETTINGS":      func(s *server, _ uint32) func() error { return s.WriteSettingsAck },
		"WINDOW_UPDATE": func(s *server, id uint32) func() error { return func() error { return s.WriteWindowUpdate(id, 1) } },
		"unknown": func(s *server, _ uint32) func() error {
			return func() error { return s.WriteRawFrame(0xee, 0, 0, nil) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := dial(t)
			got := call(c, post(t.Context(), "x"))
			id, _ := s.request()
			go func() { _, _ = io.Copy(io.Discard, s.conn) }()
			one, sent := send(s, id), 0
			for ; one() == nil; sent++ {
				if sent > firstCredit+requestCredit {
					t.Fatalf("the server sent %d frames", sent)
				}
			}
			if r := <-got; !errors.Is(r.err, errFlood) {
				t.Errorf("after %d frames: %v", sent, r.err)
			}
		})
	}
	c, s := dial(t)
	for range 20 {
		got := call(c, post(t.Context(), "x"))
		id, _ := s.request()
		s.headers(id, false, ":status", "200")
		for range 1000 { // more frames than the first credit, in all
			s.must(s.WriteData(id, false, make([]byte, readPerCredit)))
		}
		s.must(s.WriteData(id, true, nil))
		if r := <-got; r.err != nil || len(r.body) != 1000*readPerCredit {
			t.Fatalf("many small frames: %d bytes, %v", len(r.body), r.err)
		}
	}
}

// TestBeyondTheWindow: a server that sends more than it may loses the stream, not the connection.
func TestBeyondTheWindow(t *testing.T) {
	c, s := dial(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://example.com/", nil)
	if err != nil {
		t.Fatal(err)
	}
	responded := make(chan *http.Response)
	go func() {
		resp, err := c.RoundTrip(r)
		if err != nil {
			t.Error(err)
		}
		responded <- resp
	}()
	id, _ := s.request()
	s.headers(id, false, ":status", "200")
	for range firstGrant / maxFrame {
		s.must(s.WriteData(id, false, make([]byte, maxFrame)))
	}
	resp := <-responded
	go func() { _ = s.WriteData(id, false, make([]byte, maxFrame)) }()
	if f := s.next(h2.FrameRSTStream).(*h2.RSTStreamFrame); f.ErrCode != h2.ErrCodeFlowControl {
		t.Errorf("got %v", f)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err == nil || err.Error() != "stream error: stream ID 1; FLOW_CONTROL_ERROR" {
		t.Error(err)
	}
	if !c.Usable() {
		t.Error("the connection takes no more requests")
	}
}

// TestDeadline: a call ends with its context, before and after the response has begun; the server learns of it.
func TestDeadline(t *testing.T) {
	for _, begun := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, s := dial(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			got := call(c, post(ctx, "x"))
			id, _ := s.request()
			if begun {
				s.headers(id, false, ":status", "200")
				s.must(s.WriteData(id, false, make([]byte, maxFrame)))
			}
			start := time.Now()
			if f := s.next(h2.FrameRSTStream).(*h2.RSTStreamFrame); f.ErrCode != h2.ErrCodeCancel {
				t.Errorf("got %v", f)
			}
			if r := <-got; !errors.Is(r.err, context.DeadlineExceeded) || time.Since(start) != time.Second {
				t.Errorf("got %v after %v", r.err, time.Since(start))
			}
			c.end(errIdle)
		})
	}
}

// TestUnread: a server that does not read holds up no call beyond its deadline, and loses the connection.
func TestUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := dial(t)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if r := <-call(c, post(ctx, "x")); !errors.Is(r.err, context.DeadlineExceeded) {
				t.Error(r.err)
			}
			cancel()
		}
		if r := <-call(c, post(t.Context(), "x")); !errors.Is(r.err, errStalled) {
			t.Error(r.err)
		}
	})
}

// TestSilence: a silent server gets a ping, and loses the connection if it does not respond.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := dial(t)
		got := call(c, post(t.Context(), "x"))
		s.request()
		ping := s.next(h2.FramePing).(*h2.PingFrame)
		s.must(s.WritePing(true, ping.Data))
		s.next(h2.FramePing)
		if r := <-got; !errors.Is(r.err, errSilent) {
			t.Error(r.err)
		}
		if !c.Ended() {
			t.Error("the connection is open")
		}
	})
}

// TestIdle: a connection without requests is closed.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := dial(t)
		for range 2 {
			s.must(s.WritePing(true, s.next(h2.FramePing).(*h2.PingFrame).Data))
		}
		start := time.Now()
		if f, err := s.ReadFrame(); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, %v", f, err)
		}
		if !c.Ended() || time.Since(start) > 90*time.Second {
			t.Errorf("closed: %t after %v", c.Ended(), time.Since(start))
		}
	})
}

// TestMaxStreams: a connection takes as many requests as the server allows, and no request after GOAWAY.
func TestMaxStreams(t *testing.T) {
	c, s := dial(t, h2.Setting{ID: h2.SettingMaxConcurrentStreams, Val: 1})
	got := call(c, post(t.Context(), "x"))
	id, _ := s.request()
	var another interface{ IsHTTP2NoCachedConnError() }
	if _, err := c.RoundTrip(post(t.Context(), "x")); !errors.As(err, &another) {
		t.Errorf("a second request: %v", err)
	}
	s.headers(id, true, ":status", "204")
	if r := <-got; r.err != nil || r.code != 204 {
		t.Errorf("got %+v", r)
	}
	if _, err := c.RoundTrip(post(t.Context(), "x")); !errors.As(err, &another) {
		t.Errorf("the transport has forgotten the connection, but it takes a request: %v", err)
	}
}

// TestFirstRequest: a server that takes no request is not dialed again and again.
func TestFirstRequest(t *testing.T) {
	c, _ := dial(t, h2.Setting{ID: h2.SettingMaxConcurrentStreams, Val: 0})
	if _, err := c.RoundTrip(post(t.Context(), "x")); !errors.Is(err, ErrUnprocessed) {
		t.Errorf("got %v", err)
	}
	c, s := dial(t)
	s.conn.Close()
	<-c.done
	if _, err := c.RoundTrip(post(t.Context(), "x")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

// TestManyCalls: calls of any size at once, with a server of net/http's module, each get their own response.
func TestManyCalls(t *testing.T) {
	r := testrand.New(t)
	here, there := net.Pipe()
	c := New(here, limits)
	//lint:ignore SA1019 http.Server needs TLS for HTTP/2, and serves no pipe
	go (&h2.Server{MaxConcurrentStreams: 300}).ServeConn(there, &h2.ServeConnOpts{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength%7 == 0 { // a response before the request is read
			fmt.Fprintf(w, "%d", r.ContentLength)
			return
		}
		_, _ = io.Copy(w, r.Body)
	})})
	defer c.end(errIdle)
	running := make(chan struct{}, firstStreams)
	var wg sync.WaitGroup
	for range 300 {
		size := r.IntN(1 << r.IntN(20))
		wg.Go(func() {
			body := strings.Repeat("x", size)
			want := body
			if size%7 == 0 {
				want = fmt.Sprint(size)
			}
			running <- struct{}{}
			defer func() { <-running }()
			if got := <-call(c, post(t.Context(), body)); got.err != nil || got.body != want {
				t.Errorf("%d bytes: got %d bytes, %v", size, len(got.body), got.err)
			}
		})
	}
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.streams) > 0 || len(c.queue) > 0 {
		t.Errorf("%d streams and %d bodies are left", len(c.streams), len(c.queue))
	}
}

// TestRandomFrames: a server that sends anything ends the connection or its streams, and nothing else.
func TestRandomFrames(t *testing.T) {
	r := testrand.New(t)
	for range 300 {
		c, s := dial(t)
		ctx, cancel := context.WithCancel(t.Context())
		a, b := call(c, post(ctx, "a")), call(c, post(ctx, strings.Repeat("b", 100_000)))
		go func() { _, _ = io.Copy(io.Discard, s.conn) }()
		for range r.IntN(20) {
			body := make([]byte, r.IntN(40))
			for i := range body {
				body[i] = byte(r.Uint32())
			}
			if r.IntN(3) == 0 { // :status 200
				body = append([]byte{0x88}, body[:min(len(body), r.IntN(3))]...)
			}
			if s.WriteRawFrame(h2.FrameType(r.IntN(11)), h2.Flags(r.Uint32()&uint32(r.Uint32())), uint32(r.IntN(5)), body) != nil {
				break
			}
		}
		cancel()
		<-a
		<-b
		c.end(errIdle)
	}
}
