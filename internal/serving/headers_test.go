package serving_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/serving"
)

// littleMemory makes 16 MiB the limit for headers, which is 1 MiB while they are read: each byte counts 16 times. No
// connection is closed because of time.
func littleMemory(c *serving.Config) {
	c.Limits.TransportBytes = 32 << 20
	c.Limits.ReadHeaderTimeout, c.Limits.IdleTimeout = time.Hour, time.Hour
}

// TestHeadersOfHTTP1: headers that do not end hold a bounded amount of memory together.
// Those that are over it lose their connections; clients with usual headers do not, and
// those with large ones do again when there is room.
func TestHeadersOfHTTP1(t *testing.T) {
	f := start(t, littleMemory)
	part := bytes.Repeat([]byte("x"), 100<<10)
	send := func(c net.Conn, size int) error {
		fmt.Fprint(c, "GET /quick HTTP/1.1\r\nHost: localhost\r\nX: ")
		for sent := 0; sent < size; sent += len(part) {
			if _, err := c.Write(part); err != nil {
				return err
			}
		}
		return nil
	}
	var open []net.Conn
	for range 20 { // of 300 KiB: three fit
		c, err := f.dialTLS("http/1.1")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		send(c, 300<<10)
		open = append(open, c)
	}
	f.get(f.client(false), "/quick") // a client with usual headers
	closed := make(chan struct{}, len(open))
	for _, c := range open {
		go func() {
			if _, err := c.Read(make([]byte, 1)); err != nil {
				closed <- struct{}{}
			}
		}()
	}
	for n := range 15 { // all but three, and those whose last bytes were not counted yet
		await.Value(t, fmt.Sprintf("the close of a connection after %d", n), closed)
	}
	for _, c := range open {
		c.Close()
	}
	await.Nil(t, "the server to see that they are closed, and to accept large headers again", func() error {
		c, err := f.dialTLS("http/1.1")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := send(c, 300<<10); err != nil {
			return err
		}
		io.WriteString(c, "\r\n\r\n")
		_, err = c.Read(make([]byte, 1))
		return err
	})
}

// TestHeadersOfStrangers: unauthenticated clients get half of the memory for headers, and an
// authenticated one is not affected.
func TestHeadersOfStrangers(t *testing.T) {
	f := start(t, littleMemory)
	known, err := f.dialTLS("http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	defer known.Close()
	responses := bufio.NewReader(known)
	request := func(more string) error {
		io.WriteString(known, "GET /quick HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer right\r\n"+more+"\r\n")
		resp, err := http.ReadResponse(responses, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
		}
		return err
	}
	if err := request(""); err != nil {
		t.Fatal(err)
	}
	part := bytes.Repeat([]byte("x"), 50<<10)
	refused := make(chan struct{}, 40)
	for range 40 { // of 100 KiB: five fit into a half of 1 MiB
		c, err := f.dialTLS("http/1.1")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "GET /quick HTTP/1.1\r\nHost: localhost\r\nX: ")
		c.Write(part)
		c.Write(part)
		go func() {
			if _, err := c.Read(make([]byte, 1)); err != nil {
				refused <- struct{}{}
			}
		}()
	}
	for n := range 30 {
		await.Value(t, fmt.Sprintf("the close of a connection after %d", n), refused)
	}
	if err := request("X: " + strings.Repeat("x", 400<<10) + "\r\n"); err != nil {
		t.Errorf("an authenticated client with 400 KiB of headers: %v", err)
	}
}

// TestReadHeadersOfHTTP1: headers that were read count as the memory that they take: few long ones about as their bytes,
// many short ones as many times their bytes.
func TestReadHeadersOfHTTP1(t *testing.T) {
	f := start(t, littleMemory)
	ask := func(header string, times int) (responded int) {
		var open []net.Conn
		for range times {
			c, err := f.dialTLS("http/1.1")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			open = append(open, c)
			io.WriteString(c, "GET /watch HTTP/1.1\r\nHost: localhost\r\n"+header+"\r\n")
			if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
				responded++
			}
		}
		for _, c := range open {
			c.Close()
		}
		return responded
	}
	if n := ask("X: "+strings.Repeat("x", 300<<10)+"\r\n", 10); n != 10 { // 3 MiB of 8, and 5 MiB while it is read
		t.Errorf("%d of 10 requests with a header of 300 KiB got a response", n)
	}
	var many strings.Builder
	for i := range 20_000 { // 200 KiB, and 2 MiB in memory
		fmt.Fprintf(&many, "%05d: \r\n", i)
	}
	if n := ask(many.String(), 20); n < 1 || n > 4 {
		t.Errorf("%d of 20 requests with 20,000 headers got a response, want 4 at most", n)
	}
}
