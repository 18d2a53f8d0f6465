//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/freeport"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// post creates a ConfigMap, and returns the code of the response.
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

// exitAfter sends a signal, and returns the code of the exit.
func (p *process) exitAfter(s os.Signal) int {
	p.t.Helper()
	p.signal(s)
	return p.exit()
}

// TestFollow follows a server that is killed, and promotes the follower, as docs/how-to/follow.md says.
func TestFollow(t *testing.T) {
	t.Parallel()
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
	// A look at a past state leaves the directory a copy.
	if past := serve(t, copied, "--at=1"); past.exitAfter(syscall.SIGTERM) != exitOK {
		t.Errorf("a state of the copy: %s", past.stderr.String())
	}
	if _, err := os.Stat(filepath.Join(copied, "FOLLOWS")); err != nil {
		t.Errorf("the directory is no copy any more: %v", err)
	}
	n := serve(t, "--data-dir="+copied)
	if _, err := os.Stat(filepath.Join(copied, "FOLLOWS")); !os.IsNotExist(err) {
		t.Errorf("the directory is still a copy: %v", err)
	}
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

// TestFollowKills kills a server and its follower under writes to both. Nothing that was acknowledged is missing on
// either of them.
func TestFollowKills(t *testing.T) {
	tier.Full(t)
	dir := t.TempDir()
	data, copied := filepath.Join(dir, "data"), filepath.Join(dir, "copy")
	primary := []string{"--data-dir=" + data, fmt.Sprint("--secure-port=", freeport.Find(t))}
	p := serve(t, primary...)
	following := []string{"--follow=" + p.config.Host, "--follow-kubeconfig=" + filepath.Join(data, "kubeconfig"), "--data-dir=" + copied, fmt.Sprint("--secure-port=", freeport.Find(t))}
	f := serve(t, following...)

	var mu sync.Mutex
	acknowledged := map[string]bool{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writing sync.WaitGroup
	for w := range 4 {
		to := []*process{p, f}[w%2]
		client, host := to.client, to.config.Host
		writing.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("m-%d-%d", w, i)
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, host+"/api/v1/namespaces/default/configmaps", strings.NewReader(`{"metadata":{"name":"`+name+`"}}`))
				if err != nil {
					return
				}
				response, err := client.Do(r)
				if err != nil {
					time.Sleep(time.Millisecond) // the server is being killed
					continue
				}
				response.Body.Close()
				if response.StatusCode == http.StatusCreated {
					mu.Lock()
					acknowledged[name] = true
					mu.Unlock()
				}
			}
		})
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acknowledged)
	}
	for round := range 6 {
		more := count() + 50
		await.True(t, "50 more writes", func() bool { return count() >= more })
		if round%2 == 0 {
			p.signal(syscall.SIGKILL)
			_ = p.cmd.Wait()
			p = serve(t, primary...)
		} else {
			f.signal(syscall.SIGKILL)
			_ = f.cmd.Wait()
			f = serve(t, following...)
		}
	}
	cancel()
	writing.Wait()
	versions := func(s *process) map[string]string {
		var list struct {
			Items []struct {
				Metadata struct{ Name, ResourceVersion string }
			}
		}
		code, text := servertest.Get(t, s.config, "/api/v1/namespaces/default/configmaps")
		if err := json.Unmarshal([]byte(text), &list); err != nil || code != http.StatusOK {
			t.Fatalf("%d %s", code, text)
		}
		all := map[string]string{}
		for _, i := range list.Items {
			all[i.Metadata.Name] = i.Metadata.ResourceVersion
		}
		return all
	}
	onServer, onFollower := versions(p), versions(f)
	await.Nil(t, "the requests that were broken off", func() error {
		if maps.Equal(onServer, onFollower) {
			return nil
		}
		onServer, onFollower = versions(p), versions(f)
		return fmt.Errorf("the server has %d objects, and the follower %d, or other versions", len(onServer), len(onFollower))
	})
	for name := range acknowledged {
		if onServer[name] == "" {
			t.Errorf("%s was acknowledged, and is missing", name)
		}
	}
	t.Logf("%d writes were acknowledged, and %d made", len(acknowledged), len(onServer)-1)
}
