package test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestKillControllers kills the real process while it deletes a namespace and
// collects garbage, again and again: after the restarts both are done, and nothing
// else is gone.
func TestKillControllers(t *testing.T) {
	tier.Full(t)
	rng := random(t)
	p := &process{t: t, dir: t.TempDir()}
	p.start()
	t.Cleanup(p.kill)
	const rounds, objects = 4, 400
	for round := range rounds {
		going, staying := fmt.Sprintf("/api/v1/namespaces/going%d", round), fmt.Sprintf("/api/v1/namespaces/staying%d", round)
		for _, path := range []string{going, staying} {
			p.must("POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, path[len("/api/v1/namespaces/"):]))
		}
		uid := p.must("POST", staying+"/secrets", `{"metadata":{"name":"owner"}}`)
		p.must("POST", staying+"/secrets", `{"metadata":{"name":"bystander"}}`)
		var wg sync.WaitGroup
		for client := range crashClients {
			wg.Go(func() {
				for i := client; i < objects; i += crashClients {
					p.must("POST", going+"/secrets", fmt.Sprintf(`{"metadata":{"name":"s%d"}}`, i))
					p.must("POST", staying+"/secrets", fmt.Sprintf(`{"metadata":{"name":"s%d","ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"owner","uid":%q,"blockOwnerDeletion":true}]}}`, i, uid))
				}
			})
		}
		wg.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		lines := p.watch(ctx, "/api/v1/secrets?watch=1")
		p.must("DELETE", going, "")
		p.must("DELETE", staying+"/secrets/owner?propagationPolicy=Foreground", "")
		deletions := rng.IntN(2 * objects)
		for seen := 0; seen < deletions; { // somewhere in the middle
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("the watch ended after %d deletions: %v", seen, err)
			}
			if strings.HasPrefix(line, `{"type":"DELETED"`) {
				seen++
			}
		}
		cancel()
		p.kill()
		p.start()
		p.until(going, func(code int, _ string) bool { return code == http.StatusNotFound })
		p.until(staying+"/secrets", func(_ int, body string) bool { return objectsIn(body) == 1 && strings.Contains(body, "bystander") })
		t.Logf("killed after %d of %d deletions", deletions, 2*objects+1)
	}
}

// must sends a request that has to succeed, and returns the UID of the response.
func (p *process) must(method, path, body string) string {
	code, response, err := p.do(context.Background(), method, path, []byte(body))
	if err != nil || code >= 300 {
		p.t.Errorf("%s %s: %d %v %s", method, path, code, err, response)
		return ""
	}
	_, rest, _ := strings.Cut(string(response), `"uid":"`)
	uid, _, _ := strings.Cut(rest, `"`)
	return uid
}

// watch begins a watch, and returns its lines. They end with the context.
func (p *process) watch(ctx context.Context, path string) *bufio.Reader {
	p.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", p.base+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	context.AfterFunc(ctx, func() { resp.Body.Close() })
	return bufio.NewReader(resp.Body)
}

// objectsIn counts the objects of a list.
func objectsIn(list string) int { return strings.Count(list, `"creationTimestamp":`) }

// until looks at a path whenever something changes in the server, until it is as
// wanted.
func (p *process) until(path string, is func(code int, body string) bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 3*time.Minute)
	defer cancel()
	changes := make(chan struct{}, 1)
	for _, watched := range []string{"/api/v1/namespaces?watch=1", "/api/v1/secrets?watch=1"} {
		lines := p.watch(ctx, watched)
		go func() {
			for {
				if _, err := lines.ReadString('\n'); err != nil {
					return
				}
				select {
				case changes <- struct{}{}:
				default:
				}
			}
		}()
	}
	for {
		code, body, err := p.do(ctx, "GET", path, nil)
		if err == nil && is(code, string(body)) {
			return
		}
		select {
		case <-changes:
		case <-ctx.Done():
			p.t.Fatalf("%s stays as it is: %d %.300s", path, code, body)
		}
	}
}
