package http2_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tidemark-dev/tidemark/internal/http2"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// pool connects many clients to one server, without a network.
type pool struct {
	t      *testing.T
	s      *http2.Server
	config *tls.Config
	h      http.Handler
	wg     sync.WaitGroup
	known  sync.Map // net.Conn of a client that has authenticated
}

func newPool(t *testing.T, s *http2.Server, config *tls.Config, h http.Handler) *pool {
	p := &pool{t: t, s: s, config: config, h: h}
	s.Authenticated = func(c net.Conn) bool { _, ok := p.known.Load(c); return ok }
	return p
}

// dial connects a client. The channel is closed when the server has closed its connection.
func (l *pool) dial(known bool, settings ...h2.Setting) (*client, chan struct{}) {
	far, near := net.Pipe()
	if known {
		l.known.Store(far, true)
	}
	done := make(chan struct{})
	l.wg.Go(func() {
		defer close(done)
		c := tls.Server(far, l.config)
		if err := c.Handshake(); err != nil {
			l.t.Error(err)
			return
		}
		l.s.Serve(nil, c, l.h)
	})
	c := tls.Client(near, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err := c.Handshake(); err != nil {
		l.t.Fatal(err)
	}
	p := &client{Framer: h2.NewFramer(c, c), t: l.t, c: c}
	p.e = hpack.NewEncoder(&p.block)
	p.hello(l.t, settings...)
	return p, done
}

func isOpen(done chan struct{}) bool {
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// TestBudgetOfHeaders: header blocks that do not end stay within the budget. Strangers pay
// for it, those with the most first.
func TestBudgetOfHeaders(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	synctest.Test(t, func(t *testing.T) {
		s := server(io.Discard)
		s.TransportBytes = 1 << 20
		l := newPool(t, s, config, newHold())
		begin := func(p *client, frames int) {
			p.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
			for range frames {
				p.WriteContinuation(1, false, big(16<<10))
			}
		}
		known, knownDone := l.dial(true)
		begin(known, 7)
		small, smallDone := l.dial(false)
		begin(small, 3)
		var ends []chan struct{}
		for range 20 { // 112 KiB each
			p, done := l.dial(false)
			begin(p, 7)
			ends = append(ends, done)
		}
		time.Sleep(200 * time.Millisecond)
		if used := s.TransportUsed(); used > s.TransportBytes || used < s.TransportBytes/2 {
			t.Errorf("%d bytes are held, of %d", used, s.TransportBytes)
		}
		left := 0
		for _, done := range ends {
			if isOpen(done) {
				left++
			}
		}
		if left < 5 || left > 9 || !isOpen(knownDone) || !isOpen(smallDone) {
			t.Errorf("%d large ones are left; known: %v, small: %v", left, isOpen(knownDone), isOpen(smallDone))
		}
		time.Sleep(http2.DefaultHeaderTimeout + 2*time.Second) // each block has its time
		l.wg.Wait()
		s.Shutdown()
		if used := s.TransportUsed(); used != 0 {
			t.Errorf("%d bytes are held in the end", used)
		}
	})
}

// TestBudgetOfFields: the headers of a request count as the memory that they take, which is more than their bytes if there
// are many short ones.
func TestBudgetOfFields(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	synctest.Test(t, func(t *testing.T) {
		s := server(io.Discard)
		s.HeaderBytes, s.TransportBytes = 1<<20, 64<<20
		l := newPool(t, s, config, newHold())
		p, _ := l.dial(true)
		const fields, least = 10_000, 120 // bytes of each
		p.askMany(1, true, "/hold", numbered(fields)...)
		p.until("the response", func(f h2.Frame) bool { return f.Header().Type == h2.FrameHeaders })
		if used := s.TransportUsed(); used < least*fields {
			t.Errorf("%d fields count as %d bytes, want %d at least", fields, used, least*fields)
		}
		p.c.NetConn().Close()
		l.wg.Wait()
		s.Shutdown()
		if used := s.TransportUsed(); used != 0 {
			t.Errorf("%d bytes are held in the end", used)
		}
	})
}

// TestBudgetOfWaiting: a handler that waits for an unauthenticated client counts with its stack and its buffers. So clients
// that ask much and read nothing lose their connections, and one that is authenticated does not.
func TestBudgetOfWaiting(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	synctest.Test(t, func(t *testing.T) {
		s := server(io.Discard)
		s.TransportBytes = 8 << 20
		l := newPool(t, s, config, newHold())
		const requests, least = 20, 40 << 10 // bytes of each
		ask := func(known bool) (done chan struct{}) {
			p, done := l.dial(known)
			for i := range uint32(requests) {
				p.ask(2*i+1, true, "GET", "/flood")
			}
			synctest.Wait()
			return done
		}
		ask(false)
		if used := s.TransportUsed(); used < requests*least {
			t.Errorf("%d handlers that wait count as %d bytes, want %d at least", requests, used, requests*least)
		}
		known := ask(true)
		var ends []chan struct{}
		for range 20 {
			ends = append(ends, ask(false))
		}
		time.Sleep(200 * time.Millisecond)
		left := 0
		for _, done := range ends {
			if isOpen(done) {
				left++
			}
		}
		if used := s.TransportUsed(); used > s.TransportBytes || left > 8 || !isOpen(known) {
			t.Errorf("%d bytes of %d are held; of 20 connections %d are left; the authenticated one: %v", used, s.TransportBytes, left, isOpen(known))
		}
		time.Sleep(time.Minute)
		l.wg.Wait()
		s.Shutdown()
		if used := s.TransportUsed(); used != 0 {
			t.Errorf("%d bytes are held in the end", used)
		}
	})
}

// TestBudgetCost: ending connections costs in proportion to how many there are. The server
// asks of a connection whether its client has authenticated each time it looks at it.
func TestBudgetCost(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	looks := func(connections int) (n int64) {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			s := server(&log)
			s.TransportBytes = 256 << 10
			l := newPool(t, s, config, newHold())
			var count atomic.Int64
			authenticated := s.Authenticated
			s.Authenticated = func(c net.Conn) bool {
				count.Add(1)
				return authenticated(c)
			}
			for range connections {
				p, _ := l.dial(false)
				go func() { // some are ended while they write
					p.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
					p.WriteContinuation(1, false, big(16<<10))
					p.WriteContinuation(1, false, big(16<<10))
				}()
			}
			time.Sleep(time.Second)
			if used := s.TransportUsed(); used > s.TransportBytes || used < s.TransportBytes/2 {
				t.Errorf("%d bytes are held, of %d", used, s.TransportBytes)
			}
			n = count.Load()
			time.Sleep(2 * http2.DefaultHeaderTimeout)
			l.wg.Wait()
			s.Shutdown()
			if lines := strings.Count(log.String(), "connections were ended"); lines == 0 || lines > 2 {
				t.Errorf("the log has %d lines:\n%s", lines, log.String())
			}
		})
		return n
	}
	few, many := looks(40), looks(160)
	if t.Logf("40 connections: %d looks, 160: %d", few, many); many > 8*few {
		t.Errorf("4 times the connections cost %d times as much", many/few)
	}
}

// TestBudgetOfResponses: responses that are not read stay within the budget, and clients that
// do read get theirs.
func TestBudgetOfResponses(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	synctest.Test(t, func(t *testing.T) {
		s := server(io.Discard)
		s.TransportBytes = 1 << 20
		h := newHold()
		h.ended = make(chan error, 100)
		l := newPool(t, s, config, h)
		window := h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1<<31 - 1}
		var all []*client
		for range 12 {
			p, _ := l.dial(true, window)
			p.WriteWindowUpdate(0, 1<<30)
			p.ask(1, true, "GET", "/flood")
			all = append(all, p)
		}
		time.Sleep(5 * time.Second) // the server may wait for each of them, for 1 minute
		if used := s.TransportUsed(); used > s.TransportBytes {
			t.Errorf("%d bytes are held, of %d", used, s.TransportBytes)
		}
		if n := h.running.Load(); n == 0 || n == 12 {
			t.Errorf("%d of 12 are left", n)
		}
		p, _ := l.dial(true)
		p.ask(1, true, "GET", "/quick")
		p.until("a response", ended(1))
		for _, p := range append(all, p) {
			p.c.NetConn().Close()
		}
		l.wg.Wait()
		s.Shutdown()
		if used := s.TransportUsed(); used != 0 {
			t.Errorf("%d bytes are held in the end", used)
		}
	})
}

// TestBudgetOfBodies: over the budget no client gets room for more of a body, until there
// is some again.
func TestBudgetOfBodies(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	synctest.Test(t, func(t *testing.T) {
		s := server(io.Discard)
		s.TransportBytes = 128 << 10
		read := make(chan struct{})
		var got atomic.Int64
		l := newPool(t, s, config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/later" {
				<-read
			}
			buf := make([]byte, 1<<10)
			for {
				n, err := r.Body.Read(buf)
				if r.URL.Path == "/now" {
					got.Add(int64(n))
				}
				if err != nil {
					return
				}
			}
		}))
		later, _ := l.dial(true)
		later.ask(1, false, "POST", "/later")
		for range 12 {
			later.WriteData(1, false, big(16<<10))
		}
		synctest.Wait()
		now, _ := l.dial(true)
		now.ask(1, false, "POST", "/now")
		grants := make(chan int, 100)
		go func() {
			defer close(grants)
			for {
				f, err := now.ReadFrame()
				if err != nil {
					return
				}
				if w, ok := f.(*h2.WindowUpdateFrame); ok && w.StreamID == 0 {
					grants <- int(w.Increment)
				}
			}
		}()
		go io.Copy(io.Discard, later.c)
		for range 3 {
			now.WriteData(1, false, big(16<<10))
		}
		time.Sleep(time.Second)
		if got.Load() != 3*16<<10 || len(grants) > 0 {
			t.Errorf("%d bytes were read, %d times more was allowed", got.Load(), len(grants))
		}
		close(read)
		if n := <-grants; n < 200<<10 { // as much again, and more than strangers have
			t.Errorf("%d bytes more are allowed", n)
		}
		later.c.NetConn().Close()
		now.c.NetConn().Close()
		l.wg.Wait()
		s.Shutdown()
	})
}

// strangers returns a pool whose handler is a hold. It is for bubbles.
func strangers(t *testing.T, config *tls.Config) *pool {
	h := newHold()
	h.ended = make(chan error, 1000)
	return newPool(t, server(io.Discard), config, h)
}

// end waits until all connections are closed.
func (l *pool) end() {
	l.wg.Wait()
	l.s.Shutdown()
}

// TestStrangers checks that a client that has not authenticated has less room, for unread
// responses, for bodies, and for headers, and that it is disconnected in time after a GOAWAY.
func TestStrangers(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	t.Run("responses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := strangers(t, config)
			defer l.end()
			// The responses are more than two send buffers of a stranger: one is being written while the next one grows.
			const pings = 9000
			for _, known := range []bool{false, true} {
				p, _ := l.dial(known)
				var many bytes.Buffer
				for f := h2.NewFramer(&many, nil); many.Len() < pings*17; {
					f.WritePing(false, [8]byte{})
				}
				go p.c.Write(many.Bytes())
				synctest.Wait() // nothing is read
				pongs, code := 0, h2.ErrCodeNo
				for pongs < pings && code == h2.ErrCodeNo {
					f, err := p.ReadFrame()
					if err != nil {
						break
					}
					switch f := f.(type) {
					case *h2.PingFrame:
						pongs++
					case *h2.GoAwayFrame:
						code = f.ErrCode
					}
				}
				if calm := code == h2.ErrCodeEnhanceYourCalm; calm == known {
					t.Errorf("known: %v; %d pongs, %v", known, pongs, code)
				}
				p.c.NetConn().Close()
			}
		})
	})
	t.Run("bodies", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := strangers(t, config)
			defer l.end()
			p, _ := l.dial(false)
			p.ask(1, false, "POST", "/hold")
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for range 5 {
					p.WriteData(1, false, big(16<<10))
				}
			}()
			if code := p.code(); code != h2.ErrCodeFlowControl {
				t.Errorf("%v", code)
			}
			p.c.NetConn().Close()
			<-sent
		})
	})
	t.Run("headers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := strangers(t, config)
			defer l.end()
			p, _ := l.dial(false)
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for id := uint32(1); id < 100; id += 2 { // 60 KiB each
					p.askMany(id, true, "/hold", repeat(60, "x", string(big(992)))...)
				}
			}()
			refused := 0
			go func() {
				for {
					f, err := p.ReadFrame()
					if err != nil {
						return
					}
					if r, ok := f.(*h2.RSTStreamFrame); ok && r.ErrCode == h2.ErrCodeRefusedStream {
						refused++
					}
				}
			}()
			<-sent
			synctest.Wait()
			if n := l.h.(*hold).running.Load(); n < 30 || n > 36 || int(n)+refused != 50 {
				t.Errorf("%d requests run, %d were refused", n, refused)
			}
			p.c.NetConn().Close()
		})
	})
	t.Run("the ends of responses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := strangers(t, config)
			defer l.end()
			for known, want := range map[bool]int64{false: 4, true: 100} { // of 16 KiB each
				var returned atomic.Int64
				l.h = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Length", "16384")
					w.Write(big(16 << 10))
					returned.Add(1)
				})
				p, done := l.dial(known, h2.Setting{ID: h2.SettingInitialWindowSize, Val: 0})
				go io.Copy(io.Discard, p.c)
				for id := uint32(1); id < 200; id += 2 {
					p.ask(id, true, "GET", "/")
				}
				synctest.Wait()
				if n := returned.Load(); n != want {
					t.Errorf("known: %v; %d handlers have returned, want %d", known, n, want)
				}
				p.c.NetConn().Close()
				<-done
				synctest.Wait()
				if used := l.s.TransportUsed(); used != 0 {
					t.Errorf("known: %v; %d bytes are held in the end", known, used)
				}
			}
		})
	})
	t.Run("the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := strangers(t, config)
			defer l.end()
			for _, known := range []bool{false, true} {
				p, done := l.dial(known)
				p.ask(1, true, "GET", "/hold")
				p.until("headers", isHeaders(1))
				begin := time.Now()
				p.WriteGoAway(0, h2.ErrCodeNo, nil)
				go io.Copy(io.Discard, p.c)
				if !known {
					<-done
					if took := time.Since(begin); took != time.Minute {
						t.Errorf("it was closed after %v", took)
					}
					continue
				}
				time.Sleep(time.Hour)
				if !isOpen(done) {
					t.Error("a watch was cut off")
				}
				p.c.NetConn().Close()
			}
		})
	})
}

// TestSlowHeaders: a header block has a time, whatever else the connection does.
func TestSlowHeaders(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	synctest.Test(t, func(t *testing.T) {
		s := server(io.Discard)
		s.HeaderTimeout = 20 * time.Second
		h := newHold()
		h.ended = make(chan error, 10)
		p, done := pipe(t, s, config, h)
		p.hello(t)
		p.ask(1, true, "GET", "/hold")
		p.until("headers", isHeaders(1))
		time.Sleep(time.Hour)
		p.WriteHeaders(h2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x82}}) // in time
		time.Sleep(15 * time.Second)
		p.WriteContinuation(3, true, []byte{0x87, 0x84})
		p.reset(3) // it gets a response before the end of its body
		time.Sleep(time.Hour)
		begin := time.Now()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			p.WriteHeaders(h2.HeadersFrameParam{StreamID: 5, BlockFragment: []byte{0x82}})
			for time.Sleep(7 * time.Second); ; time.Sleep(7 * time.Second) {
				if p.WriteContinuation(5, false, []byte{0x82}) != nil {
					return
				}
			}
		}()
		if code := p.code(); code != h2.ErrCodeEnhanceYourCalm || time.Since(begin) != 20*time.Second {
			t.Errorf("GOAWAY with %v after %v", code, time.Since(begin))
		}
		go io.Copy(io.Discard, p.c)
		<-done
		p.c.NetConn().Close()
		<-sent
	})
}

// TestLeft checks that data that a handler leaves for the stream to send arrives whole, in order
// and with its end, for any order of window updates.
func TestLeft(t *testing.T) {
	rnd := testrand.New(t)
	s := server(t.Output())
	whole := big(1 << 15)
	ts := start(t, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.Header.Get("X-Size"))
		w.Header()["Content-Length"] = r.Header["X-Size"]
		for at := 0; at < n; at += 5000 {
			w.Write(whole[at:min(at+5000, n)])
		}
	}))
	p := dial(t, ts, h2.Setting{ID: h2.SettingInitialWindowSize, Val: uint32(rnd.IntN(3000))})
	const streams = 90
	sizes, got := map[uint32]int{}, map[uint32][]byte{}
	for i := range uint32(streams) {
		id := 2*i + 1
		sizes[id] = 1 + rnd.IntN(20_000)
		p.ask(id, true, "GET", "/", "x-size", strconv.Itoa(sizes[id]))
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			p.WriteWindowUpdate(uint32(2*rnd.IntN(streams)+1), uint32(100+rnd.IntN(4000)))
			p.WriteWindowUpdate(0, uint32(100+rnd.IntN(4000)))
			if i%100 == 0 {
				p.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: uint32(rnd.IntN(3000))})
			}
			if i > 20_000 { // windows may be negative
				p.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1 << 20})
				p.WriteWindowUpdate(0, 1<<26)
				return
			}
		}
	})
	for left := streams; left > 0; {
		p.until("the end of a response", func(f h2.Frame) bool {
			if d, ok := f.(*h2.DataFrame); ok {
				got[d.StreamID] = append(got[d.StreamID], d.Data()...)
				return d.StreamEnded()
			}
			if r, ok := f.(*h2.RSTStreamFrame); ok {
				t.Fatalf("%d was reset: %v", r.StreamID, r.ErrCode)
			}
			return false
		})
		left--
	}
	close(stop)
	wg.Wait()
	for id, size := range sizes {
		if !bytes.Equal(got[id], whole[:size]) {
			t.Errorf("stream %d: %d bytes of %d", id, len(got[id]), size)
		}
	}
}
