package http2_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tidemark-dev/tidemark/internal/http2"
)

// pipe connects a client to s without a network, so that time may be synthetic. The
// channel is closed when the server has closed the connection.
func pipe(t *testing.T, s *http2.Server, config *tls.Config, h http.Handler) (*client, chan struct{}) {
	far, near := net.Pipe()
	return connect(t, s, config, h, far, near)
}

func connect(t *testing.T, s *http2.Server, config *tls.Config, h http.Handler, far, near net.Conn) (*client, chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c := tls.Server(far, config)
		if err := c.Handshake(); err != nil {
			t.Error(err)
			return
		}
		s.Serve(nil, c, h)
		s.Shutdown() // idle goroutines end
	}()
	c := tls.Client(near, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	p := &client{Framer: h2.NewFramer(c, c), t: t, c: c}
	p.e = hpack.NewEncoder(&p.block)
	return p, done
}

func (p *client) hello(t *testing.T, settings ...h2.Setting) {
	t.Helper()
	said := make(chan struct{})
	go func() { // a pipe holds nothing
		defer close(said)
		io.WriteString(p.c, h2.ClientPreface)
		p.WriteSettings(settings...)
	}()
	p.until("settings", func(f h2.Frame) bool { s, ok := f.(*h2.SettingsFrame); return ok && s.IsAck() })
	<-said
}

// TestTimeouts: a connection ends when its client says nothing, has no request, or
// reads nothing, for as long as each may take.
func TestTimeouts(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	for name, test := range map[string]struct {
		first func(t *testing.T, p *client)
		pause time.Duration
		then  func(t *testing.T, p *client)
		want  time.Duration
	}{
		"nothing is said": {func(*testing.T, *client) {}, 0, nil, 10 * time.Second},
		"no request": {func(t *testing.T, p *client) { p.hello(t) }, 0, func(t *testing.T, p *client) {
			if code := p.code(); code != h2.ErrCodeNo {
				t.Errorf("GOAWAY with %v", code)
			}
		}, time.Minute + time.Second},
		"one request": {func(t *testing.T, p *client) { p.hello(t) }, 40 * time.Second, func(t *testing.T, p *client) {
			p.ask(1, true, "GET", "/quick")
			p.until("a response", ended(1))
			p.code()
		}, 40*time.Second + time.Minute + time.Second},
		"a request that lasts": {func(t *testing.T, p *client) {
			p.hello(t)
			p.ask(1, true, "GET", "/hold")
			p.until("headers", func(f h2.Frame) bool { _, ok := f.(*h2.HeadersFrame); return ok })
		}, 10 * time.Minute, func(t *testing.T, p *client) {
			p.WriteRSTStream(1, h2.ErrCodeCancel)
			p.code()
		}, 11*time.Minute + time.Second},
		"nothing is read": {func(t *testing.T, p *client) {
			p.hello(t, h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1<<31 - 1})
			p.WriteWindowUpdate(0, 1<<30)
			p.ask(1, true, "GET", "/flood")
		}, 0, nil, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := server(t.Output())
				s.WriteTimeout = 2 * time.Minute
				h := newHold()
				h.ended = make(chan error, 10) // of the bubble
				begin := time.Now()
				p, done := pipe(t, s, config, h)
				defer p.c.Close()
				test.first(t, p)
				if time.Sleep(test.pause); test.then != nil {
					test.then(t, p)
				}
				if test.want != s.WriteTimeout {
					_, _ = io.Copy(io.Discard, p.c)
				}
				<-done
				if got := time.Since(begin); got != test.want {
					t.Errorf("it ended after %v, want %v", got, test.want)
				}
			})
		})
	}
}

// counted is a connection that counts the bytes written to it.
type counted struct {
	net.Conn
	writes atomic.Int64
}

func (c *counted) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// TestEventsTogether checks that data that many handlers flush while the connection is busy is sent
// with one write, in full TLS records.
func TestEventsTogether(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS.Clone()
	config.DynamicRecordSizingDisabled = true
	synctest.Test(t, func(t *testing.T) {
		const streams, size = 50, 1000
		proceed := make(chan struct{})
		far, near := net.Pipe()
		there := &counted{Conn: far}
		p, done := connect(t, server(t.Output()), config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			c.Flush()
			<-proceed
			w.Write(make([]byte, size))
			c.Flush()
			<-r.Context().Done()
		}), there, near)
		defer func() { p.c.Close(); <-done }()
		p.hello(t)
		for i := range uint32(streams) {
			p.ask(2*i+1, true, "GET", "/")
			p.until("headers", func(f h2.Frame) bool { _, ok := f.(*h2.HeadersFrame); return ok })
		}
		synctest.Wait()
		before := there.writes.Load()
		close(proceed)
		synctest.Wait() // the first one writes, and the client does not read yet
		for range streams {
			p.until("an event", func(f h2.Frame) bool { _, ok := f.(*h2.DataFrame); return ok })
		}
		// One write for the data of the first sender, and the records of the rest.
		if got, most := there.writes.Load()-before, int64(1+1+streams*size>>14); got > most+1 {
			t.Errorf("%d events left in %d writes", streams, got)
		}
	})
}

// TestWriteTimeout: a response whose client takes no more of it is broken off after its
// timeout, each write anew; the connection and its other requests live on.
func TestWriteTimeout(t *testing.T) {
	config := start(t, nil, http.NotFoundHandler()).TLS
	synctest.Test(t, func(t *testing.T) {
		took := make(chan time.Duration, 4)
		server := server(t.Output())
		server.IdleTimeout = time.Hour
		p, done := pipe(t, server, config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/quick" {
				return
			}
			w.(interface{ SetWriteTimeout(d time.Duration) }).SetWriteTimeout(time.Minute)
			for err := error(nil); err == nil; {
				begin := time.Now()
				_, err = w.Write(make([]byte, 50_000)) // the client takes 65,535
				took <- time.Since(begin)
			}
		}))
		defer func() { p.c.Close(); <-done }()
		p.hello(t)
		p.ask(1, true, "GET", "/slow")
		granted := make(chan struct{})
		go func() {
			defer close(granted)
			for range 2 {
				time.Sleep(40 * time.Second)
				p.WriteWindowUpdate(1, 50_000)
				p.WriteWindowUpdate(0, 50_000)
			}
			for range 2 { // it trickles
				time.Sleep(20 * time.Second)
				p.WriteWindowUpdate(1, 1)
				p.WriteWindowUpdate(0, 1)
			}
		}()
		p.until("the end of it", func(f h2.Frame) bool {
			reset, ok := f.(*h2.RSTStreamFrame)
			return ok && reset.StreamID == 1
		})
		for i, want := range []time.Duration{0, 40 * time.Second, 40 * time.Second, time.Minute} {
			if got := <-took; got != want {
				t.Errorf("write %d took %v, want %v", i, got, want)
			}
		}
		<-granted
		p.ask(3, true, "GET", "/quick")
		p.until("a response", ended(3))
	})
}
