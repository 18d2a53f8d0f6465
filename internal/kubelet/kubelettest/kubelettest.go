// Package kubelettest has a kubelet for tests: it speaks what kubelets speak towards a server, and runs nothing.
package kubelettest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	"github.com/moby/spdystream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubelet is a kubelet of containers that understand a few commands:
//
//	echo TEXT       writes TEXT to stdout
//	error TEXT      writes TEXT to stderr
//	cat             copies stdin to stdout, until it ends
//	resize          copies the sizes of the terminal to stdout, until the connection ends
//	exit CODE       ends with an exit code
//	flood           writes to stdout until the connection ends
//	sleep           does nothing until the connection ends
//	vanish          ends without a status
//
// Attach is "cat". Ports copy what they get. Logs have the query of the request, and go on with follow until Follow is closed.
type Kubelet struct {
	*httptest.Server
	// Follow is closed to end the logs that are followed.
	Follow chan struct{}
	// Open is the number of open streams, Flooded how many bytes flood has written.
	Open, Flooded atomic.Int64
	// Refuse responds to the requests for which it returns true; nil: none.
	Refuse func(w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	requests []*http.Request
}

// Start starts a kubelet on 127.0.0.1 that ends with the test.
func Start(t testing.TB) *Kubelet {
	k := &Kubelet{Follow: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: k}}
	k.Config.ErrorLog = log.New(io.Discard, "", 0)
	k.StartTLS()
	t.Cleanup(func() {
		k.CloseClientConnections()
		k.Close()
	})
	return k
}

// Port returns the port of the kubelet.
func (k *Kubelet) Port() int32 { return int32(k.Listener.Addr().(*net.TCPAddr).Port) }

// Requests returns the requests so far.
func (k *Kubelet) Requests() []*http.Request {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.requests
}

// Last returns the last request as METHOD URI.
func (k *Kubelet) Last() string {
	all := k.Requests()
	if len(all) == 0 {
		return ""
	}
	r := all[len(all)-1]
	return r.Method + " " + r.RequestURI
}

// ServeHTTP implements http.Handler.
func (k *Kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	k.requests = append(k.requests, r)
	k.mu.Unlock()
	if k.Refuse != nil && k.Refuse(w, r) {
		return
	}
	of, _, _ := strings.Cut(r.URL.Path[1:], "/")
	switch of {
	case "containerLogs":
		k.logs(w, r)
	case "exec", "attach":
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			k.messages(w, r)
			return
		}
		k.run(w, r)
	case "portForward":
		k.ports(w, r)
	default:
		fmt.Fprintf(w, "%s %s", r.Method, r.RequestURI)
	}
}

func (k *Kubelet) logs(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "log %s\n", r.URL.RawQuery)
	if r.URL.Query().Get("follow") == "" {
		return
	}
	k.Open.Add(1)
	defer k.Open.Add(-1)
	_ = http.NewResponseController(w).Flush()
	select {
	case <-k.Follow:
		fmt.Fprintln(w, "end")
	case <-r.Context().Done():
	}
}

// messages responds to a WebSocket with its subprotocol.
func (k *Kubelet) messages(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"v5.channel.k8s.io", "v4.channel.k8s.io"}})
	if err != nil {
		return
	}
	_ = ws.Write(context.Background(), websocket.MessageBinary, []byte("\x01kubelet "+ws.Subprotocol()))
	_ = ws.Write(context.Background(), websocket.MessageBinary, []byte("\x03"+`{"status":"Success"}`))
	_ = ws.Close(websocket.StatusNormalClosure, "")
}

// streams upgrades a connection to SPDY, and calls f for each stream.
func (k *Kubelet) streams(w http.ResponseWriter, protocol string, f func(*spdystream.Stream)) *spdystream.Connection {
	h := w.Header()
	h.Set("Connection", "Upgrade")
	h.Set("Upgrade", "SPDY/3.1")
	h.Set("X-Stream-Protocol-Version", protocol)
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, from, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	s, err := spdystream.NewConnection(&buffered{conn, from.Reader}, true)
	if err != nil {
		panic(err)
	}
	go s.Serve(func(stream *spdystream.Stream) {
		if stream.SendReply(http.Header{}, false) == nil {
			go f(stream)
		}
	})
	return s
}

// buffered is a connection with bytes that were read ahead.
type buffered struct {
	net.Conn
	from *bufio.Reader
}

// Read implements net.Conn.
func (b *buffered) Read(to []byte) (int, error) { return b.from.Read(to) }

// run runs a command.
func (k *Kubelet) run(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	opened := make(chan *spdystream.Stream, 8)
	s := k.streams(w, "v4.channel.k8s.io", func(stream *spdystream.Stream) { opened <- stream })
	defer s.Close()
	k.Open.Add(1)
	defer k.Open.Add(-1)
	by := map[string]*spdystream.Stream{}
	want := 1
	for _, name := range []string{"input", "output", "error", "tty"} {
		if q.Get(name) == "1" {
			want++
		}
	}
	for len(by) < want {
		select {
		case stream := <-opened:
			by[stream.Headers().Get("streamtype")] = stream
		case <-s.CloseChan():
			return
		}
	}
	status := metav1.Status{Status: metav1.StatusSuccess}
	command := q["command"]
	if len(command) == 0 {
		command = []string{"cat"}
	}
	switch name, rest := command[0], strings.Join(command[1:], " "); name {
	case "echo":
		_, _ = io.WriteString(by["stdout"], rest)
	case "error":
		_, _ = io.WriteString(by["stderr"], rest)
	case "cat":
		_, _ = io.Copy(by["stdout"], by["stdin"])
	case "resize":
		_, _ = io.Copy(by["stdout"], by["resize"])
	case "flood":
		for block := make([]byte, 32<<10); ; {
			n, err := by["stdout"].Write(block)
			if err != nil {
				return
			}
			k.Flooded.Add(int64(n))
		}
	case "sleep":
		<-s.CloseChan()
		return
	case "vanish":
		for _, stream := range by {
			_ = stream.Reset()
		}
		return
	case "exit":
		status = metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Message: "command terminated with exit code " + rest,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: rest}}}}
	}
	for _, name := range []string{"stdout", "stderr"} {
		if stream := by[name]; stream != nil {
			_ = stream.Close()
		}
	}
	b, _ := json.Marshal(&status)
	_, _ = by["error"].Write(b)
	_ = by["error"].Close()
	<-s.CloseChan()
}

// ports copies what the streams of ports get.
func (k *Kubelet) ports(w http.ResponseWriter, r *http.Request) {
	s := k.streams(w, r.Header.Get("X-Stream-Protocol-Version"), func(stream *spdystream.Stream) {
		if stream.Headers().Get("streamtype") == "data" {
			_, _ = io.WriteString(stream, "port "+stream.Headers().Get("port")+"\n")
			_, _ = io.Copy(stream, stream)
		}
		_ = stream.Close()
	})
	k.Open.Add(1)
	defer k.Open.Add(-1)
	<-s.CloseChan()
}
