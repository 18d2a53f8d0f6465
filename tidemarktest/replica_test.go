package tidemarktest_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/tidemarktest"
)

// TestReplica: a replica has the address, the users and the kubeconfigs of its own, and shows old states until it
// is moved.
func TestReplica(t *testing.T) {
	t.Parallel()
	// Without controllers, no other writes move the replica that follows.
	w := &tidemarktest.World{Controllers: []string{"-*"}, Users: world.Users}
	env := w.Fork(t)
	create := func(name string) {
		t.Helper()
		if code, text := request(t, env, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":%q}}`, name)); code != 201 {
			t.Fatalf("%d %s", code, text)
		}
	}
	create("a")
	changes := env.Changes(t).All()
	r := env.Replica(t, tidemarktest.At(changes[len(changes)-1].Revision))
	behind := env.Replica(t, tidemarktest.Lag(1))
	begin := r.Revision(t)
	create("b")
	create("c")
	has := func(e *tidemarktest.Env, name string, want int) {
		t.Helper()
		if code, text := request(t, e, "GET", configMaps+"/"+name+"?resourceVersion=0", ""); code != want {
			t.Errorf("%s at %s: %d, want %d: %s", name, e.URL(), code, want, text)
		}
	}
	has(r.Env, "a", 200)
	has(r.Env, "b", 404)
	has(r.As("root"), "b", 404)
	has(r.As("carol", "system:masters"), "b", 404)
	has(behind.Env, "b", 200)
	has(behind.Env, "c", 404)
	has(env, "c", 200)
	for _, e := range []*tidemarktest.Env{r.Env, r.As("root"), r.As("dave"), r.As("root").As("erin")} {
		text, err := os.ReadFile(e.Kubeconfig(t))
		if err != nil || !strings.Contains(string(text), e.URL()) || e.URL() != r.URL() || e.URL() == env.URL() {
			t.Errorf("the kubeconfig of %s: %v\n%s", e.URL(), err, text)
		}
	}
	env.Settle(t) // although the replica stands still
	if got := r.Revision(t); got != begin {
		t.Errorf("the replica has moved from %d to %d", begin, got)
	}
	r.Advance(t, 1)
	has(r.Env, "b", 200)
	has(r.Env, "c", 404)
	r.CatchUp(t)
	has(r.Env, "c", 200)
	for range 2 {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	has(r.Env, "a", 404)
	has(env, "a", 200)
}
