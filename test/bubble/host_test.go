package bubble

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/tidemarktest"
	"github.com/tidemark-dev/tidemark/tidemarktest/kube"
	"github.com/tidemark-dev/tidemark/tidemarktest/nethttp"
)

// TestHost: the clusters of tidemarktest are worlds of a server in the process of the test, which works
// in a bubble, too.
func TestHost(t *testing.T) {
	tier.Full(t)
	run(t, func(t *testing.T) {
		world := &tidemarktest.World{
			Host:              start(t).Host(),
			CRDDirectoryPaths: []string{"../../tidemarktest/testdata/crd"},
			Fixtures:          fstest.MapFS{"one.yaml": {Data: []byte("{apiVersion: example.com/v1, kind: Widget, metadata: {name: one}}")}},
			Users:             []tidemarktest.User{{Name: "alice"}},
		}
		first, second := world.Fork(t), world.Fork(t)
		clients := kubernetes.NewForConfigOrDie(kube.Config(first))
		factory := informers.NewSharedInformerFactory(clients, 0)
		lister := factory.Core().V1().ConfigMaps().Lister().ConfigMaps("default")
		ctx, cancel := context.WithCancel(t.Context())
		defer factory.Shutdown()
		defer cancel()
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		seen := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "seen"}}
		if _, err := clients.CoreV1().ConfigMaps("default").Create(t.Context(), seen, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if _, err := lister.Get("seen"); err != nil {
			t.Error(err)
		}
		begin := time.Now()
		first.Settle(t)
		if took := time.Since(begin); took < 300*time.Millisecond || took > 400*time.Millisecond {
			t.Errorf("Settle took %v of the time in the bubble", took)
		}
		other := kubernetes.NewForConfigOrDie(kube.Config(second))
		if _, err := other.CoreV1().ConfigMaps("default").Get(t.Context(), "seen", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the other cluster has the object, too: %v", err)
		}
		for env, want := range map[*tidemarktest.Env]int{second: http.StatusOK, second.As("alice"): http.StatusForbidden} {
			response, err := nethttp.Client(env).Get(env.URL() + "/apis/example.com/v1/namespaces/default/widgets/one")
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("the fixture gets %d, want %d", response.StatusCode, want)
			}
		}
	})
}

// TestHourly: a test with a manager that ends at any moment leaves nothing behind in the bubble.
func TestHourly(t *testing.T) {
	tier.Full(t)
	for name, lasts := range map[string]time.Duration{"at once": 0, "after a minute": time.Minute, "after hours": 150 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				s := &tidemark.Server{InProcess: true, History: tidemark.History{Retention: 48 * time.Hour}}
				if err := s.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				env := (&tidemarktest.World{Host: s.Host(), Fixtures: fstest.MapFS{"a.yaml": {Data: []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")}}}).Fork(t)
				r := new(hourly)
				manage(t, kube.Config(env), r)
				time.Sleep(lasts)
				synctest.Wait()
				if n := r.calls.Load(); lasts > time.Hour && n != 3 {
					t.Errorf("%d calls, want 3", n)
				}
				if n := len(env.Changes(t).Of("configmaps", "a").All()); n != 0 {
					t.Errorf("%d changes", n)
				}
			})
		})
	}
}

// wrong is a test that is expected to fail. It keeps the messages, and the cleanups for end.
type wrong struct {
	*testing.T
	messages []string
	cleanups []func()
}

func (w *wrong) Cleanup(f func()) { w.cleanups = append(w.cleanups, f) }
func (w *wrong) Failed() bool     { return len(w.messages) > 0 }
func (w *wrong) Errorf(text string, a ...any) {
	w.messages = append(w.messages, fmt.Sprintf(text, a...))
}
func (w *wrong) Fatalf(text string, a ...any) { w.Errorf(text, a...) }

// end runs the cleanups, and fails the test unless the messages are one with a text.
func (w *wrong) end(want string) {
	w.Helper()
	for _, f := range slices.Backward(w.cleanups) {
		f()
	}
	if len(w.messages) != 1 || !strings.Contains(w.messages[0], want) {
		w.T.Errorf("the messages are %q, want one with %q", w.messages, want)
	}
}

// TestWrongHost checks that the messages name the fault of the server, or of its use by the test.
func TestWrongHost(t *testing.T) {
	tier.Full(t)
	run(t, func(t *testing.T) {
		w := &wrong{T: t}
		tidemarktest.Start(w)
		w.end("set World.Host")

		s := &tidemark.Server{InProcess: true}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		w = &wrong{T: t}
		env := (&tidemarktest.World{Host: s.Host()}).Fork(w)
		for range 2 { // changes, an hour after the beginning
			time.Sleep(2 * time.Hour)
			env.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {generateName: a}}")
		}
		env.Changes(w)
		w.end("set History.Retention")

		w = &wrong{T: t}
		(&tidemarktest.World{Host: s.Host()}).Fork(w)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		w.end("Close it in t.Cleanup")
	})
}

// TestSearchReads: a run has not ended while its controller reads. One that polls without end ends nonetheless.
func TestSearchReads(t *testing.T) {
	tier.Full(t)
	for name, polls := range map[string]bool{"reads": false, "polls": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				env := (&tidemarktest.World{Host: start(t).Host()}).Fork(t)
				const path = "/api/v1/namespaces/default/configmaps"
				read := func(ctx context.Context, e *tidemarktest.Env) {
					if r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL()+path, nil); err != nil {
						t.Error(err)
					} else if response, err := nethttp.Client(e).Do(r); err == nil {
						response.Body.Close()
					}
					select {
					case <-time.After(50 * time.Millisecond):
					case <-ctx.Done():
					}
				}
				controller := func(ctx context.Context, e *tidemarktest.Env) {
					for range 20 { // a second, far more than the quiet of a run
						read(ctx, e)
					}
					if response, err := nethttp.Client(e).Post(e.URL()+path, "application/json", strings.NewReader(`{"metadata":{"name":"made"}}`)); err == nil {
						response.Body.Close()
					}
					for polls && ctx.Err() == nil {
						read(ctx, e)
					}
				}
				early := func(_, disturbed *tidemarktest.Run) error {
					for _, c := range disturbed.Changes {
						if c.Key == "default/made" {
							return nil
						}
					}
					t.Error("a run has ended while its controller read")
					return nil
				}
				tidemarktest.EveryPrefix(t, env, controller, early, tidemarktest.SameEnd())
			})
		})
	}
}
