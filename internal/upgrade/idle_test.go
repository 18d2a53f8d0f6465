package upgrade_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/internal/upgrade"
)

// pipes is a listener whose connections are pipes: 10,000 of them need no files.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial returns the other end of an accepted connection.
func (p *pipes) dial() net.Conn {
	a, b := net.Pipe()
	p.accepted <- a
	return b
}

// TestManyIdle checks that 10,000 idle connections with TLS on both sides are held, each with less than 128 KiB for the
// proxy, its client and its backend together: each of the three has TLS. The memory of the second half counts.
func TestManyIdle(t *testing.T) {
	tier.Full(t)
	memory := func() int64 { // of the heap and of the stacks
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	template := httptest.NewUnstartedServer(nil)
	template.StartTLS()
	defer template.Close()
	config := &tls.Config{Certificates: template.TLS.Certificates}
	trusted := template.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trusted.ServerName = "example.com"

	var open atomic.Int64
	backends := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	backend := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, rw := hijack(w, "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: chat\n\n")
		defer c.Close()
		open.Add(1)
		defer open.Add(-1)
		_, _ = rw.ReadByte()
	})}
	go func() { _ = backend.Serve(tls.NewListener(backends, config)) }()
	defer backend.Close()
	ctx, end := context.WithCancel(t.Context())
	fronts := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	target, _ := url.Parse("https://example.com/")
	front := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &upgrade.Proxy{Target: target, Dial: func(ctx context.Context, u *url.URL) (net.Conn, error) {
			return upgrade.Dial(ctx, u, func(context.Context, string, string) (net.Conn, error) { return backends.dial(), nil }, trusted)
		}}
		if err := p.Serve(w, r.WithContext(ctx)); err != nil {
			t.Error(err)
		}
	})}
	go func() { _ = front.Serve(tls.NewListener(fronts, config)) }()
	defer front.Close()

	var clients []net.Conn
	hold := func(count int) {
		for range count {
			c := tls.Client(fronts.dial(), trusted)
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatal(resp, err)
			}
			clients = append(clients, c)
		}
	}
	const half, most = 5_000, 128 << 10
	hold(half)
	before, goroutines := memory(), runtime.NumGoroutine()
	hold(half)
	each := (memory() - before) / half
	for range 5 { // other goroutines may have left garbage
		if each <= most {
			break
		}
		each = (memory() - before) / half
	}
	t.Logf("an idle connection takes %d bytes, and %d goroutines with that of its backend", each, (runtime.NumGoroutine()-goroutines)/half)
	if each > most {
		t.Errorf("an idle connection takes %d bytes, want %d", each, most)
	}
	if got := open.Load(); got != 2*half {
		t.Errorf("%d connections are open, want %d", got, 2*half)
	}
	end()
	await.True(t, "all connections to end", func() bool { return open.Load() == 0 })
}
