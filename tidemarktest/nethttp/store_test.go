package nethttp_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/tidemarktest"
	"github.com/tidemark-dev/tidemark/tidemarktest/internal/tier"
	"github.com/tidemark-dev/tidemark/tidemarktest/nethttp"
)

func TestStore(t *testing.T) {
	t.Parallel()
	env := tidemarktest.Start(t)
	s := nethttp.NewStore(env.As("nobody"), "cloud")
	if err := nethttp.NewStore(env, "other").Put(t.Context(), "web", "of another store"); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a.", 200) + "a"
	want := map[string]string{"web": "{}", "home.example.com": "host", "a..b": "dots", long: "long", "a/b": "1", "": "empty", "Ünï": ""}
	for key, value := range want {
		for _, v := range []string{"old", value} {
			if err := s.Put(t.Context(), key, v); err != nil {
				t.Errorf("Put(%q): %v", key, err)
			}
		}
		// A replica does not lag for a store.
		seen := nethttp.NewStore(env.Replica(t, tidemarktest.Lag(2)).Env, "cloud")
		if got, ok, err := seen.Get(t.Context(), key); got != value || !ok || err != nil {
			t.Errorf("Get(%q) = %q, %t, %v; want %q", key, got, ok, err, value)
		}
	}
	if got, err := s.List(t.Context()); !maps.Equal(got, want) || err != nil {
		t.Errorf("List() = %q, %v; want %q", got, err, want)
	}
	for range 2 {
		if err := s.Delete(t.Context(), "a/b"); err != nil {
			t.Error(err)
		}
		if _, ok, err := s.Get(t.Context(), "a/b"); ok || err != nil {
			t.Errorf("Get after Delete: %t, %v", ok, err)
		}
	}
	env.Settle(t)
	for _, key := range []string{"web", "home.example.com"} { // readable in the history
		env.Changes(t).By("cloud").Eventually(tidemarktest.Match{Verb: "apply", Name: "kube-system/cloud." + key})
	}
	env.Fault(t, tidemarktest.On("get", "configmaps").Status(http.StatusInternalServerError, 0).Times(1))
	if _, _, err := s.Get(t.Context(), "web"); err == nil {
		t.Error("Get with a fault succeeds")
	}
	if err := s.Put(t.Context(), "large", strings.Repeat("x", 2<<20)); err == nil {
		t.Error("Put of two megabytes succeeds")
	}
	if err := s.Put(t.Context(), "bytes", "\xff"); err == nil {
		t.Error("Put of a value that is not UTF-8 succeeds, and Get would return another one")
	}
	if err := s.Put(t.Context(), "\xff", "bytes"); err == nil {
		t.Error("Put of a key that is not UTF-8 succeeds")
	}
}

// volumes is a fake of a cloud. A controller creates a volume in it and notes its number in the ConfigMap claim.
type volumes struct{ *nethttp.Store }

// create creates a volume with a label and returns its number.
func (v volumes) create(ctx context.Context, label string) (string, error) {
	all, err := v.List(ctx)
	if err != nil {
		return "", err
	}
	id := fmt.Sprintf("vol-%d", len(all)+1)
	return id, v.Put(ctx, id, label)
}

// find returns the number of the volume with a label; empty: there is none.
func (v volumes) find(ctx context.Context, label string) (string, error) {
	all, err := v.List(ctx)
	for id, l := range all {
		if l == label {
			return id, nil
		}
	}
	return "", err
}

// saved is volumes in memory, which it saves as one value. It loads that value before it uses the memory.
type saved struct {
	*nethttp.Store
	labels []string // vol-1, vol-2, ...
}

func (s *saved) load(ctx context.Context) error {
	text, ok, err := s.Get(ctx, "labels")
	if s.labels = nil; ok {
		s.labels = strings.Split(text, ",")
	}
	return err
}

func (s *saved) create(ctx context.Context, label string) (string, error) {
	if err := s.load(ctx); err != nil {
		return "", err
	}
	s.labels = append(s.labels, label)
	return fmt.Sprintf("vol-%d", len(s.labels)), s.Put(ctx, "labels", strings.Join(s.labels, ","))
}

func (s *saved) find(ctx context.Context, label string) (string, error) {
	err := s.load(ctx)
	if i := slices.Index(s.labels, label); i >= 0 {
		return fmt.Sprintf("vol-%d", i+1), err
	}
	return "", err
}

// cloud is a fake: volumes or saved.
type cloud interface {
	create(ctx context.Context, label string) (string, error)
	find(ctx context.Context, label string) (string, error)
}

func inEntries(s *nethttp.Store) cloud  { return volumes{s} }
func inOneValue(s *nethttp.Store) cloud { return &saved{Store: s} }

// provision returns a controller. One that adopts looks for a volume that it has created before it creates one.
func provision(fake func(*nethttp.Store) cloud, adopts bool) func(ctx context.Context, env *tidemarktest.Env) {
	return func(ctx context.Context, env *tidemarktest.Env) {
		cloud, claims := fake(nethttp.NewStore(env, "cloud")), nethttp.NewStore(env, "claims")
		for ctx.Err() == nil {
			id, done, err := claims.Get(ctx, "claim")
			if done {
				return
			}
			if err == nil && adopts {
				id, err = cloud.find(ctx, "claim")
			}
			if err == nil && id == "" {
				id, err = cloud.create(ctx, "claim")
			}
			if err == nil {
				_ = claims.Put(ctx, "claim", id) // again after an error
			}
		}
	}
}

// failures records the failures of a test.
type failures struct {
	tidemarktest.TB
	texts []string
}

func (f *failures) Errorf(format string, a ...any) {
	f.texts = append(f.texts, fmt.Sprintf(format, a...))
}

func (f *failures) Fatalf(format string, a ...any) { f.Errorf(format, a...) }

// TestServeNothing: an Env without webhooks has nothing to serve.
func TestServeNothing(t *testing.T) {
	t.Parallel()
	f := &failures{TB: t}
	nethttp.Serve(f, nil, http.NotFoundHandler())
	if len(f.texts) != 1 || !strings.Contains(f.texts[0], "World.Webhooks is empty") {
		t.Errorf("the errors are %q", f.texts)
	}
}

// TestStoreSearch: searches find that a controller forgets what it has created in a fake.
func TestStoreSearch(t *testing.T) {
	tier.Full(t)
	env := tidemarktest.Start(t)
	type searchFunc func(tidemarktest.TB, *tidemarktest.Env, func(context.Context, *tidemarktest.Env), ...tidemarktest.Check)
	for name, test := range map[string]struct {
		search searchFunc
		want   string
	}{
		"EveryPrefix": {tidemarktest.EveryPrefix, "after write 1 of 2"},
		"EveryFault":  {tidemarktest.EveryFault, "a lost response for request 1 \"patch configmaps kube-system/cloud.vol-1\""},
		"EveryLag":    {tidemarktest.EveryLag, "a restart"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.search(t, env, provision(inEntries, true))
			test.search(t, env, provision(inOneValue, true))
			f := &failures{TB: t}
			test.search(f, env, provision(inEntries, false))
			if all := strings.Join(f.texts, "\n"); !strings.Contains(all, test.want) || !strings.Contains(all, "cloud.vol-2") {
				t.Errorf("the failures lack %q and the second volume:\n%s", test.want, all)
			}
		})
	}
}
