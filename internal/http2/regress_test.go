package http2_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	h2 "golang.org/x/net/http2"
)

func isWindow(id uint32) func(h2.Frame) bool {
	return func(f h2.Frame) bool { w, ok := f.(*h2.WindowUpdateFrame); return ok && w.StreamID == id }
}

func isHeaders(id uint32) func(h2.Frame) bool {
	return func(f h2.Frame) bool { h, ok := f.(*h2.HeadersFrame); return ok && h.StreamID == id }
}

func isPong(f h2.Frame) bool { p, ok := f.(*h2.PingFrame); return ok && p.IsAck() }

// TestHeadsNotRead: responses without a body are bounded too, though their streams have
// ended before they are sent.
func TestHeadsNotRead(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	synctest.Test(t, func(t *testing.T) {
		var served atomic.Int64
		s := server(t.Output())
		p, done := pipe(t, s, config, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", fmt.Sprint(served.Add(1), strings.Repeat("~", 500)))
		}))
		p.hello(t)
		for id := uint32(1); ; id += 2 {
			var b bytes.Buffer
			p.Framer = h2.NewFramer(&b, nil)
			p.ask(id, true, "HEAD", "/")
			if _, err := p.c.Write(b.Bytes()); err != nil {
				break
			}
			time.Sleep(time.Millisecond) // for a second after a GOAWAY, the server discards its input
			if served.Load() > 10_000 {
				t.Fatal("the connection goes on")
			}
		}
		<-done
	})
}

// TestLateContinue: a handler that has responded does not ask for the body any more.
func TestLateContinue(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	synctest.Test(t, func(t *testing.T) {
		p, done := pipe(t, server(t.Output()), config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			http.NewResponseController(w).Flush()
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			io.Copy(io.Discard, r.Body)
			io.WriteString(w, "no")
		}))
		defer func() { p.c.NetConn().Close(); <-done }()
		p.hello(t)
		p.ask(1, false, "POST", "/", "expect", "100-continue")
		heads := 0
		p.until("the end", func(f h2.Frame) bool {
			if isHeaders(1)(f) {
				heads++
			}
			return ended(1)(f)
		})
		if heads != 1 {
			t.Errorf("%d times headers", heads)
		}
	})
}

// TestPadding: it is given back, of the stream and of the connection.
func TestPadding(t *testing.T) {
	h := newHold()
	ts := start(t, server(t.Output()), h)
	p := dial(t, ts)
	p.ask(1, false, "POST", "/read")
	const frames, size = 2000, 1 + 1000 + 255
	windows := map[uint32]int{0: 65535, 1: 256 << 10}
	take := func() bool {
		f, err := p.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if w, ok := f.(*h2.WindowUpdateFrame); ok {
			windows[w.StreamID] += int(w.Increment)
		}
		s, ok := f.(*h2.SettingsFrame)
		return ok && s.IsAck()
	}
	for !take() {
	}
	for range frames {
		for windows[0] < size || windows[1] < size {
			take()
		}
		windows[0], windows[1] = windows[0]-size, windows[1]-size
		p.WriteDataPadded(1, false, make([]byte, 1000), make([]byte, 255))
	}
	p.WriteData(1, true, nil)
	if err := <-h.ended; err != nil {
		t.Error(err)
	}
}

// TestLate: who goes on after its handler has returned gets an error, and the client
// nothing.
func TestLate(t *testing.T) {
	late := make(chan http.ResponseWriter, 1)
	ts := start(t, server(t.Output()), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello")
		late <- w
	}))
	p := dial(t, ts)
	p.ask(1, true, "GET", "/")
	p.until("the end", ended(1))
	w := <-late
	p.WritePing(false, [8]byte{})
	p.until("a pong", isPong) // the handler has returned
	for range 2 {
		if n, err := w.Write(big(1 << 20)); n != 0 || err == nil {
			t.Errorf("%d bytes written late, %v", n, err)
		}
		if err := http.NewResponseController(w).Flush(); err == nil {
			t.Error("flushed late")
		}
		p.c.Close() // and again without a connection
	}
}

// TestQueue: a stream that cannot go on lets the next one, that waits for the
// connection too.
func TestQueue(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	synctest.Test(t, func(t *testing.T) {
		h := newHold()
		h.ended = make(chan error, 10)
		p, done := pipe(t, server(t.Output()), config, h)
		p.hello(t, h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1 << 20})
		p.ask(1, true, "GET", "/flood")
		for got := 0; got < 65535; {
			p.until("data", func(f h2.Frame) bool { d, ok := f.(*h2.DataFrame); got += len(data(d)); return ok })
		}
		p.ask(3, true, "GET", "/flood")
		p.until("headers", isHeaders(3))
		synctest.Wait() // both wait for the connection now
		var b bytes.Buffer
		f := h2.NewFramer(&b, nil)
		f.WriteWindowUpdate(3, 1<<20)
		f.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 0})
		f.WriteWindowUpdate(0, 100_000)
		go p.c.Write(b.Bytes())
		p.until("data of the second", func(f h2.Frame) bool { d, ok := f.(*h2.DataFrame); return ok && d.StreamID == 3 })
		p.c.NetConn().Close()
		<-done
	})
}

func data(f *h2.DataFrame) []byte {
	if f == nil {
		return nil
	}
	return f.Data()
}

// TestBodyClose: a read that waits ends when the body is closed.
func TestBodyClose(t *testing.T) {
	read := make(chan error, 1)
	ts := start(t, server(t.Output()), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began := make(chan struct{})
		go func() {
			close(began)
			_, err := r.Body.Read(make([]byte, 10))
			read <- err
		}()
		<-began
		r.Body.Close()
		if err := <-read; !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("the read ended with %v", err)
		}
		read <- nil
	}))
	p := dial(t, ts)
	p.ask(1, false, "POST", "/")
	<-read
}

// TestUnreadWindow: once a body will not be read, it takes no more of the connection's
// window, even while its handler runs.
func TestUnreadWindow(t *testing.T) {
	for _, path := range []string{"/close", "/reset"} {
		proceed, come := make(chan struct{}), make(chan struct{})
		ts := start(t, server(t.Output()), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if <-come; r.URL.Path == "/close" {
				r.Body.Close()
			}
			<-proceed
		}))
		p := dial(t, ts)
		p.ask(1, false, "POST", path)
		p.until("the window", isWindow(0))
		for range 16 {
			p.WriteData(1, false, big(16<<10))
		}
		p.WritePing(false, [8]byte{})
		p.until("a pong", isPong)
		if close(come); path == "/reset" {
			p.WriteRSTStream(1, h2.ErrCodeCancel)
		}
		p.until("the window again", isWindow(0))
		close(proceed)
	}
}

// TestDeclared checks that sizes that a client declares take no memory.
func TestDeclared(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	synctest.Test(t, func(t *testing.T) {
		p, done := pipe(t, server(t.Output()), config, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		defer func() { p.c.NetConn().Close(); <-done }()
		p.hello(t)
		bytes := allocated(func() {
			for id := uint32(1); id < 200; id += 2 {
				p.ask(id, false, "POST", "/", "content-length", "3000000")
				p.WriteData(id, false, []byte("x"))
			}
			synctest.Wait()
		})
		if bytes > 4<<20 { // 256 KiB each would be 25 MiB
			t.Errorf("100 streams with a byte each allocate %.0f bytes", bytes)
		}
	})
}

// TestTwoWriters: all who write to a response learn that it is broken off.
func TestTwoWriters(t *testing.T) {
	wrote, done := make(chan error, 3), make(chan bool)
	ts := start(t, server(t.Output()), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range cap(wrote) {
			go func() {
				_, err := w.Write(big(1 << 20))
				wrote <- err
			}()
		}
		<-r.Context().Done()
		for range cap(wrote) {
			if err := <-wrote; err == nil {
				t.Error("all was written")
			}
		}
		close(done)
	}))
	p := dial(t, ts)
	p.ask(1, true, "GET", "/")
	for got := 0; got < 65535; {
		p.until("data", func(f h2.Frame) bool { d, ok := f.(*h2.DataFrame); got += len(data(d)); return ok })
	}
	p.WriteRSTStream(1, h2.ErrCodeCancel)
	<-done
}

// TestSettings: there are not so many.
func TestSettings(t *testing.T) {
	p := dial(t, start(t, server(t.Output()), newHold()))
	var many []h2.Setting
	for i := range 101 {
		many = append(many, h2.Setting{ID: h2.SettingID(1000 + i)})
	}
	p.WriteSettings(many...)
	if code := p.code(); code != h2.ErrCodeProtocol {
		t.Errorf("GOAWAY with %v", code)
	}
}

// TestConnectionClose: a handler may have the client go.
func TestConnectionClose(t *testing.T) {
	ts := start(t, server(t.Output()), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
	}))
	p := dial(t, ts)
	p.ask(1, true, "GET", "/")
	if code := p.code(); code != h2.ErrCodeNo {
		t.Errorf("GOAWAY with %v", code)
	}
}

// TestSlowFarewell: a client that got a GOAWAY gets its whole response, however slowly it
// reads.
func TestSlowFarewell(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS.Clone()
	config.DynamicRecordSizingDisabled = true
	synctest.Test(t, func(t *testing.T) {
		const size = 1 << 20
		p, done := pipe(t, server(t.Output()), config, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(big(size)) }))
		p.hello(t, h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1<<31 - 1})
		p.WriteWindowUpdate(0, 1<<30)
		p.ask(1, true, "GET", "/")
		p.WriteGoAway(0, h2.ErrCodeNo, nil)
		got := 0
		p.until("the end", func(f h2.Frame) bool {
			if d, ok := f.(*h2.DataFrame); ok {
				got += len(d.Data())
				time.Sleep(300 * time.Millisecond)
			}
			return ended(1)(f)
		})
		if got != size {
			t.Errorf("%d bytes of %d", got, size)
		}
		io.Copy(io.Discard, p.c)
		<-done
	})
}

// TestEarlyResponse: a client that gets its response while it sends is asked to stop, but not
// immediately.
func TestEarlyResponse(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	synctest.Test(t, func(t *testing.T) {
		p, done := pipe(t, server(t.Output()), config, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no", http.StatusRequestEntityTooLarge)
		}))
		p.hello(t)
		p.ask(1, false, "POST", "/")
		p.until("the response", ended(1))
		at := time.Now()
		if code := p.reset(1); code != h2.ErrCodeNo || time.Since(at) == 0 {
			t.Errorf("reset with %v after %v", code, time.Since(at))
		}
		p.ask(3, false, "POST", "/") // a stream that is complete by then is not reset
		p.until("the response", ended(3))
		p.WriteData(3, true, []byte("x"))
		time.Sleep(time.Second)
		p.ask(5, true, "POST", "/")
		p.until("a later response", func(f h2.Frame) bool {
			if r, ok := f.(*h2.RSTStreamFrame); ok {
				t.Errorf("%d is reset", r.StreamID)
			}
			return ended(5)(f)
		})
		p.c.NetConn().Close()
		<-done
	})
}

// TestGoexit: a handler that ends its goroutine has not responded.
func TestGoexit(t *testing.T) {
	ts := start(t, server(t.Output()), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "half")
		runtime.Goexit()
	}))
	p := dial(t, ts)
	p.ask(1, true, "GET", "/")
	if code := p.reset(1); code != h2.ErrCodeInternal {
		t.Errorf("reset with %v", code)
	}
}
