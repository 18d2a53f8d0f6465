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
)

// TestKillControllers kills the real process while it deletes a namespace and
// collects garbage, again and again: after the restarts both are done, and nothing
// else is gone.
func TestKillControllers(t *testing.T) {
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
		p.must("DELETE", going, "")
		p.must("DELETE", staying+"/secrets/owner?propagationPolicy=Foreground", "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.Int64N(int64(40*time.Millisecond))))
		<-ctx.Done() // somewhere in the middle
		cancel()
		left := p.count(going+"/secrets") + p.count(staying+"/secrets")
		p.kill()
		p.start()
		p.until(going, func(code int, _ string) bool { return code == http.StatusNotFound })
		p.until(staying+"/secrets", func(_ int, body string) bool { return objectsIn(body) == 1 && strings.Contains(body, "bystander") })
		t.Logf("killed with %d of %d objects left", left, 2*objects+2)
	}
}

// must sends a request that has to succeed, and returns the UID of the answer.
func (p *process) must(method, path, body string) string {
	code, answer, err := p.do(context.Background(), method, path, []byte(body))
	if err != nil || code >= 300 {
		p.t.Errorf("%s %s: %d %v %s", method, path, code, err, answer)
		return ""
	}
	_, rest, _ := strings.Cut(string(answer), `"uid":"`)
	uid, _, _ := strings.Cut(rest, `"`)
	return uid
}

func (p *process) count(path string) int {
	_, body, _ := p.do(context.Background(), "GET", path, nil)
	return objectsIn(string(body))
}

// objectsIn counts the objects of a list.
func objectsIn(list string) int { return strings.Count(list, `"creationTimestamp":`) }

// until looks at a path whenever something changes in the server, until it is as
// wanted.
func (p *process) until(path string, is func(code int, body string) bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	changes := make(chan struct{}, 1)
	for _, watched := range []string{"/api/v1/namespaces?watch=1", "/api/v1/secrets?watch=1"} {
		req, err := http.NewRequestWithContext(ctx, "GET", p.base+watched, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		resp, err := p.client.Do(req)
		if err != nil {
			p.t.Fatal(err)
		}
		go func() {
			defer resp.Body.Close()
			for lines := bufio.NewReader(resp.Body); ; {
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
