package tidemarktest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// socket returns the path of a new socket, which is short, and a listener on it.
func socket(t *testing.T) (string, net.Listener) {
	t.Helper()
	dir, err := os.MkdirTemp("", "tidemark-*")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		listener.Close()
		os.RemoveAll(dir)
	})
	return path, listener
}

// serve serves a handler of net/http on a socket.
func serve(t *testing.T, h http.HandlerFunc) socketHost {
	t.Helper()
	path, listener := socket(t)
	server := &http.Server{Handler: h}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return socketHost{path}
}

// responded sends a request and returns the status code and the whole body.
func responded(t *testing.T, h Host, path string, body []byte) (int, string) {
	t.Helper()
	status, response, err := h.Control(t.Context(), "POST", path, body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response)
	if err := errors.Join(err, response.Close()); err != nil {
		t.Fatal(err)
	}
	return status, string(text)
}

// TestSocketResponses: bodies of all lengths pass both ways, as net/http frames them.
func TestSocketResponses(t *testing.T) {
	h := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" || r.ContentLength != int64(len(body)) {
			t.Errorf("%s, %d bytes of %d, %v", r.Method, len(body), r.ContentLength, err)
		}
		switch r.URL.Path {
		case "/length":
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		case "/informational":
			w.WriteHeader(http.StatusProcessing)
		}
		w.WriteHeader(http.StatusCreated)
		for half := len(body) / 2; ; half = len(body) {
			w.Write(body[:half])
			body = body[half:]
			if r.URL.Path == "/flushed" {
				w.(http.Flusher).Flush()
			}
			if len(body) == 0 {
				return
			}
		}
	})
	for _, path := range []string{"/length", "/chunked?a=b%20c", "/flushed", "/informational"} {
		for _, n := range []int{0, 1, 100, 5000, 1 << 20} {
			sent := bytes.Repeat([]byte("0123456789"), n/10+1)[:n]
			if status, text := responded(t, h, path, sent); status != 201 || text != string(sent) {
				t.Errorf("%s with %d bytes: %d and %d bytes", path, n, status, len(text))
			}
		}
	}
}

// TestSocketEmpty: a response without a body ends.
func TestSocketEmpty(t *testing.T) {
	h := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	if status, text := responded(t, h, "/", nil); status != 204 || text != "" {
		t.Errorf("%d %q", status, text)
	}
}

// TestSocketBroken: a response that breaks off is an error, with each kind of frame.
func TestSocketBroken(t *testing.T) {
	h := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", "1000")
		}
		io.WriteString(w, "begun")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	for _, path := range []string{"/length", "/chunked"} {
		_, response, err := h.Control(t.Context(), "GET", path, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response)
		response.Close()
		if string(text) != "begun" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
}

// TestSocketContext: a context ends a request that waits for the response, and one that reads it.
func TestSocketContext(t *testing.T) {
	gone := make(chan struct{}, 2)
	h := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
		gone <- struct{}{}
	})
	for _, path := range []string{"/waits", "/begun"} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, response, err := h.Control(ctx, "GET", path, nil)
			if err == nil {
				_, err = io.ReadAll(response)
				response.Close()
			}
			ended <- err
		}()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", path, err)
		}
		if _, _, err := h.Control(ctx, "GET", path, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a context that has ended: %v", path, err)
		}
	}
	// A client that closes the response ends the request, too.
	_, response, err := h.Control(t.Context(), "GET", "/begun", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Close()
	<-gone
}

// TestSocketRefused: a server that is not there is an error.
func TestSocketRefused(t *testing.T) {
	path, listener := socket(t)
	listener.Close()
	if _, _, err := (socketHost{path}).Control(t.Context(), "GET", "/", nil); err == nil {
		t.Error("a server that has ended has responded")
	}
}

// TestReadResponse: a response that is not HTTP/1.1 is an error. Every response is also read in
// single bytes.
func TestReadResponse(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	long := strings.Repeat("x", maxHeadBytes)
	for _, c := range []struct{ name, text, body, err string }{
		{"to the end", ok + "\r\nabc", "abc", ""},
		{"a length", ok + "content-length: 2\r\n\r\nabc", "ab", ""},
		{"chunks", ok + "Transfer-Encoding: Chunked\r\n\r\n2\r\nab\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nmore", "ab0123456789", ""},
		{"lines without CR", "HTTP/1.0 200\n\nabc", "abc", ""},
		{"nothing", "", "", "unexpected EOF"},
		{"another protocol", "SSH-2.0\r\n\r\n", "", "which is not HTTP/1.1"},
		{"no code", "HTTP/1.1 20x OK\r\n\r\n", "", "which is not HTTP/1.1"},
		{"a small code", "HTTP/1.1 099 OK\r\n\r\n", "", "which is not HTTP/1.1"},
		{"a header without end", ok + "A: b\r\n", "", "unexpected EOF"},
		{"a line without a colon", ok + "A\r\n\r\n", "", `the line "A"`},
		{"a long line", ok + "A: " + long + "\r\n\r\n", "", "a line of more than"},
		{"a long header", ok + strings.Repeat("A: "+long[:1000]+"\r\n", 70) + "\r\n", "", "the header of the response has more than"},
		{"a negative length", ok + "Content-Length: -1\r\n\r\n", "", `the length "-1"`},
		{"a short body", ok + "Content-Length: 4\r\n\r\nabc", "abc", "unexpected EOF"},
		{"another encoding", ok + "Transfer-Encoding: gzip\r\n\r\n", "", `encoding "gzip"`},
		{"a bad size", ok + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "", `the size "xyz"`},
		{"a huge size", ok + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "", "the size"},
		{"a chunk that goes on", ok + "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", "a", `followed by "b"`},
		{"no last chunk", ok + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n", "a", "unexpected EOF"},
		{"no end of the trailer", ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n", "", "unexpected EOF"},
	} {
		for way, r := range map[string]io.Reader{"whole": strings.NewReader(c.text), "in bytes": iotest.OneByteReader(strings.NewReader(c.text))} {
			_, body, err := readResponse(bufio.NewReaderSize(r, maxHeadBytes))
			var text []byte
			if err == nil {
				text, err = io.ReadAll(body)
			}
			if string(text) != c.body || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s, %s: %q, %v, want %q, %q", c.name, way, text, err, c.body, c.err)
			}
		}
	}
}
