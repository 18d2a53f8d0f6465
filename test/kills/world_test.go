package kills

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark/internal/freeport"
	"github.com/tidemark-dev/tidemark/internal/testprogram"
)

// asMember has, in the environment, the configuration of a member of etcd that this program runs.
const asMember = "TIDEMARK_TEST_AS_MEMBER"

func TestMain(m *testing.M) {
	if config := os.Getenv(asMember); config != "" {
		if err := runMember(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// memberConfig is the configuration of a member.
type memberConfig struct {
	Name, Dir, Clients, Peers, AdvertiseClients, AdvertisePeers, Cluster, State string
	Quota                                                                       int64
}

// runMember runs a member until the standard input ends, which it does with the parent.
func runMember(text string) error {
	var c memberConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	urls := func(address string) []url.URL { return []url.URL{{Scheme: "http", Host: address}} }
	o := embed.NewConfig()
	o.Name, o.Dir, o.InitialCluster, o.ClusterState, o.QuotaBackendBytes = c.Name, c.Dir, c.Cluster, c.State, c.Quota
	o.ListenClientUrls, o.AdvertiseClientUrls = urls(c.Clients), urls(c.AdvertiseClients)
	o.ListenPeerUrls, o.AdvertisePeerUrls = urls(c.Peers), urls(c.AdvertisePeers)
	o.LogLevel, o.LogOutputs = "error", []string{"stderr"}
	e, err := embed.StartEtcd(o)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return <-e.Err()
}

// process is a program that is killed and started again.
type process struct {
	name    string
	command func() *exec.Cmd
	log     string // the file of its output

	mu       sync.Mutex
	cmd      *exec.Cmd
	ended    chan struct{}
	expected bool // its end is no failure
	starts   int
}

// start starts the program. An end that is not expected fails the test.
func (p *process) start(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd := p.command()
	out, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.Stdin == nil {
		_, err = cmd.StdinPipe()
		must(t, err)
	}
	must(t, cmd.Start())
	ended := make(chan struct{})
	p.cmd, p.ended, p.expected = cmd, ended, false
	p.starts++
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		expected := p.expected
		p.mu.Unlock()
		if !expected {
			t.Errorf("%s ended: %v\n%s", p.name, err, p.tail())
		}
		close(ended)
	}()
}

// kill ends the program at once.
func (p *process) kill() {
	p.mu.Lock()
	cmd, ended := p.cmd, p.ended
	p.expected = true
	p.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		<-ended
	}
}

// signal sends a signal.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(s)
}

// tail returns the end of the output.
func (p *process) tail() string {
	text, _ := os.ReadFile(p.log)
	return string(text[max(0, len(text)-4000):])
}

// member is one of etcd.
type member struct {
	process
	config memberConfig
	peers  *link
}

// server is a tidemark serve.
type server struct {
	process
	address string
	links   []*link // to each member
	client  *http.Client
	base    string
}

// options are the parameters that the tests vary.
type options struct {
	quota      int64    // of etcd's database; zero: the default
	serverArgs []string // more flags of servers
}

// world is a cluster of etcd with servers.
type world struct {
	t       testing.TB
	dir     string
	members []*member
	servers []*server
	etcd    *clientv3.Client
	// replaced counts members that got new data directories.
	replaced int
}

const three = 3

// newWorld starts three members and three servers.
func newWorld(t testing.TB, o options) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	t.Cleanup(w.end)
	w.addMembers(o)
	for _, m := range w.members {
		m.start(t)
	}
	var endpoints []string
	for _, m := range w.members {
		endpoints = append(endpoints, "http://"+m.config.Clients)
	}
	var err error
	w.etcd, err = clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	must(t, err)
	for _, m := range w.members {
		w.memberReady(m)
	}
	for i := range three {
		s := w.addServer(i, o)
		if i > 0 {
			must(t, os.CopyFS(filepath.Join(w.dir, s.name, "pki"), os.DirFS(filepath.Join(w.dir, w.servers[0].name, "pki"))))
		}
		s.start(t)
		w.serverReady(s)
	}
	return w
}

func (w *world) addMembers(o options) {
	var cluster []string
	for i := range three {
		name := fmt.Sprint("member", i)
		m := &member{config: memberConfig{Name: name, Dir: filepath.Join(w.dir, name), Clients: freeport.Address(w.t), Peers: freeport.Address(w.t), State: "new", Quota: o.quota}}
		m.peers = newLink(w.t, m.config.Peers, true)
		m.config.AdvertiseClients, m.config.AdvertisePeers = m.config.Clients, m.peers.address()
		m.name, m.log = name, filepath.Join(w.dir, name+".log")
		cluster = append(cluster, name+"=http://"+m.config.AdvertisePeers)
		m.command = func() *exec.Cmd {
			config, err := json.Marshal(m.config)
			must(w.t, err)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), asMember+"="+string(config))
			return cmd
		}
		w.members = append(w.members, m)
	}
	for _, m := range w.members {
		m.config.Cluster = strings.Join(cluster, ",")
	}
}

func (w *world) addServer(i int, o options) *server {
	s := &server{address: freeport.Address(w.t)}
	s.name = fmt.Sprint("server", i)
	s.log = filepath.Join(w.dir, s.name+".log")
	var urls []string
	for _, m := range w.members {
		l := newLink(w.t, m.config.Clients, false)
		s.links = append(s.links, l)
		urls = append(urls, "http://"+l.address())
	}
	_, port, _ := strings.Cut(s.address, ":")
	program := testprogram.Path(w.t)
	s.command = func() *exec.Cmd {
		data := filepath.Join(w.dir, s.name)
		args := []string{"serve", "--data-dir", data, "--secure-port", port, "--kubeconfig-out", filepath.Join(data, "admin.kubeconfig"),
			"--etcd-servers", strings.Join(urls, ","), "--exit-with-parent"}
		return exec.Command(program, append(args, o.serverArgs...)...)
	}
	must(w.t, os.MkdirAll(filepath.Join(w.dir, s.name), 0o700))
	w.servers = append(w.servers, s)
	return s
}

// end kills everything.
func (w *world) end() {
	for _, s := range w.servers {
		s.signalAll()
		s.kill()
	}
	for _, m := range w.members {
		m.signalAll()
		m.kill()
	}
	if w.etcd != nil {
		w.etcd.Close()
	}
}

// signalAll continues a process that is stopped.
func (p *process) signalAll() {
	if p.cmd != nil {
		p.signal(syscall.SIGCONT)
	}
}

// longWait limits each wait for something that has to happen.
const longWait = 2 * time.Minute

// until waits for a condition.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for began := time.Now(); time.Since(began) < longWait; time.Sleep(20 * time.Millisecond) {
		if condition() {
			return
		}
	}
	t.Fatalf("waited in vain: %s", what)
}

func (w *world) memberReady(m *member) {
	w.t.Helper()
	until(w.t, m.name+" is ready", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		status, err := w.etcd.Status(ctx, "http://"+m.config.Clients)
		return err == nil && status.Leader != 0 && len(status.Errors) == 0
	})
}

func (w *world) serverReady(s *server) {
	w.t.Helper()
	until(w.t, s.name+" is ready", func() bool {
		if s.client == nil {
			config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(w.dir, s.name, "admin.kubeconfig"))
			if err != nil {
				return false
			}
			client, err := rest.HTTPClientFor(config)
			must(w.t, err)
			s.client, s.base = client, "https://"+s.address
		}
		code, _, err := s.do(time.Second, http.MethodGet, "/readyz", "", nil)
		return err == nil && code == http.StatusOK
	})
}

// do sends a request. A body without a type is JSON.
func (s *server) do(timeout time.Duration, method, path, contentType string, body []byte) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if contentType == "" {
		contentType = "application/json"
	}
	r.Header.Set("Content-Type", contentType)
	response, err := s.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, text, err
}

// etcdLeader returns the member that leads, nil if that is not known.
func (w *world) etcdLeader() *member {
	for _, m := range w.members {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		status, err := w.etcd.Status(ctx, "http://"+m.config.Clients)
		cancel()
		if err == nil && status.Leader == status.Header.MemberId {
			return m
		}
	}
	return nil
}

// leader returns the server that leads, nil if that is not known.
func (w *world) leader() *server {
	for _, s := range w.servers {
		code, text, err := s.do(2*time.Second, http.MethodGet, "/readyz?verbose", "", nil)
		if err == nil && code == http.StatusOK && !bytes.Contains(text, []byte("server leads")) {
			return s
		}
	}
	return nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
