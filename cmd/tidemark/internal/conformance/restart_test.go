package conformance

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemark-dev/tidemark/datadir"
)

// restarted is a server that can be restarted.
type restarted struct {
	dir    string
	server atomic.Pointer[tidemark.Server]
	times  atomic.Int64
}

func (r *restarted) start(ctx context.Context) error {
	s := &tidemark.Server{InProcess: true, Storage: &datadir.Dir{Path: r.dir}}
	r.server.Store(s)
	return s.Start(ctx)
}

func (r *restarted) restart(ctx context.Context) error {
	if err := r.server.Load().Close(); err != nil {
		return err
	}
	r.times.Add(1)
	return r.start(ctx)
}

// RoundTrip sends a request to the server that runs.
func (r *restarted) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.server.Load().RESTConfig().Transport.RoundTrip(req)
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
	config := r.server.Load().RESTConfig()
	config.Transport = r
	t.Cleanup(func() { r.server.Load().Close() })
	return r, config
}

// restartFault is a fault of a server that was restarted.
type restartFault struct {
	name, check, says string
	step              func(r *restarted) step
}

var restartFaults = []restartFault{
	{"a restart loses an object", "restart.objects", "is missing", func(r *restarted) step { return dropItem(r.after(lists)) }},
	{"versions begin anew after a restart", "restart.versions", "want one past", func(r *restarted) step {
		return version(r.after(on("create update")), "1")
	}},
	{"a watch begins at the restart", "restart.watch", "want", func(r *restarted) step { return nth(r.after(watches), 1, drop) }},
	{"an old version is the most recent after a restart", "restart.exact", "want exactly", func(r *restarted) step {
		return without(r.after(lists), "resourceVersion", "resourceVersionMatch")
	}},
	{"a token of before a restart begins anew", "restart.chunks", "the first one of", func(r *restarted) step {
		return without(r.after(lists), "continue")
	}},
	{"a write that got a response is lost in a restart", "restart.consistency", "is missing", func(r *restarted) step {
		return dropItem(r.after(lists))
	}},
	{"a watch that goes on after a restart misses an event", "restart.consistency", "a watch that goes on across the restart", func(r *restarted) step {
		return nth(r.after(watches), 1, drop)
	}},
	{"a watch that continues after a restart repeats an event", "restart.consistency", "want one past", func(r *restarted) step {
		return nth(r.after(watches), 1, double)
	}},
	{"a watch from before a restart begins with the current state", "restart.consistency", "a watch that goes on across the restart", func(r *restarted) step {
		return without(r.after(watches), "resourceVersion")
	}},
	{"a restart goes back in time", "restart.consistency", "older than", func(r *restarted) step { return rewind(r.after(lists)) }},
	{"a version is given again after a restart", "restart.consistency", "want one past", func(r *restarted) step {
		return version(r.after(on("create update")), "1")
	}},
	{"a list of before a restart is the most recent", "restart.consistency", "want exactly", func(r *restarted) step {
		return without(r.after(lists), "resourceVersion", "resourceVersionMatch")
	}},
	{"a list of before a restart has other objects", "restart.consistency", "at exactly", func(r *restarted) step {
		return liar(r.after(lists.and(having("resourceVersionMatch"))))
	}},
}

// TestRestart checks that the checks pass with a server that keeps its objects, and that each fails
// with one that does not.
func TestRestart(t *testing.T) {
	for _, f := range restartFaults {
		t.Run(f.check+"/"+f.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, config := restartable(t)
				config = behind(config, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
					time.Sleep(time.Millisecond) // or clients that begin again and again would stop the time of the bubble
					return next.RoundTrip(req)
				})
				if got := one(t, config, f.check, Options{Restart: r.restart}); got.Outcome != Passed {
					t.Fatalf("%s: %s\n%v", got.Outcome, got.Message, got.Exchanges)
				}
				r.times.Store(0)
				got := one(t, behind(config, f.step(r)), f.check, Options{Restart: r.restart})
				if got.Outcome != Failed || !strings.Contains(got.Message, f.says) {
					t.Errorf("%s: %s, want %q\n%v", got.Outcome, got.Message, f.says, got.Exchanges)
				}
			})
		})
	}
	if got := one(t, serve(t), "restart.watch", Options{}); got.Outcome != Skipped {
		t.Errorf("without a way to restart: %s %s", got.Outcome, got.Message)
	}
	for _, check := range []string{"restart.watch", "restart.consistency"} {
		failing := func(context.Context) error { return os.ErrPermission }
		report, err := Run(t.Context(), serve(t), Options{Restart: failing, Checks: []string{check}}, progress.Progress{})
		if err != nil || report.Results[0].Outcome != Skipped || !strings.Contains(report.Unable, "could not be restarted: permission denied") {
			t.Errorf("%s with a restart that fails: %v %+v", check, err, report)
		}
	}
}
