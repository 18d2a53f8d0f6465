//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/serving"
)

// driven starts a command whose standard output begins with the line of --ready-fd=1. It runs in dir.
func driven(t *testing.T, dir string, name string, args ...string) (r ready, stdout *bufio.Reader, p *os.Process) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asCommand+"=1", "GORACE=atexit_sleep_ms=0", "TMPDIR="+t.TempDir(), "XDG_RUNTIME_DIR=")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	stdout = bufio.NewReader(pipe)
	line, err := stdout.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err != nil {
		cmd.Wait()
		t.Fatalf("no line of JSON: %v: %q\n%s", err, line, stderr.String())
	}
	return r, stdout, cmd.Process
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// socketClient returns a client of a unix socket.
func socketClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}

// TestControlSocket: the socket is for this user alone, it replaces the one of a killed server, and
// the server ends when no client holds a lease. TestLease of internal/control has leases that end.
func TestControlSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"serve", "--in-memory", "--port=0", "--ready-fd=1", "--control=new/control.sock"}
	r, stdout, p := driven(t, dir, self(t), args...)
	if r.Control != filepath.Join(dir, "new", "control.sock") || !strings.HasPrefix(r.URL, "https://127.0.0.1:") || r.PID != p.Pid {
		t.Errorf("the line is %+v", r)
	}
	for path, mode := range map[string]os.FileMode{r.Control: 0o600, filepath.Dir(r.Control): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v, want mode %o", path, info, err, mode)
		}
	}
	if err := listenAgain(r.Control); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second listener: %v", err)
	}
	response, err := socketClient(r.Control).Post("http://control/control/v1/leases", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"lease"`) {
		t.Errorf("the lease is %q %v", line, err)
	}
	response.Body.Close()
	p.Kill()
	io.Copy(io.Discard, stdout)
	r, stdout, _ = driven(t, dir, self(t), append(args, "--exit-idle=100ms")...)
	if rest, err := io.ReadAll(stdout); err != nil || len(rest) > 0 { // it ends when the process ends
		t.Errorf("after the line: %q %v", rest, err)
	}
	if _, err := os.Stat(r.Control); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(r.Control)); err != nil { // the killed server had made it
		t.Errorf("the directory: %v", err)
	}
}

func listenAgain(path string) error {
	l, err := serving.ListenUnix(path)
	if err == nil {
		l.Close()
	}
	return err
}

// TestControlTCP: the control API on a port needs the token of the file.
func TestControlTCP(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, _, _ := driven(t, dir, self(t), "serve", "--in-memory", "--port=0", "--ready-fd=1", "--control=127.0.0.1:0", "--control-token-file=token")
	token, err := os.ReadFile(r.ControlTokenFile)
	if err != nil || r.ControlTokenFile != filepath.Join(dir, "token") {
		t.Fatalf("%+v: %v", r, err)
	}
	for header, code := range map[string]int{"": 401, "Bearer " + strings.TrimSpace(string(token)): 200} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.Control+"/control/v1/worlds", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", header)
		response, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != code {
			t.Errorf("%q: %d, want %d", header, response.StatusCode, code)
		}
	}
	if err := os.Chmod(r.ControlTokenFile, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := controlToken(r.ControlTokenFile); err == nil || !strings.Contains(err.Error(), "0600") {
		t.Errorf("a token file for all: %v", err)
	}
}

// TestReadyFD: the line goes to the descriptor, which is then closed; the standard output stays for
// people.
func TestReadyFD(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := exec.Command(self(t), "serve", "--in-memory", "--port=0", "--ready-fd=3")
	cmd.Env = append(os.Environ(), asCommand+"=1", "GORACE=atexit_sleep_ms=0", "TMPDIR="+t.TempDir(), "XDG_RUNTIME_DIR=")
	cmd.ExtraFiles = []*os.File{write}
	var stdout strings.Builder
	cmd.Stdout = &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	write.Close()
	text, err := io.ReadAll(read)
	var r ready
	if err != nil || json.Unmarshal(text, &r) != nil || r.PID != cmd.Process.Pid || r.Control != "" {
		t.Errorf("%q %v", text, err)
	}
	if info, err := os.Stat(r.Kubeconfig); err != nil || info.Size() == 0 {
		t.Errorf("the kubeconfig: %v", err)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil || !strings.Contains(stdout.String(), "Ready in") {
		t.Errorf("%v\n%s", err, stdout.String())
	}
}

// TestExitWithParent: the server ends when its parent was killed.
func TestExitWithParent(t *testing.T) {
	t.Parallel()
	r, stdout, parent := driven(t, t.TempDir(), "sh", "-c", `"$0" serve --in-memory --port=0 --ready-fd=1 --exit-with-parent & wait`, self(t))
	if r.PID == parent.Pid {
		t.Fatal("the server is the shell")
	}
	parent.Kill()
	if rest, err := io.ReadAll(stdout); err != nil || len(rest) > 0 { // it ends when the server ends
		t.Errorf("after the line: %q %v", rest, err)
	}
}
