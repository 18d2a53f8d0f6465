package http2_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	h2 "golang.org/x/net/http2"
)

// shared is the interface of responses that share a connection.
type shared interface {
	http.ResponseWriter
	http.Flusher
	Connection() any
	TryWrite(p []byte) (ok, full bool)
}

// TestTryWrite checks that data that would have to wait for the client is declined as a whole.
func TestTryWrite(t *testing.T) {
	rows := []struct {
		name, method string
		settings     []h2.Setting
		handler      func(w shared, try func(n int, ok, full bool))
	}{
		{"before the response begins", "GET", nil, func(w shared, try func(int, bool, bool)) { try(1, false, false) }},
		{"a small window of the stream", "GET", []h2.Setting{{ID: h2.SettingInitialWindowSize, Val: 96}}, func(w shared, try func(int, bool, bool)) {
			w.Flush()
			try(112, false, false)
			try(80, true, false)
			try(32, false, false)
			try(16, true, false)
			try(16, false, false)
		}},
		{"the window of the connection", "GET", []h2.Setting{{ID: h2.SettingInitialWindowSize, Val: 1 << 20}}, func(w shared, try func(int, bool, bool)) {
			w.Flush()
			try(40<<10, true, false)
			try(16<<10, true, false)
			try(8<<10, false, false) // 65,535 in all
			try(4<<10, true, false)
		}},
		{"more than one turn", "GET", []h2.Setting{{ID: h2.SettingInitialWindowSize, Val: 1 << 20}}, func(w shared, try func(int, bool, bool)) {
			w.Flush()
			try(64<<10+16, false, false)
		}},
		{"no body", "HEAD", nil, func(w shared, try func(int, bool, bool)) {
			w.Flush()
			try(16, false, false)
		}},
		{"a declared length", "GET", nil, func(w shared, try func(int, bool, bool)) {
			w.Header().Set("Content-Length", "16")
			w.Flush()
			try(16, false, false)
			w.Write(big(16))
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			total := 0
			ts := start(t, server(t.Output()), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				out := w.(shared)
				row.handler(out, func(n int, ok, full bool) {
					t.Helper()
					gotOK, gotFull := out.TryWrite(big(n))
					if gotOK != ok || gotFull != full {
						t.Errorf("%d bytes: %v, full: %v; want %v, %v", n, gotOK, gotFull, ok, full)
					}
					if gotOK {
						total += n
					}
				})
			}))
			p := dial(t, ts, row.settings...)
			p.ask(1, true, row.method, "/")
			got := 0
			p.until("the end", func(f h2.Frame) bool {
				if d, ok := f.(*h2.DataFrame); ok {
					got += len(d.Data())
				}
				return ended(1)(f)
			})
			if row.name != "a declared length" && got != total {
				t.Errorf("%d bytes came, %d were taken", got, total)
			}
		})
	}
}

// TestTryWriteFull: TryWrite reports that it has filled the connection's buffer, and accepts
// no bytes beyond it.
func TestTryWriteFull(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	synctest.Test(t, func(t *testing.T) {
		p, done := pipe(t, server(t.Output()), config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			out := w.(shared)
			out.Flush()
			synctest.Wait() // the sender has ended: nothing leaves from now on
			for _, row := range []struct {
				n        int
				ok, full bool
			}{{32 << 10, true, false}, {16 << 10, true, false}, {32 << 10, true, true}, {32 << 10, true, true}, {32 << 10, false, false}} {
				if ok, full := out.TryWrite(big(row.n)); ok != row.ok || full != row.full {
					t.Errorf("%d bytes: %v, full: %v; want %v, %v", row.n, ok, full, row.ok, row.full)
				}
			}
			w.Write(big(64 << 10)) // waits
		}))
		p.hello(t, h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1 << 20})
		p.WriteWindowUpdate(0, 1<<20)
		p.ask(1, true, "GET", "/")
		got := 0
		p.until("the end", func(f h2.Frame) bool {
			if d, ok := f.(*h2.DataFrame); ok {
				got += len(d.Data())
			}
			return ended(1)(f)
		})
		if want := (32 + 16 + 32 + 32 + 64) << 10; got != want {
			t.Errorf("%d bytes came, want %d", got, want)
		}
		p.c.NetConn().Close()
		<-done
	})
}

// TestTryWriteAfter: a response that was reset takes nothing.
func TestTryWriteAfter(t *testing.T) {
	ended := make(chan bool)
	ts := start(t, server(t.Output()), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := w.(shared)
		out.Flush()
		<-r.Context().Done()
		ok, _ := out.TryWrite(big(16))
		ended <- ok
	}))
	p := dial(t, ts)
	p.ask(1, true, "GET", "/")
	p.until("headers", isHeaders(1))
	p.WriteRSTStream(1, h2.ErrCodeCancel)
	if <-ended {
		t.Error("it was taken")
	}
}
