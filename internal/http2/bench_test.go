package http2_test

import (
	"bufio"
	"io"
	"net/http"
	"runtime"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/http2"
)

// both runs a benchmark with this server and with net/http's.
func both(b *testing.B, bench func(b *testing.B, s *http2.Server)) {
	b.Run("own", func(b *testing.B) { bench(b, server(io.Discard)) })
	b.Run("net-http", func(b *testing.B) { bench(b, nil) })
}

// deep uses as much stack as a handler with some layers does.
//
//go:noinline
func deep(n int) byte {
	var room [1 << 10]byte
	room[n] = byte(n)
	if n > 0 {
		room[n] += deep(n - 1)
	}
	return room[n]
}

// BenchmarkGet responds with 2 KB, to 16 clients on 4 connections.
func BenchmarkGet(b *testing.B) {
	both(b, func(b *testing.B, s *http2.Server) {
		body := big(2048)
		length := []string{"2048"}
		ts := start(b, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			deep(6)
			w.Header()["Content-Length"] = length
			w.Write(body)
		}))
		var clients [4]*http.Client
		for i := range clients {
			t := ts.Client().Transport.(*http.Transport).Clone()
			defer t.CloseIdleConnections()
			clients[i] = &http.Client{Transport: t}
		}
		b.ReportAllocs()
		b.SetParallelism(16 / runtime.GOMAXPROCS(0))
		next := make(chan *http.Client, 16)
		for i := range 16 {
			next <- clients[i%4]
		}
		b.RunParallel(func(p *testing.PB) {
			c := <-next
			defer func() { next <- c }()
			for p.Next() {
				resp, err := c.Get(ts.URL)
				if err != nil {
					b.Error(err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	})
}

// BenchmarkEvents sends an event of 1 KB to 100 streams of a connection; an
// operation is one of them.
func BenchmarkEvents(b *testing.B) {
	both(b, func(b *testing.B, s *http2.Server) {
		const streams = 100
		event := append(big(1024), '\n')
		next := make(chan int, streams)
		ts := start(b, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			c.Flush()
			for range next {
				w.Write(event)
				c.Flush()
			}
		}))
		done := make(chan error, streams)
		for range streams {
			resp, err := ts.Client().Get(ts.URL)
			if err != nil {
				b.Fatal(err)
			}
			go func() {
				lines := bufio.NewReader(resp.Body)
				var err error
				for err == nil {
					if _, err = lines.ReadSlice('\n'); err != io.EOF {
						done <- err
					}
				}
			}()
		}
		b.SetBytes(int64(len(event)))
		b.ReportAllocs()
		go func() {
			defer close(next)
			for range b.N {
				next <- 0
			}
		}()
		for range b.N {
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
	})
}
