package test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark/internal/freeport"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/kubelet"
)

// TestKubectlConnections runs the commands that connect to a container, over both protocols of kubectl, to kubelets that
// take WebSockets and to those that take SPDY alone.
func TestKubectlConnections(t *testing.T) {
	tier.Full(t)
	onKubectl(t, func(t *testing.T, k *kubectlIn) {
		for _, kubeletSockets := range []bool{false, true} {
			for _, clientSockets := range []bool{false, true} {
				t.Run(fmt.Sprintf("kubectl %s, kubelet %s", protocol(clientSockets), protocol(kubeletSockets)), func(t *testing.T) {
					c := newConnections(t, k, kubeletSockets, clientSockets)
					for _, part := range []struct {
						name string
						test func(t *testing.T, c *connections)
					}{
						{"exec", testExec},
						{"attach", testAttach},
						{"logs", testLogs},
						{"port-forward", testPortForward},
						{"cp", testCopy},
					} {
						t.Run(part.name, func(t *testing.T) {
							k, of := *c.kubectlIn, *c
							k.t, of.kubectlIn = t, &k
							part.test(t, &of)
						})
					}
				})
			}
		}
	})
}

func protocol(sockets bool) string {
	if sockets {
		return "WebSocket"
	}
	return "SPDY"
}

// connections is a kubectl that speaks one protocol, and a Pod on a kubelet.
type connections struct {
	*kubectlIn
	kubelet *kubelet.Kubelet
	// upgrade is the protocol that the kubelet must receive.
	upgrade string
	// translated: the server translates WebSockets to SPDY.
	translated bool
}

func newConnections(t *testing.T, of *kubectlIn, kubeletSockets, clientSockets bool) *connections {
	t.Helper()
	k := *of
	k.t = t
	c := &connections{kubectlIn: &k, kubelet: kubelet.Start(t), upgrade: "SPDY/3.1", translated: clientSockets && !kubeletSockets}
	c.kubelet.WebSockets = kubeletSockets
	if !clientSockets {
		k.env = []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"}
	} else if kubeletSockets {
		c.upgrade = "websocket"
	}
	node, features := "node-"+c.kubelet.Pod, ""
	if kubeletSockets {
		features = strconv.Quote(kubelet.Feature)
	}
	namespace := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, c.kubelet.Namespace)
	c.want(namespace, []string{"create", "-f", "-"}, "created")
	config, err := clientcmd.LoadFromFile(k.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Contexts[config.CurrentContext].Namespace = c.kubelet.Namespace
	k.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, k.kubeconfig); err != nil {
		t.Fatal(err)
	}
	// A controller may have created it before.
	c.run(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`, "create", "-f", "-")
	c.want(fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q}}`, node), []string{"create", "-f", "-"}, "created")
	t.Cleanup(func() {
		// The context of the test is over.
		c.command(context.Background(), "", "delete", "pod", c.kubelet.Pod, "--now", "--force").Run()
		c.command(context.Background(), namespace, "delete", "--wait=false", "-f", "-").Run()
		if out, err := c.command(context.Background(), "", "delete", "node", node).CombinedOutput(); err != nil {
			t.Errorf("delete the node: %v\n%s", err, out)
		}
	})
	c.want("", []string{"patch", "node", node, "--subresource=status", "-p",
		fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}},"declaredFeatures":[%s]}}`, c.kubelet.Port(), features)})
	c.want(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"nodeName":%q,"containers":[{"name":"c","image":"i","stdin":true}]}}`, c.kubelet.Pod, node),
		[]string{"create", "-f", "-"}, "created")
	c.want("", []string{"patch", "pod", c.kubelet.Pod, "--subresource=status", "-p", `{"status":{"phase":"Running"}}`})
	return c
}

// result is what a command has printed, and its exit status.
type result struct {
	stdout, stderr string
	status         int
}

// runs runs a command with an input. A nil input is one that does not end.
func (c *connections) runs(input io.Reader, args ...string) result {
	c.t.Helper()
	cmd := c.command(c.t.Context(), "", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if input == nil {
		r, w, err := os.Pipe()
		if err != nil {
			c.t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		input = r
	}
	cmd.Stdin = input
	err := cmd.Run()
	if cmd.ProcessState == nil {
		c.t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// The metrics of a server that count the WebSockets that it has translated.
const (
	commandsTranslated = "apiserver_stream_translator_requests_total"
	portsTranslated    = "apiserver_stream_tunnel_requests_total"
)

// over runs a part of a test, and checks that its connections have had the protocol of the test. kubectl falls back to SPDY
// when a WebSocket fails.
func (c *connections) over(metric string, part func()) {
	c.t.Helper()
	before := c.count(metric)
	c.kubelet.Upgrades()
	part()
	got := c.kubelet.Upgrades()
	if len(got) == 0 {
		c.t.Error("the kubelet has seen no connection")
	}
	for _, protocol := range got {
		if protocol != c.upgrade {
			c.t.Errorf("the kubelet has seen %q, want %q", protocol, c.upgrade)
		}
	}
	want := 0
	if c.translated {
		want = len(got)
	}
	if got := c.count(metric) - before; got != want {
		c.t.Errorf("the server has translated %d connections, want %d", got, want)
	}
}

// count returns the sum of a metric of the server.
func (c *connections) count(metric string) (total int) {
	c.t.Helper()
	for line := range strings.Lines(c.want("", []string{"get", "--raw", "/metrics"})) {
		if !strings.HasPrefix(line, metric+"{") {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]))
		if err != nil {
			c.t.Errorf("%s: %v", line, err)
		}
		total += n
	}
	return total
}

func testExec(t *testing.T, c *connections) {
	pod := c.kubelet.Pod
	random := make([]byte, 1<<20)
	rand.Read(random)
	for _, test := range []struct {
		name  string
		input io.Reader
		args  []string
		want  result
	}{
		{"output", strings.NewReader(""), []string{"exec", pod, "--", "echo", "hello"}, result{stdout: "hello\n"}},
		{"both outputs and a status", strings.NewReader(""), []string{"exec", pod, "-c", "c", "--", "sh", "-c", "echo out; echo err >&2; exit 7"},
			result{"out\n", "err\ncommand terminated with exit code 7\n", 7}},
		{"input", bytes.NewReader(random), []string{"exec", "-i", pod, "--", "cat"}, result{stdout: string(random)}},
		{"input that does not end", nil, []string{"exec", "-i", pod, "--", "sh", "-c", "echo end; exit 3"},
			result{"end\n", "command terminated with exit code 3\n", 3}},
		{"much output", strings.NewReader(""), []string{"exec", pod, "--", "head", "-c", "8000000", "/dev/zero"}, result{stdout: strings.Repeat("\x00", 8_000_000)}},
	} {
		c.over(commandsTranslated, func() {
			got := c.runs(test.input, test.args...)
			if got != test.want {
				t.Errorf("%s: got %s, want %s", test.name, got, test.want)
			}
		})
	}
	got := c.runs(strings.NewReader(""), "exec", pod, "--", "/no/such/program")
	if got.status == 0 || !strings.Contains(got.stderr, "no such file or directory") {
		t.Errorf("a command that is not there: %s", got)
	}
}

// String returns the beginning of what was printed.
func (r result) String() string {
	return fmt.Sprintf("status %d, %d bytes %.200q, errors %.400q", r.status, len(r.stdout), r.stdout, r.stderr)
}

func testAttach(t *testing.T, c *connections) {
	c.kubelet.Main = []string{"sh", "-c", `echo begin; while read -r line; do echo "line $line"; done; echo end; echo err >&2`}
	for _, test := range []struct {
		name, input string
		args        []string
		want        string
	}{
		{"output", "", []string{"attach", c.kubelet.Pod}, "begin\nend\n"},
		{"input", "1\n2\n", []string{"attach", "-i", c.kubelet.Pod, "-c", "c"}, "begin\nline 1\nline 2\nend\n"},
	} {
		c.over(commandsTranslated, func() {
			got := c.runs(strings.NewReader(test.input), test.args...)
			if got.status != 0 || got.stdout != test.want || !strings.Contains(got.stderr, "err\n") {
				t.Errorf("%s: got %s, want %q", test.name, got, test.want)
			}
		})
	}
}

func testLogs(t *testing.T, c *connections) {
	now := time.Now().UTC()
	old := now.Add(-48 * time.Hour)
	c.kubelet.Previous = []kubelet.Line{{Time: old, Text: "before"}}
	c.kubelet.Print(kubelet.Line{Time: old, Text: "one"}, kubelet.Line{Time: now, Text: "two"}, kubelet.Line{Time: now, Text: "three"})
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "one\ntwo\nthree\n"},
		{[]string{"-c", "c", "--tail=2"}, "two\nthree\n"},
		{[]string{"--tail=0"}, ""},
		{[]string{"--limit-bytes=6"}, "one\ntw"},
		{[]string{"--previous"}, "before\n"},
		{[]string{"--since=24h"}, "two\nthree\n"},
		{[]string{"--timestamps", "--tail=1"}, now.Format(time.RFC3339Nano) + " three\n"},
		{[]string{"--all-containers", "--prefix", "--tail=1"}, "[pod/" + c.kubelet.Pod + "/c] three\n"},
	} {
		if got := c.runs(strings.NewReader(""), append([]string{"logs", c.kubelet.Pod}, test.args...)...); got != (result{stdout: test.want}) {
			t.Errorf("logs %s: %s, want %q", test.args, got, test.want)
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), connectionLimit)
	defer cancel()
	cmd := c.command(ctx, "", "logs", "-f", "--tail=1", c.kubelet.Pod)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(pipe)
	for _, want := range []string{"three", "four", "five"} {
		if want != "three" {
			c.kubelet.Print(kubelet.Line{Time: now, Text: want})
		}
		if got, err := lines.ReadString('\n'); got != want+"\n" {
			t.Fatalf("logs -f: %q, %v, want %q", got, err, want)
		}
	}
	c.kubelet.End()
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
		t.Errorf("logs -f: the rest is %q, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("logs -f: %v", err)
	}
}

func testPortForward(t *testing.T, c *connections) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(append([]byte(r.URL.Path+" "), b...))
	}))
	t.Cleanup(backend.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(backend.URL, "http://"), ":")
	c.over(portsTranslated, func() {
		address, end := c.forward(port)
		body := make([]byte, 1<<20)
		rand.Read(body)
		// Each request has a connection of its own. They run concurrently.
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		results := make(chan error)
		const requests = 5
		for i := range requests {
			go func() { results <- exchange(client, fmt.Sprintf("http://%s/%d", address, i), body) }()
		}
		for range requests {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if got := end(true); got != "" {
			t.Errorf("it printed %q", got)
		}
	})

	address, end := c.forward(strconv.Itoa(freeport.Find(t))) // nothing listens on it
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(connectionLimit)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("a closed port has sent %d bytes", n)
	}
	if got := end(false); !strings.Contains(got, "connection refused") || !strings.Contains(got, "lost connection to pod") {
		t.Errorf("a closed port: it printed %q", got)
	}
}

// connectionLimit ends a kubectl that hangs.
const connectionLimit = 3 * time.Minute

// forward forwards a local port to a port of the container. It returns the address of the local port, and end. end waits for
// kubectl to exit and returns its standard error. If kill is true, it kills kubectl first.
func (c *connections) forward(port string) (address string, end func(kill bool) string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), connectionLimit)
	cmd := c.command(ctx, "", "port-forward", "--address=127.0.0.1", "pod/"+c.kubelet.Pod, ":"+port)
	r, w := io.Pipe()
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &stderr
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait()
		w.Close()
	}()
	end = func(kill bool) string {
		if kill {
			cancel()
		}
		<-ended
		cancel()
		return stderr.String()
	}
	c.t.Cleanup(func() { end(true) })
	printed := bufio.NewReader(r)
	line, err := printed.ReadString('\n')
	if err != nil {
		c.t.Fatalf("it printed %q, %v\n%s", line, err, end(true))
	}
	go func() { _, _ = io.Copy(io.Discard, printed) }()
	address, _, _ = strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ")
	return address, end
}

// exchange posts a body, and checks that it returns.
func exchange(client *http.Client, url string, body []byte) error {
	resp, err := client.Post(url, "text/plain", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if want := append([]byte(resp.Request.URL.Path+" "), body...); !bytes.Equal(got, want) {
		return fmt.Errorf("%s: got %d bytes, want %d", url, len(got), len(want))
	}
	return nil
}

func testCopy(t *testing.T, c *connections) {
	from, back := t.TempDir(), t.TempDir()
	content := make([]byte, 3<<20)
	rand.Read(content)
	files := map[string][]byte{"tree/large": content, "tree/deep/er/small": []byte("small\n"), "tree/empty": {}}
	for name, content := range files {
		if err := os.MkdirAll(filepath.Join(from, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), content, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	copies := func(args ...string) {
		t.Helper()
		if got := c.runs(strings.NewReader(""), append([]string{"cp"}, args...)...); got.status != 0 || got.stderr != "" {
			t.Errorf("cp %s: %s", args, got)
		}
	}
	c.over(commandsTranslated, func() {
		copies(filepath.Join(from, "tree"), c.kubelet.Pod+":to")
		copies(filepath.Join(from, "tree/large"), c.kubelet.Pod+":one", "-c", "c")
		copies(c.kubelet.Pod+":to", filepath.Join(back, "tree"))
		copies(c.kubelet.Pod+":one", filepath.Join(back, "one"))
	})
	files["one"] = content
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(back, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes came back, %v, want %d", name, len(got), err, len(want))
		}
	}
}
