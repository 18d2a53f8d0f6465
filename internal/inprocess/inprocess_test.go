package inprocess_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/inprocess"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

const url = "https://in.process/"

// client returns a client of s.
func client(t *testing.T, s *inprocess.Server) *http.Client {
	return &http.Client{Transport: s.Transport(t.Context(), nil)}
}

// open sends a GET and wants a response.
func open(t *testing.T, ctx context.Context, c *http.Client) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// stream writes a line each second, until the client is gone; it sends the error of the last write.
func stream(gone chan<- error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		for i := 0; ; i++ {
			if _, err := fmt.Fprintln(w, i); err != nil {
				gone <- err
				return
			}
			if err := c.Flush(); err != nil {
				gone <- err
				return
			}
			select {
			case <-r.Context().Done():
				_, err := w.Write([]byte("x"))
				gone <- err
				return
			case <-time.After(time.Second):
			}
		}
	}
}

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan error, 1)
		s := &inprocess.Server{Handler: stream(gone)}
		defer s.Stop()
		c := client(t, s)
		began := time.Now()
		resp := open(t, t.Context(), c)
		lines := bufio.NewScanner(resp.Body)
		for i := range 3600 {
			if !lines.Scan() || lines.Text() != fmt.Sprint(i) {
				t.Fatalf("line %d is %q: %v", i, lines.Text(), lines.Err())
			}
		}
		if took := time.Since(began); took != 3599*time.Second {
			t.Errorf("it took %v", took)
		}
		resp.Body.Close()
		synctest.Wait()
		if len(gone) == 0 {
			t.Error("the handler does not know that the client has closed the body")
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("a read of a closed body returns %v", err)
		}
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan error, 1)
		s := &inprocess.Server{Handler: stream(gone)}
		defer s.Stop()
		c := client(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		resp := open(t, ctx, c)
		defer resp.Body.Close()
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("reading ends with %v", err)
		}
		synctest.Wait()
		if len(gone) == 0 {
			t.Error("the handler does not know that the client is gone")
		}
	})
}

// TestCancelIsNotTheEnd cancels requests whose handler returns as soon as it notices. The client
// must never take the part that it has read for the whole response.
func TestCancelIsNotTheEnd(t *testing.T) {
	rounds := 1000
	if tier.IsFull(t) {
		rounds = 5000
	}
	begin := func(w http.ResponseWriter) {
		if _, err := fmt.Fprintln(w, "a part of the response"); err != nil {
			t.Error(err)
		}
		_ = http.NewResponseController(w).Flush() // the client may be gone
	}
	for name, handler := range map[string]http.HandlerFunc{
		"by the context": func(w http.ResponseWriter, r *http.Request) {
			begin(w)
			<-r.Context().Done()
		},
		"by the body": func(w http.ResponseWriter, r *http.Request) {
			begin(w)
			_, _ = io.Copy(io.Discard, r.Body)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &inprocess.Server{Handler: handler}
				defer s.Stop()
				c := client(t, s)
				for range rounds {
					ctx, cancel := context.WithCancel(t.Context())
					body, more := io.Pipe()
					r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
					if err != nil {
						t.Fatal(err)
					}
					resp, err := c.Do(r)
					if err != nil {
						t.Fatal(err)
					}
					cancel()
					if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
						t.Errorf("reading ends with %v", err)
					}
					resp.Body.Close()
					more.Close()
				}
			})
		})
	}
}

// TestCancelBesideClose closes the body while the context ends: neither call lets the other one's reader take a part for
// the whole response.
func TestCancelBesideClose(t *testing.T) {
	rounds := 1000
	if tier.IsFull(t) {
		rounds = 20_000
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "a part of the response")
		_ = http.NewResponseController(w).Flush() // the client may be gone
		<-r.Context().Done()
	}
	synctest.Test(t, func(t *testing.T) {
		s := &inprocess.Server{Handler: http.HandlerFunc(handler)}
		defer s.Stop()
		c := client(t, s)
		for range rounds {
			ctx, cancel := context.WithCancel(t.Context())
			resp := open(t, ctx, c)
			cancel()
			go resp.Body.Close()
			if _, err := io.ReadAll(resp.Body); err == nil {
				t.Error("a part was read as the whole response")
			}
		}
	})
}

// TestCancelBefore cancels a request whose handler has not responded.
func TestCancelBefore(t *testing.T) {
	ended := make(chan error, 1)
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done(); ended <- r.Context().Err() }
	synctest.Test(t, func(t *testing.T) {
		s := &inprocess.Server{Handler: http.HandlerFunc(hang)}
		defer s.Stop()
		c := client(t, s)
		c.Timeout = time.Minute
		if _, err := c.Get(url); err == nil || !os.IsTimeout(err) {
			t.Errorf("got %v, want a time-out", err)
		}
		synctest.Wait()
		if len(ended) == 0 {
			t.Error("the handler still runs")
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("not wanted any more")
		cancel(cause)
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if _, err := c.Do(r); !errors.Is(err, cause) {
			t.Errorf("got %v, want the cause", err)
		}
	})
}

// secret is a key of a context.
type secret struct{}

func TestContext(t *testing.T) {
	state := &tls.ConnectionState{ServerName: "in.process"}
	handler := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, r.Context().Value(secret{}), r.TLS == state, r.RemoteAddr)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &inprocess.Server{Handler: http.HandlerFunc(handler)}
		defer s.Stop()
		c := &http.Client{Transport: s.Transport(context.WithValue(t.Context(), secret{}, "of the transport"), state)}
		resp := open(t, context.WithValue(t.Context(), secret{}, "of the client"), c)
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "of the transport true 127.0.0.1:0\n" {
			t.Errorf("got %q %v", body, err)
		}
	})
}

// TestBackpressure checks that a handler waits for a client that does not read, and is cut off after
// the write time-out.
func TestBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written int
		failed := make(chan error, 1)
		handler := func(w http.ResponseWriter, _ *http.Request) {
			piece := make([]byte, 32<<10)
			for range 1000 {
				n, err := w.Write(piece)
				written += n
				if err != nil {
					failed <- err
					return
				}
			}
		}
		s := &inprocess.Server{Handler: http.HandlerFunc(handler), WriteTimeout: 30 * time.Second}
		defer s.Stop()
		c := client(t, s)
		resp := open(t, t.Context(), c)
		defer resp.Body.Close()
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if written > 1<<20 || len(failed) > 0 {
			t.Errorf("%d bytes were written for a client that does not read, %d writes failed", written, len(failed))
		}
		some := make([]byte, 1<<20)
		if _, err := io.ReadFull(resp.Body, some); err != nil {
			t.Error(err)
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if len(failed) == 0 {
			t.Fatal("the write still waits")
		}
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the write returns %v", err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the client sees %v", err)
		}
	})
}

// TestBrokenOff checks the errors of clients when a handler panics.
func TestBrokenOff(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Late") != "" {
			w.(http.Flusher).Flush()
		}
		panic(http.ErrAbortHandler)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &inprocess.Server{Handler: http.HandlerFunc(handler)}
		defer s.Stop()
		c := client(t, s)
		if _, err := c.Get(url); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want EOF", err)
		}
		resp, err := c.Do(get("GET", "", nil, "Late", "yes")(url))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %v, want an unexpected EOF", err)
		}
	})
}

// TestReadDeadline checks that a handler need not wait for a client that does not send.
func TestReadDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Minute))
			_, err := io.ReadAll(r.Body)
			fmt.Fprint(w, errors.Is(err, os.ErrDeadlineExceeded))
		}
		s := &inprocess.Server{Handler: http.HandlerFunc(handler)}
		defer s.Stop()
		c := client(t, s)
		body, w := io.Pipe()
		resp, err := c.Post(url, "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if respond, _ := io.ReadAll(resp.Body); string(respond) != "true" {
			t.Errorf("the handler responds with %s", respond)
		}
		synctest.Wait()
		if _, err := w.Write([]byte("late")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the body is not closed: %v", err)
		}
	})
}

// TestBodyError checks that the error of a body is the error of the request, and that the
// handler does not take the body for a complete one.
func TestBodyError(t *testing.T) {
	read := make(chan error, 1)
	handler := func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		read <- err
	}
	synctest.Test(t, func(t *testing.T) {
		s := &inprocess.Server{Handler: http.HandlerFunc(handler)}
		defer s.Stop()
		c := client(t, s)
		if _, err := c.Post(url, "", &failing{"some", io.ErrNoProgress}); !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("got %v", err)
		}
		if err := <-read; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the handler got %v", err)
		}
		r := get("POST", "", unsized("hello"))(url)
		r.ContentLength = 30
		if _, err := c.Do(r); err == nil {
			t.Error("a body that is shorter than declared is sent")
		}
		if err := <-read; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the handler got %v", err)
		}
	})
}

func TestRefused(t *testing.T) {
	s := &inprocess.Server{Handler: http.HandlerFunc(echo), Host: "in.process", HeaderBytes: 1000}
	synctest.Test(t, func(t *testing.T) {
		defer s.Stop()
		c := client(t, s)
		resp, err := c.Do(get("GET", "", nil, "A", strings.Repeat("a", 1000))(url))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("large headers: %s", resp.Status)
		}
		if _, err := c.Get("https://other.example/"); err == nil {
			t.Error("the request for another host gets a response")
		}
		s.Stop()
		if _, err := c.Get(url); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("after Stop: %v", err)
		}
	})
}

// TestStop checks that Stop ends idle streams cleanly, waits for requests, and breaks off those that
// take too long.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drained := make(chan struct{})
		handler := func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			switch r.URL.Path {
			case "/idle":
				<-drained
			case "/slow":
				time.Sleep(500 * time.Millisecond)
				io.WriteString(w, "done")
			default:
				<-r.Context().Done()
			}
		}
		s := &inprocess.Server{Handler: http.HandlerFunc(handler), Drain: func() { close(drained) }}
		c := client(t, s)
		ends := map[string]chan string{}
		for _, path := range []string{"idle", "slow", "stuck"} {
			resp, err := c.Get(url + path)
			if err != nil {
				t.Fatal(err)
			}
			end := make(chan string, 1)
			ends[path] = end
			go func() {
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				end <- fmt.Sprintf("%s %v", body, err)
			}()
		}
		synctest.Wait()
		s.Stop()
		for path, want := range map[string]string{"idle": " <nil>", "slow": "done <nil>", "stuck": " unexpected EOF"} {
			if got := <-ends[path]; got != want {
				t.Errorf("%s ends with %q, want %q", path, got, want)
			}
		}
	})
}

// TestUpgrade checks a protocol upgrade: both ends read and write, and one of them closes. The client's context has no
// effect from the response on, even if the handler hijacks later.
func TestUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancelled := make(chan struct{})
		handler := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
			w.WriteHeader(http.StatusSwitchingProtocols)
			http.NewResponseController(w).Flush()
			<-cancelled
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			go func() {
				defer c.Close()
				for {
					line, err := rw.ReadString('\n')
					if err != nil {
						return
					}
					time.Sleep(time.Hour)
					rw.WriteString(r.Proto + " " + line)
					rw.Flush()
				}
			}()
		}
		s := &inprocess.Server{Handler: http.HandlerFunc(handler)}
		defer s.Stop()
		c := client(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		r := get("GET", "", nil, "Connection", "upgrade", "Upgrade", "echo")(url).WithContext(ctx)
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		synctest.Wait()
		close(cancelled)
		if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "echo" {
			t.Fatalf("%s %v", resp.Status, resp.Header)
		}
		conn := resp.Body.(io.ReadWriteCloser)
		lines := bufio.NewReader(conn)
		for _, line := range []string{"one\n", "two\n"} {
			if _, err := io.WriteString(conn, line); err != nil {
				t.Fatal(err)
			}
			if got, err := lines.ReadString('\n'); got != "HTTP/1.1 "+line || err != nil {
				t.Errorf("got %q %v", got, err)
			}
		}
		conn.Close()
	})
}

// BenchmarkGet measures a small request.
func BenchmarkGet(b *testing.B) {
	s := &inprocess.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })}
	defer s.Stop()
	c := s.Transport(b.Context(), nil)
	r := get("GET", "", nil)(url)
	b.ReportAllocs()
	for b.Loop() {
		resp, err := c.RoundTrip(r)
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}
