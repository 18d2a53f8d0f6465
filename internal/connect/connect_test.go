package connect_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/moby/spdystream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/connect"
	"github.com/tidemark-dev/tidemark/internal/kubelet"
	"github.com/tidemark-dev/tidemark/internal/kubelet/kubelettest"
)

// server forwards /KIND?OPTIONS to a kubelet.
type server struct {
	*httptest.Server
	kubelet    *kubelettest.Kubelet
	webSockets bool               // the kubelet takes those of v5
	stop       context.CancelFunc // ends the connections
}

func start(t testing.TB) *server {
	t.Helper()
	return startWith(t, kubelet.Config{})
}

func startWith(t testing.TB, config kubelet.Config) *server {
	t.Helper()
	k, err := kubelet.New(config)
	if err != nil {
		t.Fatal(err)
	}
	c := connect.New(k)
	stopped, stop := context.WithCancel(context.Background())
	s := &server{kubelet: kubelettest.Start(t), stop: stop}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(stopped, cancel)()
		host, port, _ := net.SplitHostPort(s.kubelet.Listener.Addr().String())
		of := connect.Container{Kubelet: kubelet.Address{Host: host, Port: port, WebSockets: s.webSockets}, Namespace: "default", Pod: "p", Name: "c"}
		kind, err := r.URL.Path[1:], error(nil)
		if r = r.WithContext(ctx); kind == "log" {
			err = c.Log(w, r, of, r.URL.Query())
		} else {
			err = c.Stream(w, r, connect.Stream{Container: of, Kind: kind, Options: r.URL.Query()})
		}
		if err == nil {
			return
		}
		status := metav1.Status{Code: 599, Message: err.Error()}
		if known := apierrors.APIStatus(nil); errors.As(err, &known) {
			status = known.Status()
		}
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(&status)
	}))
	t.Cleanup(func() {
		stop()
		s.Close()
		k.CloseIdleConnections()
	})
	return s
}

// get sends a plain request, and returns the code and the body, or the message of a Status.
func (s *server) get(t *testing.T, path string) (int, string) {
	t.Helper()
	resp, err := http.Get(s.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("%s: the type is %q", path, resp.Header.Get("Content-Type"))
	}
	if status := (metav1.Status{}); json.Unmarshal(b, &status) == nil {
		return resp.StatusCode, string(status.Reason) + ": " + status.Message
	}
	return resp.StatusCode, string(b)
}

// TestLog checks logs: the parameters for the kubelet, its errors, and logs that are followed.
func TestLog(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, c := range []struct{ options, query string }{
		{"", ""},
		{"?follow=false&previous=0&timestamps", "timestamps=true"},
		{"?timestamps=1&tailLines=05&sinceSeconds=3&limitBytes=7&previous=true&other=1&container=x&pretty=1", "limitBytes=7&previous=true&sinceSeconds=3&tailLines=5&timestamps=true"},
		{"?sinceTime=2020-01-01T01:00:00%2B01:00&insecureSkipTLSVerifyBackend=true", "sinceTime=2020-01-01T00%3A00%3A00Z"},
	} {
		if code, got := s.get(t, "/log"+c.options); code != 200 || got != "log "+c.query+"\n" {
			t.Errorf("%s: got %d %q", c.options, code, got)
		}
	}
	if got, want := s.kubelet.Last(), "GET /containerLogs/default/p/c?sinceTime=2020-01-01T00%3A00%3A00Z"; got != want {
		t.Errorf("the kubelet got %s, want %s", got, want)
	}
	for _, c := range []struct {
		code, want int
		text       string
	}{
		{400, 400, "BadRequest: why"}, {500, 500, "InternalError: Internal error occurred: why"}, {404, 404, "NotFound: the server could not find the requested resource"},
		{302, 500, `: Get "` + s.kubelet.URL + `/containerLogs/default/p/c": redirects forbidden`},
	} {
		s.kubelet.Refuse = func(w http.ResponseWriter, _ *http.Request) bool {
			if c.code == 302 {
				w.Header().Set("Location", "/")
			}
			w.WriteHeader(c.code)
			_, _ = io.WriteString(w, "why")
			return true
		}
		if code, got := s.get(t, "/log"); code != c.want || !strings.HasPrefix(got, c.text) {
			t.Errorf("%d of the kubelet became %d %q", c.code, code, got)
		}
	}
	s.kubelet.Refuse = nil
	resp, err := http.Get(s.URL + "/log?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); line != "log follow=true\n" || err != nil {
		t.Errorf("the first line is %q, %v", line, err)
	}
	close(s.kubelet.Follow)
	if line, err := lines.ReadString('\n'); line != "end\n" || err != nil {
		t.Errorf("the second line is %q, %v", line, err)
	}
	for protocol, want := range map[string]string{"binary.k8s.io": "log \n", "base64.binary.k8s.io": "bG9nIAo=", "": "log \n"} {
		ws := s.dial(t, "/log", protocol)
		if _, got, err := ws.Read(t.Context()); string(got) != want || err != nil {
			t.Errorf("%q: got %q, %v", protocol, got, err)
		}
		if _, _, err := ws.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("%q: the end is %v", protocol, err)
		}
	}
	s.kubelet.Close()
	if code, got := s.get(t, "/log?follow=1"); code != 500 || !strings.HasPrefix(got, `: Get "`+s.kubelet.URL+`/containerLogs/default/p/c?follow=true": dial tcp `) {
		t.Errorf("a kubelet that is down: %d %s", code, got)
	}
}

// dial opens a WebSocket.
func (s *server) dial(t testing.TB, path string, protocols ...string) *websocket.Conn {
	t.Helper()
	if len(protocols) == 1 && protocols[0] == "" {
		protocols = nil
	}
	ws, _, err := websocket.Dial(context.Background(), s.URL+path, &websocket.DialOptions{Subprotocols: protocols})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.CloseNow() })
	ws.SetReadLimit(-1)
	if len(protocols) > 0 && !slices.Contains(protocols, ws.Subprotocol()) {
		t.Fatalf("the subprotocol is %q", ws.Subprotocol())
	}
	return ws
}

// collect reads all messages to the end, and returns those of each channel.
func collect(t *testing.T, ws *websocket.Conn) (all [6]string, messages int) {
	t.Helper()
	for {
		_, m, err := ws.Read(context.Background())
		if err != nil {
			if websocket.CloseStatus(err) != websocket.StatusNormalClosure {
				t.Errorf("the end is %v", err)
			}
			return all, messages
		}
		messages++
		all[m[0]] += string(m[1:])
	}
}

// TestTranslate checks clients of v5.channel.k8s.io with a kubelet that speaks SPDY.
func TestTranslate(t *testing.T) {
	t.Parallel()
	s := start(t)
	long := strings.Repeat("0123456789", 100_000)
	for _, c := range []struct {
		name, path               string
		send                     []string
		stdout, stderr, contains string
	}{
		{"stdout", "/exec?command=echo&command=a&command=b&stdout=true&stderr=true", nil, "a b", "", `"status":"Success"`},
		{"stderr", "/exec?command=error&command=a&stdout=true&stderr=true", nil, "", "a", `"status":"Success"`},
		{"exit", "/exec?command=exit&command=7&stdout=true", nil, "", "", `"causes":[{"reason":"ExitCode","message":"7"}]`},
		{"stdin", "/exec?command=cat&stdin=true&stdout=true", []string{"\x00one", "\x00", "", "\x00" + long, "\xff\x00"}, "one" + long, "", `"status":"Success"`},
		{"attach", "/attach?stdin=true&stdout=true", []string{"\x00one", "\xff\x00", "\x00two"}, "one", "", `"status":"Success"`},
		{"ignored", "/exec?command=cat&stdin=true&stdout=true", []string{"\x01x", "\x07x", "\x04x", "\xff\x04", "\xff", "\x00one", "\xff\x00"}, "one", "", `"status":"Success"`},
		{"no stdin", "/exec?command=echo&command=a&stdout=true", []string{"\x00one"}, "a", "", `"status":"Success"`},
		{"nothing", "/exec?command=exit&command=0", nil, "", "", `"message":"0"`},
		{"vanish", "/exec?command=vanish&stdout=true", nil, "", "", `"message":"Internal error occurred: the connection to the kubelet ended: it ended the stream of the status"`},
	} {
		ws := s.dial(t, c.path, "v5.channel.k8s.io", "v4.channel.k8s.io")
		for _, m := range c.send {
			if err := ws.Write(t.Context(), websocket.MessageBinary, []byte(m)); err != nil {
				t.Fatal(err)
			}
		}
		got, messages := collect(t, ws)
		if got[1] != c.stdout || got[2] != c.stderr || !strings.Contains(got[3], c.contains) {
			t.Errorf("%s: got %d bytes %.100q", c.name, len(got[1]), got)
		}
		if messages < 2 {
			t.Errorf("%s: %d messages: the first one has to tell that the connection is there", c.name, messages)
		}
	}
	r := s.kubelet.Requests()[0]
	if got, want := s.kubelet.Requests()[0].RequestURI, "/exec/default/p/c?command=echo&command=a&command=b&error=1&output=1"; got != want || r.Method != "POST" || r.Header.Get("X-Stream-Protocol-Version") != "v4.channel.k8s.io" || r.Header.Get("Upgrade") != "SPDY/3.1" {
		t.Errorf("the kubelet got %s %s %v, want %s", r.Method, got, r.Header, want)
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Sec-Websocket") {
			t.Errorf("the kubelet got %s", name)
		}
	}
	// The size of a terminal.
	ws := s.dial(t, "/exec?command=resize&stdout=true&tty=true", "v5.channel.k8s.io")
	if err := ws.Write(t.Context(), websocket.MessageBinary, []byte("\x04{\"Width\":80}")); err != nil {
		t.Fatal(err)
	}
	var got string
	for !strings.Contains(got, "80") {
		_, m, err := ws.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got += string(m[1:])
	}
	ws.CloseNow()
	await.True(t, "the kubelet's stream to end with its client", func() bool { return s.kubelet.Open.Load() == 0 })
}

// TestTranslatedErrors checks that errors of a kubelet are the last message of a client.
func TestTranslatedErrors(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, c := range []struct {
		code       int
		body, want string
	}{
		{404, "pod does not exist", `"message":"Internal error occurred: unable to upgrade connection: pod does not exist"`},
		{403, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}`, `"message":"no","reason":"Forbidden"`},
		{302, "", "invalid upgrade response: status code 302"},
	} {
		s.kubelet.Refuse = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(c.code)
			_, _ = io.WriteString(w, c.body)
			return true
		}
		if got, _ := collect(t, s.dial(t, "/exec?command=x&stdout=true", "v5.channel.k8s.io")); !strings.Contains(got[3], c.want) {
			t.Errorf("%d: got %q", c.code, got[3])
		}
	}
	// SPDY clients get the response of the kubelet.
	s.kubelet.Refuse = func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return true
	}
	resp, _ := s.spdy(t, "/exec?command=x", "v4.channel.k8s.io")
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 404 || string(b) != "pod does not exist\n" || !resp.Close {
		t.Errorf("got %d %q", resp.StatusCode, b)
	}
	s.kubelet.Close()
	if got, _ := collect(t, s.dial(t, "/exec?command=x&stdout=true", "v5.channel.k8s.io")); !strings.Contains(got[3], "error dialing backend: dial tcp") {
		t.Errorf("got %q", got[3])
	}
	if code, got := s.get(t, "/exec?command=x"); code != 400 || got != "BadRequest: Upgrade request required" {
		t.Errorf("a plain request: %d %s", code, got)
	}
}

// spdy sends a request for an upgrade to SPDY.
func (s *server) spdy(t testing.TB, path, protocol string) (*http.Response, net.Conn) {
	t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	r, _ := http.NewRequest("POST", s.URL+path, nil)
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {protocol}, "Cookie": {"a=b"}}
	if err := r.Write(c); err != nil {
		t.Fatal(err)
	}
	from := bufio.NewReader(c)
	resp, err := http.ReadResponse(from, r)
	if err != nil {
		t.Fatal(err)
	}
	if from.Buffered() > 0 && resp.StatusCode == 101 {
		t.Fatal("the server speaks first")
	}
	return resp, c
}

// TestPassed checks clients of SPDY and of older subprotocols, and kubelets that take WebSockets.
func TestPassed(t *testing.T) {
	t.Parallel()
	s := start(t)
	resp, c := s.spdy(t, "/exec?command=cat&stdin=true&stdout=true&tty=1", "v4.channel.k8s.io")
	if resp.StatusCode != 101 || resp.Header.Get("X-Stream-Protocol-Version") != "v4.channel.k8s.io" {
		t.Fatalf("got %d %v", resp.StatusCode, resp.Header)
	}
	conn, err := spdystream.NewConnection(c, false)
	if err != nil {
		t.Fatal(err)
	}
	go conn.Serve(spdystream.NoOpStreamHandler)
	defer conn.Close()
	streams := map[string]*spdystream.Stream{}
	for _, name := range []string{"error", "stdin", "stdout", "resize"} {
		stream, err := conn.CreateStream(http.Header{"Streamtype": {name}}, nil, false)
		if err != nil || stream.Wait() != nil {
			t.Fatal(err)
		}
		streams[name] = stream
	}
	_, _ = io.WriteString(streams["stdin"], "hello")
	_ = streams["stdin"].Close()
	if got, err := io.ReadAll(streams["stdout"]); string(got) != "hello" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, _ := io.ReadAll(streams["error"]); !strings.Contains(string(got), "Success") {
		t.Errorf("the status is %q", got)
	}
	if r := s.kubelet.Requests()[0]; r.Method != "POST" || r.Header.Get("Cookie") != "" || r.RequestURI != "/exec/default/p/c?command=cat&input=1&output=1&tty=1" {
		t.Errorf("the kubelet got %s %s %v", r.Method, r.RequestURI, r.Header)
	}
	got, _ := collect(t, s.dial(t, "/exec?command=x", "v4.channel.k8s.io"))
	if got[1] != "kubelet v4.channel.k8s.io" || s.kubelet.Requests()[1].Method != "GET" {
		t.Errorf("an older subprotocol: %q", got)
	}
	s.webSockets = true
	if got, _ := collect(t, s.dial(t, "/exec?command=x", "v5.channel.k8s.io", "v4.channel.k8s.io")); got[1] != "kubelet v5.channel.k8s.io" {
		t.Errorf("a kubelet that takes v5: %q", got)
	}
}

// TestTunnel checks port-forward: SPDY within a WebSocket, and alone.
func TestTunnel(t *testing.T) {
	t.Parallel()
	s := start(t)
	forward := func(c net.Conn) {
		t.Helper()
		conn, err := spdystream.NewConnection(c, false)
		if err != nil {
			t.Fatal(err)
		}
		go conn.Serve(spdystream.NoOpStreamHandler)
		defer conn.Close()
		h := http.Header{"Streamtype": {"data"}, "Port": {"80"}, "Requestid": {"0"}}
		stream, err := conn.CreateStream(h, nil, false)
		if err != nil || stream.Wait() != nil {
			t.Fatal(err)
		}
		sent := strings.Repeat("x", 200_000)
		go func() {
			_, _ = io.WriteString(stream, sent)
			_ = stream.Close()
		}()
		if got, err := io.ReadAll(stream); string(got) != "port 80\n"+sent || err != nil {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	}
	ws := s.dial(t, "/portforward?ports=80&ports=81", "SPDY/3.1+portforward.k8s.io")
	forward(websocket.NetConn(context.Background(), ws, websocket.MessageBinary))
	if r := s.kubelet.Requests()[0]; r.Method != "POST" || r.RequestURI != "/portForward/default/p?port=80%2C81" || r.Header.Get("X-Stream-Protocol-Version") != "portforward.k8s.io" || r.Header.Get("Sec-Websocket-Key") != "" {
		t.Errorf("the kubelet got %s %s %v", r.Method, r.RequestURI, r.Header)
	}
	resp, c := s.spdy(t, "/portforward", "portforward.k8s.io")
	if resp.StatusCode != 101 {
		t.Fatalf("got %d", resp.StatusCode)
	}
	forward(c)
	await.True(t, "the kubelet's streams to end with their clients", func() bool { return s.kubelet.Open.Load() == 0 })

	s.kubelet.Refuse = func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return true
	}
	if _, resp, err := websocket.Dial(t.Context(), s.URL+"/portforward", &websocket.DialOptions{Subprotocols: []string{"SPDY/3.1+portforward.k8s.io"}}); err == nil || resp == nil || resp.StatusCode != 404 {
		t.Errorf("a kubelet that refuses: %v %v", resp, err)
	}
}

// TestEnds checks that all connections end when their requests have to, on both sides.
func TestEnds(t *testing.T) {
	t.Parallel()
	s := start(t)
	translated := s.dial(t, "/exec?command=sleep&stdin=true&stdout=true", "v5.channel.k8s.io")
	tunneled := s.dial(t, "/portforward", "SPDY/3.1+portforward.k8s.io")
	_, passed := s.spdy(t, "/portforward", "portforward.k8s.io")
	followed, err := http.Get(s.URL + "/log?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer followed.Body.Close()
	await.True(t, "four streams", func() bool { return s.kubelet.Open.Load() == 4 })
	s.stop()
	await.True(t, "all streams to end", func() bool { return s.kubelet.Open.Load() == 0 })
	for name, read := range map[string]func() error{
		"translated": func() (err error) {
			for err == nil {
				_, _, err = translated.Read(context.Background())
			}
			return err
		},
		"tunneled": func() error { _, _, err := tunneled.Read(context.Background()); return err },
		"passed":   func() error { _, err := passed.Read(make([]byte, 1)); return err },
		"followed": func() error { _, err := io.Copy(io.Discard, followed.Body); return err },
	} {
		if read() == nil {
			t.Errorf("%s: the client's connection goes on", name)
		}
	}
}

// TestLogBreaksOff checks that the response breaks off when the request's context ends, also if the kubelet's response is complete.
func TestLogBreaksOff(t *testing.T) {
	t.Parallel()
	k, err := kubelet.New(kubelet.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer k.CloseIdleConnections()
	fake := kubelettest.Start(t)
	host, port, _ := net.SplitHostPort(fake.Listener.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer func() {
		if got := recover(); got != http.ErrAbortHandler {
			t.Errorf("Log ended with %v, want a panic with http.ErrAbortHandler", got)
		}
	}()
	w := endsWrite{httptest.NewRecorder(), cancel}
	of := connect.Container{Kubelet: kubelet.Address{Host: host, Port: port}, Namespace: "default", Pod: "p", Name: "c"}
	err = connect.New(k).Log(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/log", nil), of, nil)
	t.Errorf("Log returned %v", err)
}

// endsWrite ends the request when the response's body begins.
type endsWrite struct {
	*httptest.ResponseRecorder
	end func()
}

func (w endsWrite) Write(b []byte) (int, error) {
	w.end()
	return w.ResponseRecorder.Write(b)
}

// TestTooMany checks that a connection beyond the limit is refused.
func TestTooMany(t *testing.T) {
	t.Parallel()
	s := startWith(t, kubelet.Config{MaxConnections: 1})
	ws := s.dial(t, "/exec?command=sleep&stdin=true", "v5.channel.k8s.io")
	await.True(t, "the stream", func() bool { return s.kubelet.Open.Load() == 1 })
	if code, got := s.get(t, "/log"); code != http.StatusTooManyRequests || !strings.Contains(got, "too many connections") {
		t.Errorf("a log: %d %s", code, got)
	}
	if resp, _ := s.spdy(t, "/portforward", "portforward.k8s.io"); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a port-forward: %s", resp.Status)
	}
	if got, _ := collect(t, s.dial(t, "/exec?command=x", "v5.channel.k8s.io")); !strings.Contains(got[3], "too many connections") {
		t.Errorf("a WebSocket: %s", got[3])
	}
	ws.CloseNow()
	await.True(t, "room", func() bool { code, _ := s.get(t, "/log"); return code == http.StatusOK })
}

// TestSlowClient checks that a client that does not read stops its container, and takes no memory of the server.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.dial(t, "/exec?command=flood&stdout=true", "v5.channel.k8s.io")
	last := int64(-1)
	await.True(t, "the container to stop", func() bool {
		now := s.kubelet.Flooded.Load()
		defer func() { last = now }()
		return now > 0 && now == last
	})
	// The buffers of the kernel and of the streams of the fake kubelet are far below this.
	if last > 64<<20 {
		t.Errorf("the container wrote %d bytes", last)
	}
}
