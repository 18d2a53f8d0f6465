package connect_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/moby/spdystream/spdy"

	"github.com/tidemark-dev/tidemark/internal/await"
)

// idle responds to each request for an upgrade, and then reads until the end.
func idle(k http.ResponseWriter, head string, body func(io.ReadWriter)) {
	c, rw, err := http.NewResponseController(k).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	if _, err := io.WriteString(c, head); err != nil {
		return
	}
	body(struct {
		io.Reader
		io.Writer
	}{rw.Reader, c})
}

const switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"

// copying returns how many goroutines copy the bytes of a connection.
func copying() int {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 2)
	return strings.Count(b.String(), "internal/upgrade.copyBytes(")
}

// hold opens idle connections, and returns when the kubelet has them.
func (s *server) hold(t *testing.T, count int) {
	t.Helper()
	s.kubelet.Refuse = func(w http.ResponseWriter, _ *http.Request) bool {
		idle(w, switched, func(rw io.ReadWriter) {
			s.kubelet.Open.Add(1)
			defer s.kubelet.Open.Add(-1)
			_, _ = io.ReadFull(rw, make([]byte, 1))
		})
		return true
	}
	before := s.kubelet.Open.Load()
	for i := range count {
		if resp, _ := s.spdy(t, "/portforward", "portforward.k8s.io"); resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("connection %d: %s", i, resp.Status)
		}
	}
	await.True(t, "all connections", func() bool { return s.kubelet.Open.Load() == before+int64(count) })
}

// TestIdle checks that an idle connection has two goroutines, and that connections end together.
func TestIdle(t *testing.T) {
	s := start(t)
	const count = 50
	s.hold(t, count)
	await.True(t, "two goroutines for each connection", func() bool { return copying() == 2*count })
	s.stop()
	await.True(t, "all connections to end", func() bool { return s.kubelet.Open.Load() == 0 && copying() == 0 })
}

// replies returns frames that accept streams, with headers. They are compressed.
func replies(t *testing.T, h http.Header, ids ...spdy.StreamId) string {
	t.Helper()
	var b bytes.Buffer
	f, err := spdy.NewFramer(&b, &b)
	for _, id := range ids {
		if err == nil {
			err = f.WriteFrame(&spdy.SynReplyFrame{StreamId: id, Headers: h})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestLargeFrame checks that a client gets the beginning of a frame before its end.
func TestLargeFrame(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.kubelet.Refuse = func(w http.ResponseWriter, _ *http.Request) bool {
		idle(w, switched, func(rw io.ReadWriter) {
			_, _ = io.WriteString(rw, replies(t, nil, 1, 3))
			_, _ = io.WriteString(rw, "\x00\x00\x00\x03\x00\x10\x00\x00"+strings.Repeat("x", 100_000))
			_, _ = io.ReadAll(rw)
		})
		return true
	}
	ws := s.dial(t, "/exec?command=x&stdout=true", "v5.channel.k8s.io")
	for got := 0; got < 90_000; {
		_, m, err := ws.Read(t.Context())
		if err != nil || m[0] != 1 {
			t.Fatalf("after %d bytes: %v %.20q", got, err, m)
		}
		got += len(m) - 1
	}
}

// TestHostileKubelet checks kubelets that break the protocol.
func TestHostileKubelet(t *testing.T) {
	t.Parallel()
	s := start(t)
	reply := "\x80\x03\x00\x02\x00\x00\x00\x08\x00\x00\x00\x01garb"
	fields := http.Header{}
	for i := range 17 {
		fields.Set(fmt.Sprint("X-", i), "x")
	}
	for name, c := range map[string]struct{ head, then, want string }{
		"protocol": {strings.Replace(switched, "v4.", "v1.", 1), "", "the kubelet speaks"},
		"headers":  {switched, reply, "error opening the streams"},
		"value":    {switched, replies(t, http.Header{"X": {strings.Repeat("x", 5_000)}}, 1), "error opening the streams of the kubelet: invalid control frame"},
		"fields":   {switched, replies(t, fields, 1), "error opening the streams of the kubelet: invalid control frame"},
		"no id":    {switched, "\x00\x00\x00\x00\x00\x00\x00\x01x", "data without a stream"},
		"frame":    {switched, "\x00\x00\x00\x01\x00\xff\xff\xff", "the kubelet sent a frame of 16777215 bytes"},
		"control":  {switched, "\x80\x03\x00\x63\x00\xff\xff\xff", "the kubelet sent a frame of 16777215 bytes"},
		"refused":  {switched, "\x80\x03\x00\x03\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x03", "the kubelet refused a stream"},
		"end":      {switched, "", "error opening the streams"},
		"status":   {switched, strings.Repeat("\x00\x00\x00\x01\x00\x00\x80\x00"+strings.Repeat("x", 32<<10), 3), "a status of more than 65536 bytes"},
	} {
		s.kubelet.Refuse = func(w http.ResponseWriter, _ *http.Request) bool {
			idle(w, c.head, func(rw io.ReadWriter) { _, _ = io.WriteString(rw, c.then) })
			return true
		}
		if got, _ := collect(t, s.dial(t, "/exec?command=x&stdout=true", "v5.channel.k8s.io")); !strings.Contains(got[3], c.want) {
			t.Errorf("%s: got %q, want %q", name, got[3], c.want)
		}
	}
	// A client that sends no message, or half of one, goes as it came.
	s.kubelet.Refuse = nil
	ws := s.dial(t, "/exec?command=sleep&stdin=true", "v5.channel.k8s.io")
	w, err := ws.Writer(t.Context(), websocket.MessageBinary)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(make([]byte, 100_000))
	await.True(t, "the stream", func() bool { return s.kubelet.Open.Load() == 1 })
	ws.CloseNow()
	await.True(t, "the stream to end", func() bool { return s.kubelet.Open.Load() == 0 })
}
