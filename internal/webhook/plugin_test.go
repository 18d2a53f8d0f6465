//go:build unix

package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
)

// script writes a program, and returns a configuration for a server that runs it.
func script(t *testing.T, server, text string) *rest.Config {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plugin"), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}], users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, args: [a, b],
  env: [{name: TOKENS, value: %q}], interactiveMode: IfAvailable, provideClusterInfo: true}}}]}`, server, filepath.Join(dir, "tokens")), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Config(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPlugin: a client runs the program once, again when its token is refused, and when it has expired.
func TestPlugin(t *testing.T) {
	var valid atomic.Pointer[string]
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+*valid.Load() {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer s.Close()
	first, second := "1", "2"
	valid.Store(&first)
	h, err := HTTPClient(script(t, s.URL, `
case "$KUBERNETES_EXEC_INFO $*" in *'"server":"`+s.URL+`"'*'"interactive":false'*' a b') ;; *) echo "$KUBERNETES_EXEC_INFO $*" >&2; exit 1 ;; esac
echo x >> "$TOKENS"
[ $(wc -l < "$TOKENS") -ge 3 ] && expires=',"expirationTimestamp":"2020-01-01T00:00:00Z"'
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"'$(wc -l < "$TOKENS" | tr -d ' ')'"'"$expires"'}}'
`))
	if err != nil {
		t.Fatal(err)
	}
	get := func(want int) {
		t.Helper()
		resp, err := h.Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("status %d, want %d", resp.StatusCode, want)
		}
	}
	get(200)
	get(200)
	valid.Store(&second)
	get(401)
	get(200)
	third, fourth, fifth := "3", "4", "5"
	valid.Store(&third)
	get(401)
	get(200)
	valid.Store(&fourth) // the third has expired
	get(200)
	valid.Store(&fifth)
	get(200)
}

// hang is a program that never ends, nor does its child. Both hold the FIFO open.
const hang = `
exec 9> "$TOKENS"
sleep 100000 &
echo started >&9
wait
`

// hanging returns a client whose plug-in is hang, and its FIFO.
func hanging(t *testing.T) (*http.Client, string) {
	c := script(t, "https://127.0.0.1:1", hang)
	fifo := c.ExecProvider.Env[0].Value
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := HTTPClient(c)
	if err != nil {
		t.Fatal(err)
	}
	return h, fifo
}

// TestHangingPlugin: a plug-in that hangs ends, with its children, when the last request that waits for it has left.
func TestHangingPlugin(t *testing.T) {
	h, fifo := hanging(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:1", nil)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := h.Do(r); !errors.Is(err, context.Canceled) { //nolint:bodyclose // it fails
				t.Errorf("the request ended with %v", err)
			}
		})
	}
	f, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	started := make([]byte, len("started\n"))
	if _, err := io.ReadFull(f, started); err != nil {
		t.Fatal(err)
	}
	cancel()
	group.Wait()
	// The end of the file comes when no process has it open any more.
	if more, err := io.ReadAll(f); len(more) > 0 || err != nil {
		t.Errorf("%q, %v", more, err)
	}
}

// TestSlowPlugin: a plug-in that runs for too long is killed while requests wait, and they get its error.
func TestSlowPlugin(t *testing.T) {
	c := script(t, "https://127.0.0.1:1", "sleep 100000 & wait")
	p, err := newPlugin(c, c.ExecProvider)
	if err != nil {
		t.Fatal(err)
	}
	p.runs.Limit = 1 // nanosecond
	if _, err := p.get(t.Context()); err == nil || !strings.Contains(err.Error(), "it was killed after 1ns") {
		t.Error(err)
	}
}

// TestWrongPlugins: the errors name what is wrong, and show nothing of the output.
func TestWrongPlugins(t *testing.T) {
	const head = `echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential"`
	for _, row := range []struct{ text, want string }{
		{"exit 3", "exit status 3"},
		{"echo secret", "its output is not an ExecCredential in JSON"},
		{`echo '{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","status":{"token":"secret"}}'`, "plugin returned version client.authentication.k8s.io/v1beta1"},
		{head + `}'`, "exec plugin didn't return a status field"},
		{head + `,"status":{}}'`, "exec plugin didn't return a token or cert/key pair"},
		{head + `,"status":{"clientKeyData":"secret"}}'`, "only certificate or key"},
		{head + `,"status":{"clientKeyData":"secret","clientCertificateData":"secret"}}'`, "failed parsing client key/certificate"},
		{"yes secret", "the output has more than 1 MiB"},
	} {
		c := script(t, "https://127.0.0.1:1", row.text)
		p, err := newPlugin(c, c.ExecProvider)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.get(t.Context()); err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", row.text, err, row.want)
		}
	}
	c := script(t, "https://127.0.0.1:1", "")
	for _, mode := range []api.ExecInteractiveMode{"Always", "", "Sometimes"} {
		e := c.ExecProvider.DeepCopy()
		e.InteractiveMode = mode
		if _, err := newPlugin(c, e); err == nil || !strings.Contains(err.Error(), "interactiveMode") {
			t.Errorf("%q: %v", mode, err)
		}
	}
}
