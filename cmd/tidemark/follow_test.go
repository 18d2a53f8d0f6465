package main

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// post creates a ConfigMap, and returns the code of the answer.
func (p *process) post(name string) int {
	p.t.Helper()
	r, err := p.client.Post(p.config.Host+"/api/v1/namespaces/default/configmaps", "application/json", strings.NewReader(`{"metadata":{"name":"`+name+`"}}`))
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode
}

// TestFollow follows a server that is killed, and promotes the follower, as docs/how-to/follow.md says.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	data, copied := filepath.Join(dir, "data"), filepath.Join(dir, "copy")
	p := serve(t, "--data-dir="+data)
	if code := p.post("a"); code != http.StatusCreated {
		t.Fatalf("a write to the server: %d", code)
	}
	f := serve(t, "--follow="+p.config.Host, "--follow-kubeconfig="+filepath.Join(data, "kubeconfig"), "--data-dir="+copied)
	if code := f.post("b"); code != http.StatusCreated {
		t.Errorf("a write to the follower: %d", code)
	}
	if code, _ := servertest.Get(t, p.config, "/api/v1/namespaces/default/configmaps/b"); code != http.StatusOK {
		t.Errorf("a read of that from the server: %d", code)
	}
	p.signal(syscall.SIGKILL)
	_ = p.cmd.Wait()
	f.signal(syscall.SIGTERM)
	if code := f.exit(); code != exitOK {
		t.Errorf("the follower ended with %d: %s", code, f.stderr.String())
	}
	if code, _, errs := command("check", copied); code != exitOK {
		t.Errorf("the copy: %s", errs)
	}
	n := serve(t, "--data-dir="+copied)
	for _, name := range []string{"a", "b"} {
		if code, _ := servertest.Get(t, n.config, "/api/v1/namespaces/default/configmaps/"+name); code != http.StatusOK {
			t.Errorf("%s on the new server: %d", name, code)
		}
	}
	if code := n.post("c"); code != http.StatusCreated {
		t.Errorf("a write to the new server: %d", code)
	}
	// The kubeconfig of the old server is good for the new one, at its address.
	p.config.Host = n.config.Host
	if code, text := servertest.Get(t, p.config, "/api/v1/namespaces/default/configmaps/c"); code != http.StatusOK {
		t.Errorf("the old credentials: %d %s", code, text)
	}
}
