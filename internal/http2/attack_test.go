package http2_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

// allocated returns how many bytes are allocated while f runs. It is for bubbles: only their goroutines run then.
func allocated(f func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc - before.TotalAlloc)
}

// TestHeaderCost: four times the fields cost about four times as much, however they are
// repeated, and a field of the table counts as much as one that is spelled out.
func TestHeaderCost(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	for name, fields := range map[string]func(n int) []string{
		"cookies":         func(n int) []string { return repeat(n, "cookie", "a=b") },
		"one name":        func(n int) []string { return repeat(n, "x-one", "value") },
		"one length":      func(n int) []string { return repeat(n, "content-length", "0") },
		"many names":      func(n int) []string { return numbered(n) },
		"large, repeated": func(n int) []string { return repeat(n/40, "cookie", strings.Repeat("c", 2000)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := server(t.Output())
				s.HeaderBytes = 1 << 20
				p, done := pipe(t, s, config, newHold())
				defer func() { p.c.NetConn().Close(); <-done }()
				p.hello(t)
				p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
				id := uint32(1)
				ask := func(n int) func() {
					all := fields(n)
					return func() {
						p.askMany(id, true, "/quick", all...)
						p.until("a response", ended(id))
						id += 2
					}
				}
				ask(100)()
				small, large := allocated(ask(4_000)), allocated(ask(16_000))
				if large > 8*small {
					t.Errorf("4 times the fields allocate %.1f times the bytes: %.0f, %.0f", large/small, small, large)
				}
				if name == "cookies" { // 3 bytes and 6 and 32, of 1 MiB
					p.askMany(id, true, "/quick", repeat(1<<20/41+1, "cookie", "a=b")...)
					p.until("431", func(f h2.Frame) bool {
						m, ok := f.(*h2.MetaHeadersFrame)
						return ok && m.StreamID == id && m.PseudoValue("status") == "431"
					})
				}
			})
		})
	}
}

func repeat(n int, name, value string) []string {
	all := make([]string, 0, 2*n)
	for range n {
		all = append(all, name, value)
	}
	return all
}

func numbered(n int) []string {
	all := make([]string, 0, 2*n)
	for i := range n {
		all = append(all, fmt.Sprint("x-", i), "")
	}
	return all
}

// askMany is ask for headers that need more than one frame.
func (p *client) askMany(id uint32, end bool, path string, fields ...string) {
	all := append([]string{":method", "GET", ":scheme", "https", ":authority", "localhost", ":path", path}, fields...)
	for i := 0; i < len(all); i += 2 {
		p.e.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]})
	}
	first := p.block.Next(16 << 10)
	p.WriteHeaders(h2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: end, EndHeaders: p.block.Len() == 0})
	for p.block.Len() > 0 {
		part := p.block.Next(16 << 10)
		p.WriteContinuation(id, p.block.Len() == 0, part)
	}
	p.block.Reset()
}

// floods are endless series of frames that cost a client little: from CVEs of other
// servers, and similar ones. do gets the index of its call.
var floods = []struct {
	name string
	do   func(p *client, i int)
	free bool // it costs the server as little, or less: the connection goes on
}{
	{name: "PING (CVE-2019-9512)", do: func(p *client, _ int) { p.WritePing(false, [8]byte{}) }},
	{name: "PING, acknowledged", do: func(p *client, _ int) { p.WritePing(true, [8]byte{}) }},
	{name: "SETTINGS (CVE-2019-9515)", do: func(p *client, _ int) { p.WriteSettings() }},
	{name: "SETTINGS, acknowledged", do: func(p *client, _ int) { p.WriteSettingsAck() }},
	{name: "SETTINGS that wake all streams", do: func(p *client, i int) {
		if i == 0 {
			for id := uint32(1); id < 200; id += 2 {
				p.ask(id, true, "GET", "/flood")
			}
		}
		p.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: uint32(i % 2)})
	}},
	{name: "RST_STREAM (CVE-2019-9514, CVE-2023-44487)", do: func(p *client, i int) {
		p.ask(uint32(2*i+1), true, "GET", "/hold")
		p.WriteRSTStream(uint32(2*i+1), h2.ErrCodeCancel)
	}},
	{name: "RST_STREAM of streams that have ended", do: func(p *client, i int) {
		if i == 0 {
			p.ask(1, true, "GET", "/quick")
		}
		p.WriteRSTStream(1, h2.ErrCodeCancel)
	}},
	{name: "resets by the server: a window that overflows (CVE-2025-8671)", do: func(p *client, i int) {
		p.ask(uint32(2*i+1), true, "GET", "/hold")
		p.WriteWindowUpdate(uint32(2*i+1), 1<<31-1)
	}},
	{name: "resets by the server: an increment of nothing", do: func(p *client, i int) {
		p.ask(uint32(2*i+1), true, "GET", "/hold")
		p.WriteWindowUpdate(uint32(2*i+1), 0)
	}},
	{name: "resets by the server: a body after its end", do: func(p *client, i int) {
		p.ask(uint32(2*i+1), true, "GET", "/hold")
		p.WriteData(uint32(2*i+1), false, nil)
	}},
	{name: "resets by the server: a body that is not as long as it says", do: func(p *client, i int) {
		p.ask(uint32(2*i+1), false, "POST", "/hold", "content-length", "5")
		p.WriteData(uint32(2*i+1), true, nil)
	}},
	{name: "resets by the server: headers that no request may have", do: func(p *client, i int) {
		p.ask(uint32(2*i+1), true, "GET", "/hold", "connection", "close")
	}},
	{name: "resets by the server: a stream that waits for itself", do: func(p *client, i int) {
		p.WritePriority(1, h2.PriorityParam{StreamDep: 1})
	}},
	{name: "resets by the server: more streams than there may be", do: func(p *client, i int) {
		p.ask(uint32(2*i+1), true, "GET", "/hold")
	}},
	{name: "PRIORITY (CVE-2019-9513)", do: func(p *client, i int) { p.WritePriority(uint32(2*i+1), h2.PriorityParam{Weight: byte(i)}) }},
	{name: "frames of no meaning", do: func(p *client, _ int) { p.WriteRawFrame(0xee, 0, 0, nil) }},
	{name: "DATA of nothing (CVE-2019-9518)", do: func(p *client, i int) {
		if i == 0 {
			p.ask(1, false, "POST", "/read")
		}
		p.WriteData(1, false, nil)
	}},
	{name: "DATA of padding", do: func(p *client, i int) {
		if i == 0 {
			p.ask(1, false, "POST", "/read")
		}
		p.WriteDataPadded(1, false, nil, []byte{0})
	}},
	{name: "windows of a byte (CVE-2019-9511)", do: func(p *client, i int) {
		if i == 0 {
			p.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 0})
			p.ask(1, true, "GET", "/flood")
		}
		p.WriteWindowUpdate(1, 1)
	}},
	{name: "HEADERS without names (CVE-2019-9516)", do: func(p *client, i int) {
		p.WriteHeaders(h2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: bytes.Repeat([]byte{0x40, 0, 0}, 20), EndHeaders: true})
	}},
	{name: "CONTINUATION of nothing (CVE-2024-27316)", do: func(p *client, i int) {
		if i == 0 {
			p.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
		}
		p.WriteContinuation(1, false, nil)
	}},
	{name: "CONTINUATION of a byte", do: func(p *client, i int) {
		if i == 0 {
			p.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
		}
		p.WriteContinuation(1, false, []byte{0x82})
	}},
	{name: "a name that comes byte by byte", do: func(p *client, i int) {
		if i == 0 { // its length is 50,000
			p.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: hpack.AppendHuffmanString([]byte{0x00, 0x7f, 0xd1, 0x85, 0x03}, "a")})
		}
		p.WriteContinuation(1, false, []byte("a"))
	}},
	{name: "DATA of a byte, padded", free: true, do: func(p *client, i int) {
		if i == 0 {
			p.ask(1, false, "POST", "/read")
		}
		if i < 10_000 { // the window
			p.WriteDataPadded(1, false, []byte{1}, []byte{0})
		}
	}},
	{name: "windows of streams that have ended", free: true, do: func(p *client, i int) {
		if i == 0 {
			p.ask(1, true, "GET", "/quick")
		}
		p.WriteWindowUpdate(1, 100)
	}},
	{name: "windows", free: true, do: func(p *client, i int) { p.WriteWindowUpdate(0, 100) }},
}

// TestFloods checks that a client that sends cheap frames without end is disconnected, or costs
// little.
func TestFloods(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	for _, flood := range floods {
		t.Run(flood.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const turns = 12_000
				s := server(io.Discard)
				h := newHold()
				h.ended = make(chan error, 2*turns)
				p, done := pipe(t, s, config, h)
				p.hello(t)
				var all bytes.Buffer
				out := &client{Framer: h2.NewFramer(&all, nil), t: t, e: p.e}
				out.AllowIllegalWrites = true
				out.e = hpack.NewEncoder(&out.block)
				for i := range turns {
					flood.do(out, i)
				}
				if flood.free {
					out.ask(20_001, true, "GET", "/quick")
				}
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					p.c.Write(all.Bytes())
				}()
				if flood.free {
					p.until("a response", ended(20_001))
				} else if code := p.code(); code != h2.ErrCodeEnhanceYourCalm {
					t.Errorf("GOAWAY with %v", code)
				}
				if n := h.running.Load(); n > 200 {
					t.Errorf("%d handlers run", n)
				}
				p.c.NetConn().Close()
				<-done
				<-sent
			})
		})
	}
}

// TestStuckResponses: no response waits for its client longer than the server's limit, even if
// it responds to a request with too large headers. A handler with a small response returns at once.
func TestStuckResponses(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	for name, test := range map[string]struct {
		path   string
		fields int // of 1,000 bytes
		leaves bool
	}{
		"too large":        {"/quick", 70, true},
		"a small response": {"/small", 0, true},
		"of no length":     {"/quick", 0, false},
		"a large response": {"/flood", 0, false},
		"a small last one": {"/parts", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				returned := make(chan time.Time, 1)
				h := newHold()
				h.ended = make(chan error, 1)
				p, done := pipe(t, server(t.Output()), config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch r.URL.Path {
					case "/small":
						w.Header().Set("Content-Length", "16384")
						w.Write(big(16 << 10))
					case "/parts":
						w.Header().Set("Content-Length", "32")
						w.Write(big(16))
						w.Write(big(16))
					default:
						h.ServeHTTP(w, r)
					}
					returned <- time.Now()
				}))
				defer func() { p.c.NetConn().Close(); <-done }()
				p.hello(t, h2.Setting{ID: h2.SettingInitialWindowSize, Val: 0})
				begin := time.Now()
				go p.askMany(1, true, test.path, repeat(test.fields, "x", strings.Repeat("~", 1000))...)
				p.until("headers", isHeaders(1))
				if code := p.reset(1); code != h2.ErrCodeInternal {
					t.Errorf("reset with %v", code)
				}
				if took := time.Since(begin); took != time.Minute {
					t.Errorf("it was given up after %v", took)
				}
				if test.fields > 0 {
					return // its handler is not ours
				}
				if took := (<-returned).Sub(begin); took == 0 != test.leaves {
					t.Errorf("the handler returned after %v", took)
				}
			})
		})
	}
}

// TestGone: after GOAWAY the connection closes in time, whatever the client sends.
func TestGone(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	synctest.Test(t, func(t *testing.T) {
		p, done := pipe(t, server(t.Output()), config, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
		}))
		p.hello(t)
		p.ask(1, true, "GET", "/")
		code := p.code()
		begin := time.Now()
		if code != h2.ErrCodeNo {
			t.Errorf("GOAWAY with %v", code)
		}
		go io.Copy(io.Discard, p.c)
		for id := uint32(3); ; id += 2 {
			p.WritePing(false, [8]byte{})
			p.ask(id, true, "GET", "/")
			select {
			case <-done:
				if took := time.Since(begin); took != time.Second {
					t.Errorf("gone after %v", took)
				}
				return
			case <-time.After(100 * time.Millisecond):
				if time.Since(begin) > time.Hour {
					t.Fatal("it goes on")
				}
			}
		}
	})
}

// TestConnectionCloseOfMany: requests that run end as they would when one of them has the
// client go; the GOAWAY names the last of them, and no response says "connection".
func TestConnectionCloseOfMany(t *testing.T) {
	t.Parallel()
	proceed := make(chan struct{})
	ts := start(t, server(t.Output()), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/close" {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.NewResponseController(w).Flush()
		<-proceed
		io.WriteString(w, "the end")
	}))
	p := dial(t, ts)
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	heads := map[uint32]string{}
	response := func(id uint32) func(h2.Frame) bool {
		return func(f h2.Frame) bool {
			if m, ok := f.(*h2.MetaHeadersFrame); ok {
				heads[m.StreamID] = m.PseudoValue("status")
				for _, field := range m.Fields {
					if field.Name == "connection" {
						t.Errorf("%v", field)
					}
				}
				return m.StreamID == id
			}
			return false
		}
	}
	p.ask(1, true, "GET", "/")
	p.until("headers", response(1))
	p.ask(3, true, "GET", "/close")
	p.until("401", response(3))
	p.until("GOAWAY", func(f h2.Frame) bool {
		away, ok := f.(*h2.GoAwayFrame)
		if ok && (away.LastStreamID != 3 || away.ErrCode != h2.ErrCodeNo) {
			t.Errorf("%v", away)
		}
		return ok
	})
	p.ask(5, true, "GET", "/")
	close(proceed)
	p.until("the end", func(f h2.Frame) bool {
		d, ok := f.(*h2.DataFrame)
		return ok && d.StreamID == 1 && d.StreamEnded()
	})
	for {
		if _, err := p.ReadFrame(); err != nil {
			break // the server closes it
		}
	}
	if heads[3] != "401" || heads[5] != "" {
		t.Errorf("responds: %v", heads)
	}
}

// TestIdleMemory checks that an idle connection does not keep the memory of large headers, frames
// and bodies.
func TestIdleMemory(t *testing.T) {
	tier.Full(t)
	const connections = 40
	for name, use := range map[string]func(p *client){
		"headers": func(p *client) {
			p.askMany(1, true, "/quick", repeat(20_000, "cookie", "a=b")...)
			p.until("a response", ended(1))
		},
		"a large field": func(p *client) {
			p.askMany(1, true, "/quick", "x-large", strings.Repeat("~", 900_000))
			p.until("a response", ended(1))
		},
		"too large headers": func(p *client) {
			p.askMany(1, true, "/quick", repeat(12, "x-large", strings.Repeat("x", 100_000))...)
			p.until("a response", ended(1))
		},
		"a body": func(p *client) {
			p.ask(1, false, "POST", "/read")
			for range 3 {
				p.WriteData(1, false, big(16<<10))
			}
			p.WriteData(1, true, nil)
			p.until("a response", ended(1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t.Output())
			s.HeaderBytes = 1 << 20
			ts := start(t, s, newHold())
			heap := func() int {
				runtime.GC()
				runtime.GC() // memory that pools keep for one more cycle
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int(m.HeapAlloc)
			}
			all := make([]*client, connections)
			for i := range all {
				all[i] = dial(t, ts)
				all[i].ask(99, true, "GET", "/quick")
				all[i].until("a response", ended(99))
			}
			before := heap()
			for i := range all {
				all[i].c.Close()
				all[i] = dial(t, ts)
				use(all[i])
				all[i].block, all[i].e, all[i].Framer = bytes.Buffer{}, nil, nil
			}
			const most = 96 << 10 // of it TLS keeps records, on both sides
			each := (heap() - before) / connections
			for begin := time.Now(); each > most && time.Since(begin) < time.Minute; each = (heap() - before) / connections {
				time.Sleep(10 * time.Millisecond) // the server releases it after its response
			}
			t.Logf("%d KiB more for each connection", each>>10)
			if each > most {
				t.Errorf("an idle connection keeps %d KiB", each>>10)
			}
			runtime.KeepAlive(all)
		})
	}
}
