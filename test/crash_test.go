package test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark/internal/testprogram"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

const (
	crashRounds  = 6 // in the full tier
	crashClients = 16
	crashWrites  = 2000 // before each kill, at most
)

// TestKill kills the real process with SIGKILL under load, again and again, and
// checks after each restart that everything acknowledged is there, that resource
// versions never go back, and at the end that one watch, which began before all
// of it and went on from its last version after each restart, saw every change
// once and in order.
func TestKill(t *testing.T) {
	rng := random(t)
	p := &process{t: t, dir: t.TempDir()}
	p.start()
	t.Cleanup(p.kill)

	l := &load{model: map[string]*record{}}
	first := p.list(t)
	w := &follower{after: first.Metadata.ResourceVersion}
	rounds := 2
	if tier.IsFull(t) {
		rounds = crashRounds
	}
	for round := range rounds {
		seen := p.watchFrom(w)
		l.run(p, rng, crashWrites/4+rng.IntN(crashWrites*3/4))
		p.kill()
		<-seen
		p.start()
		l.check(t, p, round)
	}
	final := p.list(t)
	w.drain(t, p)
	w.check(t, first, final)
	t.Logf("%d writes acknowledged, %d events seen, over %d kills", l.acknowledged, len(w.events), rounds)
}

// process is a tidemark command on a data directory.
type process struct {
	t      *testing.T
	dir    string
	disk   string   // the size of a file system of its own for the data, as mount has it; empty: none
	args   []string // further flags
	cmd    *exec.Cmd
	client *http.Client
	base   string
}

func (p *process) start() {
	p.t.Helper()
	config := filepath.Join(p.dir, "admin.kubeconfig")
	p.cmd = p.command(append([]string{"serve", "--data-dir", p.data(), "--secure-port", "0", "--kubeconfig-out", config}, p.args...)...)
	var log bytes.Buffer
	p.cmd.Stderr = &log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "Ready in ") {
	}
	c, err := clientcmd.BuildConfigFromFlags("", config)
	if err != nil {
		p.t.Fatalf("%v\n%s", err, log.String())
	}
	if p.connect(c); p.get(context.Background(), "/readyz") != http.StatusOK {
		p.t.Fatalf("the server is not ready:\n%s", log.String())
	}
}

func (p *process) data() string { return filepath.Join(p.dir, "data") }

// command returns the program with arguments, with its disk if it has one.
func (p *process) command(args ...string) *exec.Cmd {
	if p.disk == "" {
		return exec.Command(testprogram.Path(p.t), args...)
	}
	const mount = `mkdir -p -m 700 "$1" && mount -t tmpfs -o size="$0",mode=700 tidemark "$1" && shift && exec "$@"`
	return exec.Command("unshare", append([]string{"--mount", "sh", "-c", mount, p.disk, p.data(), testprogram.Path(p.t)}, args...)...)
}

func (p *process) connect(c *rest.Config) {
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		p.t.Fatal(err)
	}
	p.client, p.base = client, c.Host
}

func (p *process) get(ctx context.Context, path string) int {
	code, _, _ := p.do(ctx, "GET", path, nil)
	return code
}

func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	p.cmd.Process.Kill()
	p.cmd.Wait()
	p.client.CloseIdleConnections()
	p.cmd = nil
}

func (p *process) do(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, data, err
}

const secrets = "/api/v1/namespaces/default/secrets"

type object struct {
	Metadata struct {
		Name            string
		ResourceVersion string
	}
	StringData map[string]string `json:"stringData,omitempty"`
	Data       map[string][]byte
}

type objectList struct {
	Metadata struct{ ResourceVersion string }
	Items    []object
}

func (p *process) list(t *testing.T) objectList {
	t.Helper()
	code, body, err := p.do(context.Background(), "GET", secrets, nil)
	var l objectList
	if err == nil && code == http.StatusOK {
		err = json.Unmarshal(body, &l)
	}
	if err != nil || code != http.StatusOK {
		t.Fatalf("list: %d %v", code, err)
	}
	return l
}

// record is the client's knowledge of one name. Only one client writes it.
type record struct {
	value   string // acknowledged; empty: absent
	version uint64
	// maybe is the value of a write without a response; its outcome is known after the next
	// restart.
	maybe   *string
	counter int
}

// load writes from several clients until the process dies.
type load struct {
	mu           sync.Mutex
	model        map[string]*record
	acknowledged int
	killAt       int // the number of acknowledged writes at which the process is killed
	newest       uint64
}

// run kills the process after a number of acknowledged writes, while the clients still write.
func (l *load) run(p *process, rng *rand.Rand, writes int) {
	l.killAt = l.acknowledged + writes
	var wg sync.WaitGroup
	for client := range crashClients {
		own := rand.New(rand.NewPCG(rng.Uint64(), 1))
		wg.Go(func() {
			for l.write(p, own, fmt.Sprintf("s-%02d-%d", client, own.IntN(8))) {
			}
		})
	}
	wg.Wait()
	if l.acknowledged < l.killAt {
		p.t.Fatalf("the clients ended after %d acknowledged writes, before the kill at %d", l.acknowledged, l.killAt)
	}
}

// write changes one name, and reports whether the server responded.
func (l *load) write(p *process, rng *rand.Rand, name string) bool {
	l.mu.Lock()
	r := l.model[name]
	if r == nil {
		r = &record{}
		l.model[name] = r
	}
	r.counter++
	method, path, value := "PUT", secrets+"/"+name, strconv.Itoa(r.counter)
	switch {
	case r.value == "":
		method, path = "POST", secrets
	case rng.IntN(4) == 0:
		method, value = "DELETE", ""
	}
	r.maybe = &value
	l.mu.Unlock()

	var body []byte
	if method != "DELETE" {
		body = fmt.Appendf(nil, `{"metadata":{"name":%q},"stringData":{"v":%q}}`, name, value)
	}
	code, response, err := p.do(context.Background(), method, path, body)
	if err != nil || code >= 300 {
		return false // the record keeps maybe: the outcome is unknown
	}
	var o object
	json.Unmarshal(response, &o)
	l.mu.Lock()
	defer l.mu.Unlock()
	r.value, r.maybe = value, nil
	if l.acknowledged++; l.acknowledged == l.killAt {
		p.cmd.Process.Kill()
	}
	if v, _ := strconv.ParseUint(o.Metadata.ResourceVersion, 10, 64); v > 0 {
		r.version, l.newest = v, max(l.newest, v)
	}
	return true
}

// check compares the restarted server with the model, and sets the unknown outcomes.
func (l *load) check(t *testing.T, p *process, round int) {
	t.Helper()
	list := p.list(t)
	if v, _ := strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64); v < l.newest {
		t.Errorf("round %d: the list is at %d, but %d was acknowledged", round, v, l.newest)
	}
	there := map[string]object{}
	for _, o := range list.Items {
		there[o.Metadata.Name] = o
	}
	for name, r := range l.model {
		o := there[name]
		got := string(o.Data["v"])
		if got != r.value && (r.maybe == nil || got != *r.maybe) {
			t.Errorf("round %d: %s holds %q, acknowledged was %q", round, name, got, r.value)
		}
		if v, _ := strconv.ParseUint(o.Metadata.ResourceVersion, 10, 64); got != "" && v < r.version {
			t.Errorf("round %d: %s is at %d, acknowledged was %d", round, name, v, r.version)
		}
		r.value, r.maybe = got, nil
	}
}

// follower is one watch that goes on over restarts.
type follower struct {
	after  string
	events []watchEvent
}

type watchEvent struct {
	Type   string
	Object object
}

// watchFrom follows until the connection breaks; then it closes the channel.
func (p *process) watchFrom(f *follower) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.follow(context.Background(), p, "")
	}()
	return done
}

// follow reads events until the stream ends, or until the version is reached.
func (f *follower) follow(ctx context.Context, p *process, until string) error {
	req, err := http.NewRequestWithContext(ctx, "GET", p.base+secrets+"?watch=1&resourceVersion="+f.after, nil)
	if err != nil {
		return err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	decoder := json.NewDecoder(resp.Body)
	for until == "" || f.after != until {
		var e watchEvent
		if err := decoder.Decode(&e); err != nil {
			return err
		}
		if e.Type == "ERROR" {
			return errors.New("the watch sent an ERROR")
		}
		f.after = e.Object.Metadata.ResourceVersion
		f.events = append(f.events, e)
	}
	return nil
}

// drain makes one more change, and reads up to it.
func (f *follower) drain(t *testing.T, p *process) {
	t.Helper()
	code, body, err := p.do(context.Background(), "POST", secrets, []byte(`{"metadata":{"name":"last"}}`))
	if err != nil || code != http.StatusCreated {
		t.Fatalf("the last write: %d %v", code, err)
	}
	var o object
	if err := json.Unmarshal(body, &o); err != nil {
		t.Fatal(err)
	}
	if err := f.follow(t.Context(), p, o.Metadata.ResourceVersion); err != nil {
		t.Fatalf("reading up to %s: %v", o.Metadata.ResourceVersion, err)
	}
	f.events = f.events[:len(f.events)-1]
}

// check replays the events on the first list, and compares with the final one.
func (f *follower) check(t *testing.T, first, final objectList) {
	t.Helper()
	state := map[string]object{}
	for _, o := range first.Items {
		state[o.Metadata.Name] = o
	}
	var last uint64
	for i, e := range f.events {
		name := e.Object.Metadata.Name
		v, _ := strconv.ParseUint(e.Object.Metadata.ResourceVersion, 10, 64)
		if v <= last {
			t.Errorf("event %d is at %d, after %d", i, v, last)
		}
		last = v
		_, was := state[name]
		if (e.Type == "ADDED") == was {
			t.Errorf("event %d: %s of %s, which was there: %v", i, e.Type, name, was)
		}
		if state[name] = e.Object; e.Type == "DELETED" {
			delete(state, name)
		}
	}
	if len(state) != len(final.Items) {
		t.Errorf("the events leave %d objects, the list has %d", len(state), len(final.Items))
	}
	for _, o := range final.Items {
		if got := state[o.Metadata.Name].Metadata.ResourceVersion; got != o.Metadata.ResourceVersion {
			t.Errorf("%s: the events end at version %q, the list has %q", o.Metadata.Name, got, o.Metadata.ResourceVersion)
		}
	}
}
