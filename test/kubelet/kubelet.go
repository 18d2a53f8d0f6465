// Package kubelet has a kubelet for tests of connections. It serves what kubelets serve, with the libraries of kubelets and of
// container runtimes. A container is a directory of this machine, and a command in it is a process of this machine.
package kubelet

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/proxy"
	translator "k8s.io/apiserver/pkg/util/proxy"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	utilexec "k8s.io/utils/exec"
)

// Feature is the name of the feature of kubelets that take WebSockets, which the status of a Node declares.
const Feature = "ExtendWebSocketsToKubelet"

// Kubelet is a kubelet with one Pod. Set the fields before sending requests that use them.
type Kubelet struct {
	// Pod is the name of its Pod.
	Pod string
	// Namespace is that of the Pod. It is random, since it lets a client run commands: keep it out of command lines, which
	// other users of the machine can see.
	Namespace string
	// Dir is the directory of the container, which its commands start in.
	Dir string
	// Main is the command that attach is connected to.
	Main []string
	// WebSockets makes it accept WebSockets, as kubelets with Feature do. Otherwise it accepts only SPDY.
	WebSockets bool
	// Previous is the log of the container before its restart.
	Previous []Line

	server  *httptest.Server // the kubelet
	runtime streaming.Server

	mu       sync.Mutex // guards the fields below
	lines    []Line
	ended    bool
	more     chan struct{} // closed when lines or ended change
	upgrades []string
}

// Line is a line of a log.
type Line struct {
	Time time.Time
	Text string
}

// Start starts a kubelet on 127.0.0.1 that ends with the test.
func Start(t testing.TB) *Kubelet {
	t.Helper()
	k := &Kubelet{Pod: "pod-" + strings.ToLower(rand.Text()), Namespace: "ns-" + strings.ToLower(rand.Text()), Dir: t.TempDir(), more: make(chan struct{})}
	criServer := httptest.NewUnstartedServer(nil)
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: criServer.Listener.Addr().String()}
	var err error
	if k.runtime, err = streaming.NewServer(config, (*container)(k)); err != nil {
		t.Fatal(err)
	}
	criServer.Config.Handler = k.runtime
	criServer.Start()

	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.connect)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", k.connect)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.connect)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.logs)
	k.server = httptest.NewUnstartedServer(mux)
	k.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	k.server.StartTLS()
	t.Cleanup(func() {
		for _, s := range []*httptest.Server{k.server, criServer} {
			s.CloseClientConnections()
			s.Close()
		}
	})
	return k
}

// Port returns the port of the kubelet.
func (k *Kubelet) Port() int { return k.server.Listener.Addr().(*net.TCPAddr).Port }

// Upgrades returns the protocols of the connections since the last call, as clients write them: SPDY/3.1 or websocket.
func (k *Kubelet) Upgrades() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer func() { k.upgrades = nil }()
	return k.upgrades
}

// Print adds lines to the log.
func (k *Kubelet) Print(lines ...Line) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lines = append(k.lines, lines...)
	k.changed()
}

// End ends the log, and what waits for more of it.
func (k *Kubelet) End() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	k.changed()
}

// changed is called with mu held.
func (k *Kubelet) changed() {
	close(k.more)
	k.more = make(chan struct{})
}

// known responds with 404 to a request for another Pod.
func (k *Kubelet) known(w http.ResponseWriter, r *http.Request) bool {
	if r.PathValue("pod") == k.Pod && r.PathValue("namespace") == k.Namespace {
		return true
	}
	http.Error(w, "pod does not exist", http.StatusNotFound)
	return false
}

// connect connects a client to the runtime.
func (k *Kubelet) connect(w http.ResponseWriter, r *http.Request) {
	if !k.known(w, r) {
		return
	}
	k.mu.Lock()
	k.upgrades = append(k.upgrades, r.Header.Get("Upgrade"))
	k.mu.Unlock()

	to, options, err := k.address(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var handler http.Handler = proxy.NewUpgradeAwareHandler(to, nil, false, true, responder{})
	switch {
	case !k.WebSockets:
	case options != nil && wsstream.IsWebSocketRequestWithStreamCloseProtocol(r):
		handler = translator.NewStreamTranslatorHandler(to, nil, 0, translator.Options{Stdin: options.Stdin, Stdout: options.Stdout, Stderr: options.Stderr, Tty: options.TTY})
	case wsstream.IsWebSocketRequestWithTunnelingProtocol(r):
		handler = translator.NewTunnelingHandler(handler)
	}
	handler.ServeHTTP(w, r)
}

// address returns the URL of the runtime for a request.
func (k *Kubelet) address(r *http.Request) (to *url.URL, options *remotecommand.Options, err error) {
	var text string
	if strings.HasPrefix(r.URL.Path, "/portForward/") {
		var resp *cri.PortForwardResponse
		resp, err = k.runtime.GetPortForward(&cri.PortForwardRequest{PodSandboxId: k.Pod})
		text = resp.GetUrl()
	} else {
		if options, err = remotecommand.NewOptions(r); err != nil {
			return nil, nil, err
		}
		if strings.HasPrefix(r.URL.Path, "/exec/") {
			var resp *cri.ExecResponse
			resp, err = k.runtime.GetExec(&cri.ExecRequest{ContainerId: r.PathValue("container"), Cmd: r.URL.Query()["command"],
				Stdin: options.Stdin, Stdout: options.Stdout, Stderr: options.Stderr, Tty: options.TTY})
			text = resp.GetUrl()
		} else {
			var resp *cri.AttachResponse
			resp, err = k.runtime.GetAttach(&cri.AttachRequest{ContainerId: r.PathValue("container"),
				Stdin: options.Stdin, Stdout: options.Stdout, Stderr: options.Stderr, Tty: options.TTY})
			text = resp.GetUrl()
		}
	}
	if err != nil {
		return nil, nil, err
	}
	to, err = url.Parse(text)
	return to, options, err
}

type responder struct{}

// Error implements proxy.ErrorResponder.
func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// logs sends the log.
func (k *Kubelet) logs(w http.ResponseWriter, r *http.Request) {
	if !k.known(w, r) {
		return
	}
	q := r.URL.Query()
	to := &limited{w: w, left: -1}
	if n, err := strconv.Atoi(q.Get("limitBytes")); err == nil {
		to.left = n
	}
	k.mu.Lock()
	lines, previous := slices.Clone(k.lines), q.Get("previous") == "true"
	k.mu.Unlock()
	sent := len(lines)
	if previous {
		lines = slices.Clone(k.Previous)
	}
	if n, err := strconv.Atoi(q.Get("tailLines")); err == nil {
		lines = lines[max(0, len(lines)-n):]
	}
	if n, err := strconv.Atoi(q.Get("sinceSeconds")); err == nil {
		since := time.Now().Add(-time.Duration(n) * time.Second)
		lines = slices.DeleteFunc(lines, func(l Line) bool { return l.Time.Before(since) })
	}
	timestamps := q.Get("timestamps") == "true"
	to.print(lines, timestamps)
	if q.Get("follow") != "true" || previous {
		return
	}
	_ = http.NewResponseController(w).Flush()
	for to.left != 0 {
		k.mu.Lock()
		lines, ended, more := slices.Clone(k.lines[sent:]), k.ended, k.more
		k.mu.Unlock()
		sent += len(lines)
		to.print(lines, timestamps)
		_ = http.NewResponseController(w).Flush()
		if ended {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

// limited writes lines until a number of bytes is written. A negative number means no limit.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) print(lines []Line, timestamps bool) {
	for _, line := range lines {
		text := line.Text + "\n"
		if timestamps {
			text = line.Time.Format(time.RFC3339Nano) + " " + text
		}
		if l.left >= 0 {
			text = text[:min(len(text), l.left)]
			l.left -= len(text)
		}
		_, _ = io.WriteString(l.w, text)
	}
}

// container is the runtime's side of a Kubelet.
type container Kubelet

// Exec implements streaming.Runtime. It runs a command until it ends, whether or not the input has ended.
func (c *container) Exec(ctx context.Context, _ string, command []string, in io.Reader, out, stderr io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	if len(command) == 0 {
		return errors.New("there is no command")
	}
	p := exec.CommandContext(ctx, command[0], command[1:]...)
	p.Dir, p.Stdout, p.Stderr = c.Dir, out, stderr
	p.WaitDelay = 5 * time.Second // a child of the command can keep its output open
	if in != nil {
		stdin, err := p.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(stdin, in)
			_ = stdin.Close()
		}()
	}
	err := p.Run()
	var status *exec.ExitError
	if errors.As(err, &status) && status.Exited() {
		return utilexec.CodeExitError{Err: err, Code: status.ExitCode()}
	}
	return err
}

// Attach implements streaming.Runtime.
func (c *container) Attach(ctx context.Context, id string, in io.Reader, out, stderr io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	return c.Exec(ctx, id, c.Main, in, out, stderr, tty, resize)
}

// PortForward implements streaming.Runtime. It dials after the client's first byte, because only then has the client received
// the reply to its stream. Otherwise the library may close the stream before the reply, and kubectl hangs.
func (c *container) PortForward(ctx context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	from := bufio.NewReader(stream)
	if _, err := from.Peek(1); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer conn.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(conn, from)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, conn)
	_ = stream.Close()
	<-sent
	return err
}
