//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark/internal/await"
)

// process is a tidemark serve that runs.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  []string // of the standard output, up to "Ready"
	stderr bytes.Buffer
	config *rest.Config
	client *http.Client
}

// serve starts the command and waits until it reports that it is ready.
func serve(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(self, append([]string{"serve", "--secure-port=0"}, args...)...)}
	p.cmd.Env = append(os.Environ(), asCommand+"=1", "GORACE=atexit_sleep_ms=0", "TMPDIR="+t.TempDir(), "XDG_RUNTIME_DIR=", "XDG_DATA_HOME="+filepath.Join(t.TempDir(), "data home"))
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	s := bufio.NewScanner(stdout)
	for s.Scan() {
		p.lines = append(p.lines, s.Text())
		if strings.HasPrefix(s.Text(), "Ready in ") {
			p.connect()
			return p
		}
	}
	p.cmd.Wait()
	t.Fatalf("it does not start:\n%s\n%s", strings.Join(p.lines, "\n"), p.stderr.String())
	return nil
}

// connect uses the kubeconfig that the output names, as a shell does.
func (p *process) connect() {
	p.t.Helper()
	var export string
	for _, l := range p.lines {
		if l = strings.TrimSpace(l); strings.HasPrefix(l, "export KUBECONFIG=") {
			export = l
		}
	}
	path, err := exec.Command("sh", "-c", export+`; printf %s "$KUBECONFIG"`).Output()
	if err != nil {
		p.t.Fatal(err)
	}
	info, err := os.Stat(string(path))
	if err != nil || info.Mode().Perm() != 0o600 {
		p.t.Errorf("the kubeconfig %s: %v %v", path, info, err)
	}
	if p.config, err = clientcmd.BuildConfigFromFlags("", string(path)); err != nil {
		p.t.Fatal(err)
	}
	if p.client, err = rest.HTTPClientFor(p.config); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) get(path string) *http.Response {
	p.t.Helper()
	resp, err := p.client.Get(p.config.Host + path)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// exit waits for the end, and returns the code.
func (p *process) exit() int {
	p.t.Helper()
	err := p.cmd.Wait()
	var code *exec.ExitError
	if err != nil && !errors.As(err, &code) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// TestTerminate: a watch is open, SIGHUP changes nothing, and each of SIGTERM and
// SIGINT ends the process cleanly.
func TestTerminate(t *testing.T) {
	t.Parallel()
	for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		p := serve(t, "--in-memory")
		watch := p.get("/api/v1/namespaces?watch=1")
		p.signal(syscall.SIGHUP)
		if code := p.get("/readyz").StatusCode; code != http.StatusOK {
			t.Errorf("after SIGHUP /readyz is %d", code)
		}
		p.signal(s)
		if code := p.exit(); code != exitOK {
			t.Errorf("after %v: exit code %d\n%s", s, code, p.stderr.String())
		}
		if _, err := io.ReadAll(watch.Body); err != nil {
			t.Errorf("the watch ended with %v", err)
		}
		left, err := os.ReadDir(envOf(p, "TMPDIR"))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	}
}

// envOf returns a variable of the process: the last one counts.
func envOf(p *process, name string) string {
	for _, v := range slices.Backward(p.cmd.Env) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// TestTerminateTwice: the second signal waits neither for the delay of the stop nor for a request that hangs.
func TestTerminateTwice(t *testing.T) {
	t.Parallel()
	p := serve(t, "--in-memory", "--shutdown-delay-duration=1h")
	body, write := io.Pipe()
	defer write.Close()
	go func() {
		resp, err := p.client.Post(p.config.Host+"/api/v1/namespaces", "application/json", body)
		if err == nil {
			resp.Body.Close()
		}
	}()
	if _, err := write.Write([]byte("{")); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGTERM)
	await.True(t, "the beginning of the stop", func() bool { return p.get("/readyz").StatusCode != http.StatusOK })
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
}

// TestDataDirectory checks that stored objects exist after a restart, and that the same kubeconfig
// works.
func TestDataDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	p := serve(t, "--data-dir="+dir)
	resp, err := p.client.Post(p.config.Host+"/api/v1/namespaces", "application/json", strings.NewReader(`{"metadata":{"name":"kept"}}`))
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("%v %v", resp, err)
	}
	resp.Body.Close()
	token := p.config.BearerToken
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	if strings.Contains(p.stderr.String(), token) || strings.Contains(strings.Join(p.lines, "\n"), token) {
		t.Error("the output shows the token")
	}
	again := serve(t, "--data-dir="+dir)
	if code := again.get("/api/v1/namespaces/kept").StatusCode; code != http.StatusOK {
		t.Errorf("after a restart: %d", code)
	}
	if again.config.BearerToken != token {
		t.Error("a restart changed the administrator's token")
	}
}

// TestReplacedDirectory: a server whose data directory was moved or replaced ends, with the first write or health check, and
// writes nothing into the new directory.
func TestReplacedDirectory(t *testing.T) {
	t.Parallel()
	for _, use := range []struct{ method, path string }{{"GET", "/livez"}, {"POST", "/api/v1/namespaces"}} {
		dir := filepath.Join(t.TempDir(), "data")
		p := serve(t, "--data-dir="+dir)
		if err := os.Rename(dir, dir+".old"); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		q, err := http.NewRequestWithContext(t.Context(), use.method, p.config.Host+use.path, strings.NewReader(`{"metadata":{"name":"lost"}}`))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		if resp, err := p.client.Do(q); err == nil { // or the server ended before
			if resp.Body.Close(); resp.StatusCode < http.StatusInternalServerError {
				t.Errorf("%s %s: %s", use.method, use.path, resp.Status)
			}
		}
		if code := p.exit(); code != exitFailed || !strings.Contains(p.stderr.String(), "the data directory was moved, removed or replaced while the server used it: "+dir) {
			t.Errorf("after %s %s: exit code %d\n%s", use.method, use.path, code, p.stderr.String())
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("in the new directory: %v %v", left, err)
		}
	}
}

// TestNoPlaceForFiles checks that a server in memory needs neither a home nor a directory for
// temporary files, and reports the files that it could not write.
func TestNoPlaceForFiles(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "serve", "--secure-port=0", "--in-memory")
	cmd.Env = []string{asCommand + "=1", "GORACE=atexit_sleep_ms=0", "TMPDIR=" + filepath.Join(t.TempDir(), "absent")}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(time.Minute, func() { cmd.Process.Kill() }).Stop()
	var lines []string
	for s := bufio.NewScanner(stdout); s.Scan(); {
		if lines = append(lines, s.Text()); strings.HasPrefix(s.Text(), "Ready in ") {
			cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	err = cmd.Wait()
	if text := strings.Join(lines, "\n"); err != nil || !strings.Contains(text, "--kubeconfig-out") || !strings.Contains(stderr.String(), "no kubeconfig") {
		t.Errorf("%v\n%s\n%s", err, text, stderr.String())
	}
}

// TestDefaultDirectory: without flags all lies below the user's data directory.
func TestDefaultDirectory(t *testing.T) {
	t.Parallel()
	p := serve(t)
	home := filepath.Join(envOf(p, "XDG_DATA_HOME"), "tidemark")
	if !strings.Contains(strings.Join(p.lines, "\n"), home) {
		t.Errorf("the output does not name %s:\n%s", home, strings.Join(p.lines, "\n"))
	}
	if _, err := os.Stat(filepath.Join(home, "kubeconfig")); err != nil {
		t.Error(err)
	}
	if code := p.get("/readyz").StatusCode; code != http.StatusOK {
		t.Errorf("/readyz is %d", code)
	}
}

// auditedIDs are the audit IDs of the requests that have an event of a stage in a log.
func auditedIDs(t *testing.T, path, stage string) map[string]bool {
	t.Helper()
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for line := range strings.Lines(string(log)) {
		var e struct{ AuditID, Stage string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if e.Stage == stage {
			ids[e.AuditID] = true
		}
	}
	return ids
}

// TestAuditSurvivesTheEnd checks that the events of acknowledged requests are in the audit log,
// after SIGTERM in each mode, and after SIGKILL in the blocking ones.
func TestAuditSurvivesTheEnd(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		mode   string
		signal os.Signal
	}{{"batch", syscall.SIGTERM}, {"blocking", syscall.SIGKILL}, {"blocking-strict", syscall.SIGKILL}} {
		t.Run(row.mode, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
			if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			p := serve(t, "--in-memory", "--audit-policy-file="+policy, "--audit-log-path="+log, "--audit-log-mode="+row.mode)
			var mu sync.Mutex
			responded := map[string]bool{}
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range 200 {
						response, err := p.client.Get(p.config.Host + "/api/v1/namespaces/default")
						if err != nil {
							return
						}
						mu.Lock()
						responded[response.Header.Get("Audit-Id")] = true
						if len(responded) == 400 {
							p.signal(row.signal)
						}
						mu.Unlock()
						response.Body.Close()
					}
				})
			}
			wg.Wait()
			p.exit()
			got := auditedIDs(t, log, "ResponseComplete")
			for id := range responded {
				if !got[id] {
					t.Errorf("%s, %v: the request %s got a response, and is not in the log", row.mode, row.signal, id)
				}
			}
		})
	}
}
