//go:build unix

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/freeport"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// called runs this test binary under the name of another program.
func called(t *testing.T, name string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Args = append([]string{"/assets/" + name}, args...)
	cmd.Env = append(append(os.Environ(), asCommand+"=1", "GORACE=atexit_sleep_ms=0", controllersVariable+"="), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// outcome runs a program to its end.
func outcome(t *testing.T, name string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := called(t, name, nil, args...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	cmd.Run()
	return cmd.ProcessState.ExitCode(), out.String(), err.String()
}

// background is a program that runs.
type background struct {
	*exec.Cmd
	stderr servertest.Buffer
	done   chan struct{} // closed when it has ended
}

func start(t *testing.T, cmd *exec.Cmd) *background {
	t.Helper()
	b := &background{Cmd: cmd, done: make(chan struct{})}
	cmd.Stderr = &b.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(b.done)
		cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-b.done
	})
	return b
}

// terminate sends SIGTERM to the group, as envtest does, and requires a clean end.
func (b *background) terminate(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-b.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-b.done
	if code := b.ProcessState.ExitCode(); code != exitOK {
		t.Errorf("%s ended with %d\n%s", b.Args[0], code, b.stderr.String())
	}
}

// anonymous is a client without credentials, which verifies nothing: that of a readiness check.
func anonymous(client ...tls.Certificate) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: client}}, Timeout: 20 * time.Second}
}

// until polls a URL until it responds with 200. Only refused connections may come before.
func until(t *testing.T, b *background, url string) {
	t.Helper()
	await.Nil(t, url, func() error {
		select {
		case <-b.done:
			t.Fatalf("%s ended:\n%s", b.Args[0], b.stderr.String())
		default:
		}
		resp, err := anonymous().Get(url)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("the first response of %s is %s", url, resp.Status)
		}
		return nil
	})
}

// authority signs certificates like those of a harness.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func newKey(t *testing.T) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, pemOf("PRIVATE KEY", der)
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, _ := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, pemOf("CERTIFICATE", der)}
}

func (a *authority) issue(t *testing.T, subject pkix.Name) (cert, key []byte) {
	t.Helper()
	private, key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: subject, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return pemOf("CERTIFICATE", der), key
}

func write(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// plane is a control plane as a test harness starts it.
type plane struct {
	etcd, server *background
	url          string
	admin        *http.Client
}

// body sends a request as the administrator.
func (p *plane) body(t *testing.T, method, path, send string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, p.url+path, strings.NewReader(send))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := p.admin.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// likeEnvtest starts the two programs with the files and flags of controller-runtime's envtest.
func likeEnvtest(t *testing.T, env []string, more ...string) *plane {
	t.Helper()
	dir := t.TempDir()
	clients, servers := newAuthority(t), newAuthority(t)
	serving, servingKey := servers.issue(t, pkix.Name{CommonName: "localhost"})
	signer, signerKey := servers.issue(t, pkix.Name{CommonName: "sa-signer"})
	write(t, filepath.Join(dir, "apiserver.crt"), serving)
	write(t, filepath.Join(dir, "apiserver.key"), servingKey)
	write(t, filepath.Join(dir, "sa-signer.crt"), signer)
	write(t, filepath.Join(dir, "sa-signer.key"), signerKey)
	write(t, filepath.Join(dir, "client-cert-auth-ca.crt"), clients.pem)

	etcdURL := fmt.Sprintf("http://127.0.0.1:%d", freeport.Find(t))
	etcd := start(t, called(t, asEtcd, nil, "--advertise-client-urls="+etcdURL, "--data-dir="+filepath.Join(dir, "etcd"),
		"--listen-client-urls="+etcdURL, "--listen-peer-urls=http://127.0.0.1:0", "--unsafe-no-fsync=true"))
	until(t, etcd, etcdURL+"/health")
	port := freeport.Find(t)
	server := start(t, called(t, asAPIServer, env, append([]string{
		"--allow-privileged=true", "--authorization-mode=RBAC", "--bind-address=127.0.0.1", "--cert-dir=" + dir,
		"--client-ca-file=" + dir + "/client-cert-auth-ca.crt", "--disable-admission-plugins=ServiceAccount", "--etcd-servers=" + etcdURL,
		fmt.Sprintf("--secure-port=%d", port), fmt.Sprintf("--service-account-issuer=https://127.0.0.1:%d/", port),
		"--service-account-key-file=" + dir + "/sa-signer.crt", "--service-account-signing-key-file=" + dir + "/sa-signer.key",
		"--service-cluster-ip-range=10.0.0.0/24",
	}, more...)...))
	p := &plane{etcd: etcd, server: server, url: fmt.Sprintf("https://127.0.0.1:%d", port)}
	until(t, server, p.url+"/healthz")

	cert, key := clients.issue(t, pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}})
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(servers.cert)
	p.admin = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}}
	return p
}

// TestLikeEnvtest: the server uses the files in --cert-dir, is ready for clients without credentials
// with its first response, runs no controllers of kube-controller-manager, logs no warning, and ends
// at once while a watch is open.
func TestLikeEnvtest(t *testing.T) {
	t.Parallel()
	p := likeEnvtest(t, nil)
	if code, body := p.body(t, http.MethodGet, "/api/v1/namespaces/default", ""); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	if code, body := p.body(t, http.MethodGet, "/readyz?verbose", ""); code != http.StatusOK ||
		strings.Contains(body, "controller/namespace") || !strings.Contains(body, "controller/event-ttl") {
		t.Errorf("%d %s", code, body)
	}
	account := `{"metadata":{"name":"a"}}`
	p.body(t, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts", account)
	if code, body := p.body(t, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/a/token", `{}`); code != http.StatusCreated {
		t.Errorf("%d %s", code, body)
	}
	if strings.Contains(p.server.stderr.String(), "WARN") {
		t.Errorf("warnings:\n%s", p.server.stderr.String())
	}
	watch, err := p.admin.Get(p.url + "/api/v1/namespaces?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	p.server.terminate(t)
	if _, err := io.ReadAll(watch.Body); err != nil {
		t.Errorf("the watch ended with %v", err)
	}
	p.etcd.terminate(t)
}

// TestControllersVariable turns all controllers on. Other flags without effect are warned about, once
// each, unless they are empty or a gate has its default.
func TestControllersVariable(t *testing.T) {
	t.Parallel()
	p := likeEnvtest(t, []string{controllersVariable + "=*"}, "--etcd-prefix=/a", "--etcd-prefix=/b", "--tracing-config-file=", "--runtime-config=", "--audit-policy-file=",
		"--feature-gates=WatchList=false,SizeBasedListCostEstimate=true", "--max-requests-inflight=0", "--max-mutating-requests-inflight=0", "--enable-priority-and-fairness=false")
	if _, body := p.body(t, http.MethodGet, "/readyz?verbose", ""); !strings.Contains(body, "controller/namespace") {
		t.Error(body)
	}
	log := p.server.stderr.String()
	if strings.Count(log, "flag=--") != 1 || !strings.Contains(log, "flag=--etcd-prefix") || !strings.Contains(log, "gate=WatchList") || strings.Contains(log, "gate=SizeBasedListCostEstimate") {
		t.Error(log)
	}
}

// TestChangesVariable: as kube-apiserver, the program serves no group of its own unless the environment asks for it.
func TestChangesVariable(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"": false, "true": true} {
		p := likeEnvtest(t, []string{changesVariable + "=" + value})
		if _, body := p.body(t, http.MethodGet, "/apis", ""); strings.Contains(body, "tidemark.dev") != want {
			t.Errorf("%q: the groups are %s", value, body)
		}
	}
}

// TestAdmissionControl: --admission-control has the only plugins that are enabled, none if it is empty, as kwokctl passes
// it. In the default set, ServiceAccount refuses a Pod in a namespace without ServiceAccounts.
func TestAdmissionControl(t *testing.T) {
	t.Parallel()
	etcdURL := fmt.Sprintf("http://127.0.0.1:%d", freeport.Find(t))
	until(t, start(t, called(t, asEtcd, nil, "--listen-client-urls="+etcdURL)), etcdURL+"/health")
	tokens := write(t, filepath.Join(t.TempDir(), "tokens"), []byte("secret,admin,1,system:masters\n"))
	for flag, want := range map[string]int{"": http.StatusForbidden, "--admission-control=": http.StatusCreated, "--admission-control=NamespaceLifecycle": http.StatusCreated,
		"--admission-control=ServiceAccount,Priority": http.StatusForbidden} {
		t.Run(strings.TrimPrefix(flag, "--"), func(t *testing.T) {
			t.Parallel()
			port := freeport.Find(t)
			args := []string{"--bind-address=127.0.0.1", "--etcd-servers=" + etcdURL, fmt.Sprintf("--secure-port=%d", port), "--token-auth-file=" + tokens, "--authorization-mode=RBAC"}
			if flag != "" {
				args = append(args, flag)
			}
			server := start(t, called(t, asAPIServer, nil, args...))
			url := fmt.Sprintf("https://127.0.0.1:%d", port)
			until(t, server, url+"/healthz")
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/v1/namespaces/default/pods",
				strings.NewReader(`{"metadata":{"name":"a"},"spec":{"containers":[{"name":"a","image":"a"}]}}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer secret")
			resp, err := anonymous().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != want {
				t.Errorf("%q: %d %s %v, want %d", flag, resp.StatusCode, body, err, want)
			}
			server.terminate(t)
			if strings.Contains(server.stderr.String(), "has no effect") {
				t.Errorf("%q: warnings:\n%s", flag, server.stderr.String())
			}
		})
	}
}

// orphans starts both programs from a shell, as a harness does, and returns when they respond. Each reader
// ends when its program has ended.
func orphans(t *testing.T, env string, script string) (shell *exec.Cmd, etcd, server io.Reader) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{asEtcd, asAPIServer} {
		if err := os.Symlink(self(t), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	var ends []io.Reader
	var files []*os.File
	for range 2 {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer write.Close()
		t.Cleanup(func() { read.Close() })
		ends, files = append(ends, read), append(files, write)
	}
	etcdURL, port := fmt.Sprintf("http://127.0.0.1:%d", freeport.Find(t)), freeport.Find(t)
	start := fmt.Sprintf(`"$0/etcd" --listen-client-urls=%s 4>&- & a=$!
"$0/kube-apiserver" --authorization-mode=RBAC --etcd-servers=%s --bind-address=127.0.0.1 --secure-port=%d 3>&- & b=$!
`, etcdURL, etcdURL, port)
	shell = exec.Command("sh", "-c", start+script, dir)
	shell.Env = append(os.Environ(), asCommand+"=1", "GORACE=atexit_sleep_ms=0", exitWithParentVariable+"="+env)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // for the end of a test that fails
	shell.ExtraFiles = files
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-shell.Process.Pid, syscall.SIGKILL)
		shell.Wait()
	})
	responses(t, etcdURL+"/health")
	responses(t, fmt.Sprintf("https://127.0.0.1:%d/readyz", port))
	return shell, ends[0], ends[1]
}

// responses waits until a URL responds with 200.
func responses(t *testing.T, url string) {
	t.Helper()
	await.Nil(t, url, func() error {
		resp, err := anonymous().Get(url)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// TestExitWithParentVariable: both programs end when the harness was killed, if the environment asks for
// that.
func TestExitWithParentVariable(t *testing.T) {
	t.Parallel()
	shell, etcd, server := orphans(t, "true", "wait")
	shell.Process.Kill()
	for name, end := range map[string]io.Reader{asEtcd: etcd, asAPIServer: server} {
		if rest, err := io.ReadAll(end); err != nil || len(rest) > 0 {
			t.Errorf("the end of %s: %q %v", name, rest, err)
		}
	}
	for _, name := range []string{asEtcd, asAPIServer} {
		cmd := called(t, name, []string{exitWithParentVariable + "=perhaps"}, "--etcd-servers=http://127.0.0.1:1")
		if name == asEtcd {
			cmd.Args = cmd.Args[:1]
		}
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != exitFailed || !strings.Contains(string(out), `TIDEMARK_EXIT_WITH_PARENT="perhaps": want true or false`) {
			t.Errorf("%s with a wrong value: %v\n%s", name, cmd.ProcessState, out)
		}
	}
}

// TestParentExits: by default, the programs serve after the end of the process that started them. Some
// harnesses, such as kwokctl, start them and exit.
func TestParentExits(t *testing.T) {
	t.Parallel()
	shell, etcd, server := orphans(t, "", "echo $a $b >&3")
	if err := shell.Wait(); err != nil {
		t.Fatal(err)
	}
	var pids [2]int
	if _, err := fmt.Fscan(etcd, &pids[0], &pids[1]); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Errorf("a program has ended: %v", err)
		}
	}
	for _, end := range []io.Reader{etcd, server} {
		io.ReadAll(end)
	}
}

// TestLikeJava: the command lines of fabric8's kube-api-test, where kube-apiserver starts before etcd listens, in a
// directory without certificates: flags of etcd with one dash, values after a space, repeated flags, an RSA key, a path
// as issuer, and SIGKILL at the end. test/dropin has the whole sequence of that harness.
func TestLikeJava(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	file := write(t, filepath.Join(dir, "key.pem"), pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)))
	ca := write(t, filepath.Join(dir, "ca.crt"), newAuthority(t).pem)
	etcdPort, peers, port := freeport.Find(t), "http://localhost:1", freeport.Find(t)
	etcdURL := fmt.Sprintf("http://0.0.0.0:%d", etcdPort)
	server := start(t, called(t, asAPIServer, nil, "--cert-dir", filepath.Join(dir, "certs"), "--secure-port", fmt.Sprint(port), "--etcd-servers", etcdURL,
		"--authorization-mode", "RBAC", "--service-account-issuer", "https://localhost", "--service-account-signing-key-file", file,
		"--service-account-signing-key-file", file, "--service-account-key-file", file, "--service-account-issuer", ca,
		"--disable-admission-plugins", "ServiceAccount", "--client-ca-file", ca, "--service-cluster-ip-range", "10.0.0.0/24", "--allow-privileged"))
	// The server waits for etcd.
	etcd := start(t, called(t, asEtcd, nil, "-data-dir", dir, "-wal-dir", dir, "--listen-client-urls", etcdURL, "--advertise-client-urls", etcdURL,
		"--initial-cluster", "default="+peers, "--initial-advertise-peer-urls", peers, "--listen-peer-urls", peers))
	until(t, etcd, fmt.Sprintf("http://localhost:%d/health", etcdPort))
	until(t, server, fmt.Sprintf("https://127.0.0.1:%d/readyz", port))
	if _, err := os.Stat(filepath.Join(dir, "certs", "apiserver.crt")); err != nil {
		t.Errorf("no certificate was made: %v", err)
	}
	server.Process.Kill()
	<-server.done
	etcd.Process.Kill()
	<-etcd.done
}

// TestHelpOfOthers: harnesses match these texts with regular expressions.
func TestHelpOfOthers(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		program, flag string
		want          bool
	}{{asEtcd, "unsafe-no-fsync", true}, {asAPIServer, "insecure-port", false}, {asAPIServer, "authorization-mode", true}} {
		code, stdout, stderr := outcome(t, row.program, "--help")
		if code != exitOK || regexp.MustCompile(`(?m)^\s*--`+row.flag+`\b`).MatchString(stdout+stderr) != row.want {
			t.Errorf("the help of %s, --%s: exit code %d, want a match: %v", row.program, row.flag, code, row.want)
		}
	}
	for program, want := range map[string]string{asEtcd: "etcd Version: 3.6.", asAPIServer: "Kubernetes v1.37.2\n"} {
		if code, out, _ := outcome(t, program, "--version"); code != exitOK || !strings.HasPrefix(out, want) {
			t.Errorf("the version of %s: %d %q", program, code, out)
		}
	}
}

// TestRefusedAsAPIServer checks that a server that cannot start exits at once, with code 1 and one
// line.
func TestRefusedAsAPIServer(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	real := &http.Server{Handler: http.NotFoundHandler()}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go real.Serve(l)
	defer real.Close()
	stubURL := fmt.Sprintf("http://127.0.0.1:%d", freeport.Find(t))
	stub := start(t, called(t, asEtcd, nil, "--listen-client-urls="+stubURL))
	until(t, stub, stubURL+"/health")
	key := write(t, filepath.Join(t.TempDir(), "key"), []byte("unread"))
	for line, want := range map[string]string{
		"kube-apiserver --nope":                                     "unknown flag: --nope",
		"kube-apiserver --insecure-port=0":                          "unknown flag: --insecure-port",
		"kube-apiserver":                                            "--etcd-servers must be specified",
		"kube-apiserver x":                                          "does not take any arguments",
		"kube-apiserver --profiling=perhaps":                        `invalid argument "perhaps" for "--profiling" flag`,
		"kube-apiserver --etcd-servers=http://" + l.Addr().String(): "--service-account-signing-key-file is required with etcd",
		"kube-apiserver --etcd-servers=https://127.0.0.1:1 --service-account-signing-key-file=" + key:                "--service-account-issuer is required with etcd",
		"kube-apiserver --etcd-servers=http://127.0.0.1:1 --admission-control= --disable-admission-plugins=Priority": "--admission-control excludes",
		"kube-apiserver --etcd-servers=http://127.0.0.1:1 --admission-control=Nope":                                  `plugin "Nope" is unknown`,
		fmt.Sprintf("kube-apiserver --bind-address=127.0.0.1 --etcd-servers=%s --secure-port=%d", stubURL, port):     fmt.Sprintf("port %d of 127.0.0.1 is taken", port),
		fmt.Sprintf("etcd --listen-client-urls=http://127.0.0.1:%d", port):                                           fmt.Sprintf("port %d of 127.0.0.1 is taken", port),
		"etcd --listen-client-urls=https://127.0.0.1:1":                                                              "neither TLS",
	} {
		words := strings.Fields(line)
		code, _, stderr := outcome(t, words[0], words[1:]...)
		if last := lastLine(stderr); code != exitFailed || !strings.HasPrefix(last, "Error: ") || !strings.Contains(last, want) {
			t.Errorf("%s: %d\n%s", line, code, stderr)
		}
	}
	if code, _, stderr := outcome(t, asEtcd, "-nope"); code != exitUsage || !strings.Contains(stderr, "-nope") {
		t.Errorf("etcd -nope: %d %s", code, stderr)
	}
}

// differentDefaults are the flags whose defaults differ from kube-apiserver's on purpose, or are
// written in another way.
var differentDefaults = map[string]string{
	"authorization-mode":       "kube-apiserver applies AlwaysAllow when it starts",
	"service-cluster-ip-range": "kube-apiserver applies 10.0.0.0/24 when it starts",
	"service-account-issuer":   "kube-apiserver requires one",
	"cert-dir":                 "a certificate in memory needs no directory",
}

// TestFlagsOfAPIServer: each flag of kube-apiserver is known, with its default where it has an effect.
func TestFlagsOfAPIServer(t *testing.T) {
	flags := new(apiServer).flags()
	for _, row := range apiServerFlags() {
		f := flags.Lookup(row.name)
		if f == nil {
			t.Errorf("--%s is missing", row.name)
			continue
		}
		why, differs := differentDefaults[row.name]
		if same := strings.TrimPrefix(f.DefValue, "[]") == row.value; same == differs {
			t.Errorf("--%s defaults to %q, kube-apiserver's to %q (%s)", row.name, f.DefValue, row.value, why)
		}
		if f.NoOptDefVal != row.alone {
			t.Errorf("--%s alone means %q, in kube-apiserver %q", row.name, f.NoOptDefVal, row.alone)
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if !strings.Contains("\n"+apiServerTable, "\n"+f.Name+"\t") {
			t.Errorf("--%s is not a flag of kube-apiserver", f.Name)
		}
	})
}

// TestEnvtestAssets: the command writes programs that start, and prints the line for a shell.
func TestEnvtestAssets(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "my assets")
	code, stdout, stderr := command("envtest-assets", dir)
	if code != exitOK || stdout != "export KUBEBUILDER_ASSETS='"+dir+"'\n" {
		t.Fatalf("%d %q %q", code, stdout, stderr)
	}
	for name, want := range map[string]string{"kube-apiserver": "Kubernetes v1.37.2\n", "etcd": "etcd Version: "} {
		cmd := exec.Command(filepath.Join(dir, name), "--version")
		cmd.Env = append(os.Environ(), asCommand+"=1", "GORACE=atexit_sleep_ms=0")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
