package conformance

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
)

// restarted is a server that can be restarted, at one address.
type restarted struct {
	dir    string
	port   int
	server *tidemark.Server
	times  atomic.Int64
}

func (r *restarted) start(ctx context.Context) error {
	r.server = &tidemark.Server{Storage: &datadir.Dir{Path: r.dir}, Port: r.port}
	return r.server.Start(ctx)
}

func (r *restarted) restart(ctx context.Context) error {
	if err := r.server.Close(); err != nil {
		return err
	}
	r.times.Add(1)
	return r.start(ctx)
}

// after matches requests once the server was restarted.
func (r *restarted) after(w when) when {
	return func(req *http.Request) bool { return r.times.Load() > 0 && w(req) }
}

func restartable(t *testing.T) (*restarted, *rest.Config) {
	t.Helper()
	r := &restarted{dir: t.TempDir()}
	if err := r.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	config := r.server.RESTConfig()
	r.port = portOf(t, config)
	t.Cleanup(func() { r.server.Close() })
	return r, config
}

// restartFaults are faults of a server that was restarted: their steps are made in
// TestRestart, by their checks.
var restartFaults = []fault{
	{name: "a restart loses an object", check: "restart.objects", says: "is missing"},
	{name: "versions begin anew after a restart", check: "restart.versions", says: "want one past"},
	{name: "a watch begins at the restart", check: "restart.watch", says: "want"},
	{name: "an old version is the most recent after a restart", check: "restart.exact", says: "want exactly"},
	{name: "a token of before a restart begins anew", check: "restart.chunks", says: "the first one of"},
}

func restartStep(r *restarted, check string) step {
	switch check {
	case "restart.objects":
		return dropItem(r.after(on("list")))
	case "restart.versions":
		return version(r.after(on("create update")), "1")
	case "restart.watch":
		return nth(r.after(on("watch")), 1, drop)
	case "restart.exact":
		return without(r.after(on("list")), "resourceVersion", "resourceVersionMatch")
	case "restart.chunks":
		return without(r.after(on("list")), "continue")
	}
	return nil
}

// TestRestart: the checks pass with a server that keeps what it has, and each is
// tripped by one that does not.
func TestRestart(t *testing.T) {
	for _, f := range restartFaults {
		t.Run(f.check, func(t *testing.T) {
			t.Parallel()
			r, config := restartable(t)
			if got := one(t, config, f.check, Options{Restart: r.restart}); got.Outcome != Passed {
				t.Fatalf("%s: %s\n%v", got.Outcome, got.Message, got.Exchanges)
			}
			r.times.Store(0)
			got := one(t, behind(config, restartStep(r, f.check)), f.check, Options{Restart: r.restart})
			if got.Outcome != Failed || !strings.Contains(got.Message, f.says) {
				t.Errorf("%s: %s, want %q\n%v", got.Outcome, got.Message, f.says, got.Exchanges)
			}
		})
	}
	if got := one(t, serve(t), "restart.watch", Options{}); got.Outcome != Skipped {
		t.Errorf("without a way to restart: %s %s", got.Outcome, got.Message)
	}
	failing := func(context.Context) error { return os.ErrPermission }
	if got := one(t, serve(t), "restart.watch", Options{Restart: failing}); got.Outcome != Skipped {
		t.Errorf("a restart that fails: %s %s", got.Outcome, got.Message)
	}
}
