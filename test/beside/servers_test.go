package beside

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/tidemark-dev/tidemark/internal/freeport"
	"github.com/tidemark-dev/tidemark/internal/testprogram"
)

// programs names, in the environment, the folder of the programs etcd and kube-apiserver.
const programs = "TIDEMARK_TEST_PEER_PROGRAMS"

// The kinds of servers: the folders of their programs, in cluster.programs.
const (
	kube     = "kube-apiserver"
	tidemark = "tidemark"
)

// token is that of an administrator.
const token = "beside-token"

// cluster is an etcd, and the files that all servers on it share.
type cluster struct {
	*testing.T
	dir      string
	etcd     string // its URL
	db       *clientv3.Client
	programs map[string]string
	// controllers are those of Tidemark, as kube-controller-manager's flag has them; empty: all.
	controllers string
}

// server is an API server of a cluster.
type server struct {
	*cluster
	kind, url string
	process   *process
	client    *http.Client
}

// process is a program that runs.
type process struct {
	cmd  *exec.Cmd
	log  bytes.Buffer // complete when done is closed
	done chan struct{}
}

// newCluster starts an etcd.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	folder := os.Getenv(programs)
	if folder == "" {
		t.Skipf("%s names no folder with etcd and kube-apiserver", programs)
	}
	c := &cluster{T: t, dir: t.TempDir(), programs: map[string]string{kube: filepath.Join(folder, "kube-apiserver")}}
	c.build()
	c.certificates()
	c.etcd = fmt.Sprintf("http://127.0.0.1:%d", freeport.Find(t))
	peers := fmt.Sprintf("http://127.0.0.1:%d", freeport.Find(t))
	c.start(exec.Command(filepath.Join(folder, "etcd"), "--data-dir="+filepath.Join(c.dir, "etcd"), "--log-level=error", "--unsafe-no-fsync",
		"--listen-client-urls="+c.etcd, "--advertise-client-urls="+c.etcd, "--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers))
	db, err := clientv3.New(clientv3.Config{Endpoints: []string{c.etcd}, DialTimeout: time.Minute})
	c.must(err)
	t.Cleanup(func() { db.Close() })
	c.db = db
	return c
}

// build links Tidemark under the name kube-apiserver.
func (c *cluster) build() {
	c.Helper()
	c.programs[tidemark] = filepath.Join(c.dir, "kube-apiserver")
	c.must(os.Symlink(testprogram.Path(c.T), c.programs[tidemark]))
}

// certificates writes the files that all servers share.
func (c *cluster) certificates() {
	c.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"})
	c.must(err)
	signing, err := rsa.GenerateKey(rand.Reader, 2048)
	c.must(err)
	accounts, err := keyutil.MarshalPrivateKeyToPEM(signing)
	c.must(err)
	for name, data := range map[string][]byte{
		"server.crt": certificate, "server.key": key, "accounts.key": accounts, "tokens": []byte(token + `,admin,admin,"system:masters"` + "\n"),
	} {
		c.must(os.WriteFile(filepath.Join(c.dir, name), data, 0o600))
	}
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// start starts a program. It ends with the test.
func (c *cluster) start(cmd *exec.Cmd) *process {
	c.Helper()
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	c.must(cmd.Start())
	go func() {
		cmd.Wait()
		close(p.done)
	}()
	c.Cleanup(func() {
		p.stop()
		if c.Failed() {
			c.Logf("%s:\n%s", cmd.Path, tail(p.log.Bytes()))
		}
	})
	return p
}

func tail(log []byte) []byte { return log[max(0, len(log)-2000):] }

// stop ends the program as an operator does, and waits for it.
func (p *process) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(90 * time.Second):
		p.cmd.Process.Kill()
		<-p.done
	}
}

// serve starts a server of a kind, with the address that it shows to others, and waits until it is ready.
// Both kinds get the same flags, and more of them.
func (c *cluster) serve(kind, address string, more ...string) *server {
	c.Helper()
	port, file := freeport.Find(c.T), func(name string) string { return filepath.Join(c.dir, name) }
	cmd := exec.Command(c.programs[kind], append(more, "--etcd-servers="+c.etcd, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--advertise-address="+address,
		"--tls-cert-file="+file("server.crt"), "--tls-private-key-file="+file("server.key"), "--client-ca-file="+file("server.crt"), "--token-auth-file="+file("tokens"),
		"--authorization-mode=Node,RBAC", "--service-account-key-file="+file("accounts.key"), "--service-account-signing-key-file="+file("accounts.key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.0.0.0/16", "--disable-admission-plugins=ServiceAccount",
		"--requestheader-client-ca-file="+file("server.crt"), "--requestheader-allowed-names=front-proxy-client", "--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-")...)
	cmd.Env = append(os.Environ(), "TIDEMARK_CONTROLLERS="+cmp.Or(c.controllers, "*"))
	s := &server{cluster: c, kind: kind, url: fmt.Sprintf("https://127.0.0.1:%d", port), process: c.start(cmd)}
	s.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	c.Cleanup(s.client.CloseIdleConnections)
	c.until("the server is ready", func() bool {
		select {
		case <-s.process.done:
			c.Fatalf("%s has ended:\n%s", kind, tail(s.process.log.Bytes()))
		default:
		}
		r, err := http.NewRequest(http.MethodGet, s.url+"/readyz", nil)
		c.must(err)
		resp, err := s.client.Do(r)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return s
}

// config returns a client's configuration.
func config(host string) *rest.Config {
	return &rest.Config{Host: host, BearerToken: token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// until waits until a condition holds.
func (c *cluster) until(what string, holds func() bool) {
	c.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.Fatalf("not within 3 minutes: %s", what)
		}
	}
}

// send sends a request, and returns the code and the body of the response.
func (s *server) send(method, path string, o any) (int, []byte) {
	s.Helper()
	var body io.Reader
	if o != nil {
		text, err := json.Marshal(o)
		s.must(err)
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(context.Background(), method, s.url+path, body)
	s.must(err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	r.Header.Set("Accept", "application/json")
	resp, err := s.client.Do(r)
	if err != nil {
		s.Fatalf("%s: %s %s: %v", s.kind, method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	s.must(err)
	return resp.StatusCode, text
}

// want fails unless a request has a code, and returns the object of the response.
func (s *server) want(code int, method, path string, o any) map[string]any {
	s.Helper()
	got, body := s.send(method, path, o)
	if got != code {
		s.Errorf("%s: %s %s: %d, want %d: %s", s.kind, method, path, got, code, body)
	}
	var response map[string]any
	json.Unmarshal(body, &response)
	return response
}

// value returns the value in etcd, nil for none, and the revision of its last change.
func (c *cluster) value(key string) ([]byte, int64) {
	c.Helper()
	got, err := c.db.Get(c.Context(), key)
	c.must(err)
	if len(got.Kvs) == 0 {
		return nil, 0
	}
	return got.Kvs[0].Value, got.Kvs[0].ModRevision
}

// object returns JSON as an object.
func object(text string) map[string]any {
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(fmt.Sprint(err, ": ", text))
	}
	return o
}

// member returns a part of an object, nil if it is not there.
func member(o any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		m, _ := o.(map[string]any)
		o = m[name]
	}
	return o
}
