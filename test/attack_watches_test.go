package test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestWatchesOfOneUser checks that a user who opens as many watches as the server permits leaves
// room for the watches of others, whose requests are served as before. Memory stays within the
// limit of docs/limits.md: 15 KiB for each idle watch.
func TestWatchesOfOneUser(t *testing.T) {
	tier.Full(t)
	const (
		limit       = 25_000 // half of all; the default levels leave 19,141
		connections = 25     // of 100 streams, in each round
		perWatch    = 24 << 10
	)
	p := &process{t: t, dir: t.TempDir()}
	p.start()
	t.Cleanup(p.kill)
	x := newTarget(t, p)
	const roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/"
	x.good(t, "POST", roles+"roles", `{"metadata":{"name":"watch"},"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["watch"]}]}`, nil)
	x.good(t, "POST", roles+"rolebindings", `{"metadata":{"name":"watch"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"watch"},
		"subjects":[{"kind":"ServiceAccount","name":"attacker","namespace":"default"}]}`, nil)

	measure := func() (took []time.Duration) {
		for i := range 50 {
			path := fmt.Sprintf("/api/v1/namespaces/default/configmaps/m-%d", i)
			x.good(t, "POST", "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata":{"name":"m-%d"}}`, i), &took)
			x.good(t, "GET", path, "", &took)
			x.good(t, "DELETE", path, "", &took)
		}
		return took
	}
	before := p.memory(t)
	measure()

	ctx, cancel := context.WithCancel(t.Context())
	var attack sync.WaitGroup
	defer attack.Wait()
	defer cancel()
	open := 0
	for round, before := 1, -1; before < open; round++ { // some of those that come at once find the queues full
		before = open
		attack.Go(func() {
			x.hold(ctx, connections, func(c *hostile) {
				c.each(100, request{path: "/api/v1/namespaces/default/secrets?watch=1", token: x.token})
			})
		})
		await.True(t, "all watches of the round are open or refused", func() bool {
			var refused int
			open, refused = x.secretWatches(t)
			return open+refused >= round*connections*100
		})
	}
	if open < limit/2 || open > limit {
		t.Fatalf("%d watches of one user are open, want between %d and %d", open, limit/2, limit)
	}

	took := measure()
	var others sync.WaitGroup
	for i := range 100 {
		resp := x.watch(t, fmt.Sprintf("/api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%%3Dw-%d", i))
		others.Go(func() {
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("the watch of another user: %d", resp.StatusCode)
				return
			}
			if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
				t.Errorf("the watch of another user: %q, %v", line, err)
			}
		})
	}
	for i := range 100 {
		x.good(t, "POST", "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata":{"name":"w-%d"}}`, i), nil)
	}
	others.Wait()
	memory := p.memory(t)
	var slowest time.Duration
	for _, d := range took {
		slowest = max(slowest, d)
	}
	t.Logf("%d watches: memory %d MiB, before %d MiB; slowest of %d requests of another user %v", open, memory>>20, before>>20, len(took), slowest)
	if slowest > attackPatience {
		t.Errorf("a request of another user took %v", slowest)
	}
	if memory > before+int64(open)*perWatch {
		t.Errorf("memory is %d MiB, before the watches %d", memory>>20, before>>20)
	}
}

var (
	openWatches    = regexp.MustCompile(`(?m)^apiserver_longrunning_requests\{.*resource="secrets".*\} (\S+)$`)
	refusedWatches = regexp.MustCompile(`(?m)^apiserver_request_total\{code="429".*resource="secrets".*\} (\S+)$`)
)

// secretWatches returns how many watches of Secrets are open, and how many were refused.
func (x *target) secretWatches(t *testing.T) (open, refused int) {
	t.Helper()
	_, text, err := x.p.do(t.Context(), "GET", "/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	for metric, n := range map[*regexp.Regexp]*int{openWatches: &open, refusedWatches: &refused} {
		for _, m := range metric.FindAllSubmatch(text, -1) {
			v, err := strconv.ParseFloat(string(m[1]), 64)
			if err != nil {
				t.Fatal(err)
			}
			*n += int(v)
		}
	}
	return open, refused
}

// watch opens a watch of the administrator.
func (x *target) watch(t *testing.T, path string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", x.p.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := x.p.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}
