package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// newBank is a world where quotas are kept.
func newBank(t testing.TB) *world {
	w := newWorld(t, "resourcequota")
	w.quotas = true
	w.restart()
	return w
}

// try creates an object, if it may.
func (w *world) try(collection, namespace, body string) error {
	t := registry.Target{Type: w.kind(collection), Namespace: namespace}
	_, err := w.Create(context.Background(), t, registry.Body{Media: wire.JSON, Bytes: []byte(body)}, registry.WriteOptions{})
	return err
}

// status returns the status of a quota as JSON.
func (w *world) status(key string) string {
	w.Helper()
	var q corev1.ResourceQuota
	o := w.get("resourcequotas", key)
	if o == nil {
		return "gone"
	}
	if err := json.Unmarshal(o.Bytes(), &q); err != nil {
		w.Fatal(err)
	}
	b, err := json.Marshal(q.Status)
	if err != nil {
		w.Fatal(err)
	}
	return string(b)
}

func (w *world) wantStatus(key, hard, used string) {
	w.Helper()
	w.settle()
	if got, want := w.status(key), `{"hard":{`+hard+`},"used":{`+used+`}}`; got != want {
		w.Errorf("%s says %s, want %s", key, got, want)
	}
}

const quotaOf = `{"metadata":{"name":"q"},"spec":{"hard":{%s}}}`

// TestQuotaStatus checks that the status equals the stored usage.
func TestQuotaStatus(t *testing.T) {
	w := newBank(t)
	pod := func(name, cpu string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":%q}}}]}}`, name, cpu)
	}
	w.make("pods", "n", pod("early", "100m"))
	w.make("configmaps", "n", `{"metadata":{"name":"early"}}`)
	const hard = `"count/configmaps":"3","count/pods":"5","pods":"2","requests.cpu":"1"`
	w.make("resourcequotas", "n", fmt.Sprintf(quotaOf, hard))
	w.wantStatus("n/q", hard, `"count/configmaps":"1","count/pods":"1","pods":"1","requests.cpu":"100m"`)

	w.make("pods", "n", pod("late", "200m"))
	w.wantStatus("n/q", hard, `"count/configmaps":"1","count/pods":"2","pods":"2","requests.cpu":"300m"`)
	err := w.try("pods", "n", pod("over", "1m"))
	if text := `pods "over" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2`; err == nil || err.Error() != text {
		t.Errorf("%v, want %s", err, text)
	}
	w.make("pods", "default", pod("elsewhere", "5"))

	w.change("pods", "n/early", "status", func(o metav1.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodSucceeded })
	w.wantStatus("n/q", hard, `"count/configmaps":"1","count/pods":"2","pods":"1","requests.cpu":"200m"`)
	zero := int64(0)
	if _, err := w.Delete(t.Context(), w.target("pods", "n/late"), &metav1.DeleteOptions{GracePeriodSeconds: &zero}, nil); err != nil {
		t.Fatal(err)
	}
	w.erase("configmaps", "n/early", "")
	w.wantStatus("n/q", hard, `"count/configmaps":"0","count/pods":"1","pods":"0","requests.cpu":"0"`)

	w.change("resourcequotas", "n/q", "", func(o metav1.Object) { delete(o.(*corev1.ResourceQuota).Spec.Hard, "pods") })
	w.wantStatus("n/q", strings.Replace(hard, `"pods":"2",`, "", 1), `"count/configmaps":"0","count/pods":"1","requests.cpu":"0"`)

	// An object that is charged and then not stored.
	w.make("configmaps", "n", `{"metadata":{"name":"a"}}`)
	if err := w.try("configmaps", "n", `{"metadata":{"name":"a"}}`); !apierrors.IsAlreadyExists(err) {
		t.Error(err)
	}
	w.wantStatus("n/q", strings.Replace(hard, `"pods":"2",`, "", 1), `"count/configmaps":"1","count/pods":"1","requests.cpu":"0"`)

	dry := registry.WriteOptions{DryRun: []string{"All"}}
	if _, err := w.Create(t.Context(), w.target("configmaps", "n/"), registry.Body{Media: wire.JSON, Bytes: []byte(`{"metadata":{"name":"dry"}}`)}, dry); err != nil {
		t.Error(err)
	}
	w.wantStatus("n/q", strings.Replace(hard, `"pods":"2",`, "", 1), `"count/configmaps":"1","count/pods":"1","requests.cpu":"0"`)
	w.erase("resourcequotas", "n/q", "")
	w.settle()
	for i := range 5 {
		w.make("configmaps", "n", fmt.Sprintf(`{"metadata":{"name":"free%d"}}`, i))
	}
}

// TestQuotaRace: concurrent writers use up a quota exactly, and never exceed it, also with
// concurrent deletions.
func TestQuotaRace(t *testing.T) {
	const racers, places = 64, 10
	w := newBank(t)
	w.make("resourcequotas", "n", fmt.Sprintf(quotaOf, `"configmaps":"10"`))
	w.make("resourcequotas", "n", `{"metadata":{"name":"wide"},"spec":{"hard":{"count/configmaps":"20"}}}`)
	w.settle()
	changes := w.recorded()

	var won atomic.Int64
	race := func(f func(i int)) {
		var all sync.WaitGroup
		for i := range racers {
			all.Go(func() { f(i) })
		}
		all.Wait()
	}
	race(func(i int) {
		switch err := w.try("configmaps", "n", fmt.Sprintf(`{"metadata":{"name":"first%d"}}`, i)); {
		case err == nil:
			won.Add(1)
		case !apierrors.IsForbidden(err):
			t.Error(err)
		}
	})
	if n := won.Load(); n != places {
		t.Errorf("%d of %d got a place, want %d", n, racers, places)
	}
	w.wantStatus("n/q", `"configmaps":"10"`, `"configmaps":"10"`)

	seed := testrand.New(t)
	seeds := make([]uint64, racers)
	for i := range seeds {
		seeds[i] = seed.Uint64()
	}
	race(func(i int) {
		r := rand.New(rand.NewPCG(seeds[i], 0))
		for range 20 {
			name := fmt.Sprintf("first%d", r.IntN(racers))
			if r.IntN(2) == 0 {
				_, err := w.Delete(t.Context(), w.target("configmaps", "n/"+name), nil, nil)
				if err != nil && !apierrors.IsNotFound(err) {
					t.Error(err)
				}
				continue
			}
			err := w.try("configmaps", "n", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
			if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsAlreadyExists(err) {
				t.Error(err)
			}
		}
	})
	w.settle()
	n, most := countOf("configmaps", changes())
	if most != places {
		t.Errorf("there were %d at once, want %d", most, places)
	}
	w.wantStatus("n/q", `"configmaps":"10"`, fmt.Sprintf(`"configmaps":"%d"`, n))
	w.wantStatus("n/wide", `"count/configmaps":"20"`, fmt.Sprintf(`"count/configmaps":"%d"`, n))
	if left := len(w.keys("configmaps", "n/")); left != n {
		t.Errorf("%d are stored, want %d", left, n)
	}
}

// countOf is how many objects of a collection there are after changes to an empty one,
// and how many there were at most.
func countOf(collection string, changes []store.CollectionChange) (n, most int) {
	for _, c := range changes {
		if c.Collection != collection {
			continue
		}
		switch {
		case c.Before == nil:
			n++
		case c.After == nil:
			n--
		}
		most = max(most, n)
	}
	return n, most
}

// TestQuotaIsLate checks that a write that began before a limit was in effect is charged when it is
// stored.
func TestQuotaIsLate(t *testing.T) {
	for _, c := range []struct {
		name  string
		early string // the limits that hold before the write begins; empty: no quota is there
		hold  func(w *world)
	}{
		{"a new quota", "", func(w *world) { w.make("resourcequotas", "n", fmt.Sprintf(quotaOf, `"secrets":"2"`)) }},
		{"another limit", `"configmaps":"1"`, func(w *world) {
			w.change("resourcequotas", "n/q", "", func(o metav1.Object) {
				o.(*corev1.ResourceQuota).Spec.Hard = corev1.ResourceList{"secrets": resource.MustParse("2")}
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newBank(t)
			began, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error)
			var once sync.Once
			w.plugins = []registry.Plugin{{Validate: func(_ context.Context, a *registry.Attributes) error {
				if a.Name == "slow" {
					once.Do(func() { close(began); <-goOn })
				}
				return nil
			}}}
			w.restart()
			if c.early != "" {
				w.make("resourcequotas", "n", fmt.Sprintf(quotaOf, c.early))
				w.settle()
			}
			go func() { ended <- w.try("secrets", "n", `{"metadata":{"name":"slow"}}`) }()
			<-began
			c.hold(w)
			w.wantStatus("n/q", `"secrets":"2"`, `"secrets":"0"`)
			close(goOn)
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			w.wantStatus("n/q", `"secrets":"2"`, `"secrets":"1"`)
			w.make("secrets", "n", `{"metadata":{"name":"last"}}`)
			if err := w.try("secrets", "n", `{"metadata":{"name":"over"}}`); !apierrors.IsForbidden(err) {
				t.Errorf("one too many: %v", err)
			}
		})
	}
}

// TestQuotaKilled checks that the status is correct after a restart, wherever the server was
// killed.
func TestQuotaKilled(t *testing.T) {
	for appends := range int64(9) { // two for each create and for the deletion, one for each count
		w := newBank(t)
		w.make("resourcequotas", "n", fmt.Sprintf(quotaOf, `"secrets":"2"`))
		w.settle()
		w.log.live(appends)
		for _, name := range []string{"a", "b", "c"} {
			_ = w.try("secrets", "n", fmt.Sprintf(`{"metadata":{"name":%q}}`, name)) // the third is refused
		}
		_, _ = w.Delete(t.Context(), w.target("secrets", "n/a"), nil, nil)
		w.runOrDie()
		w.log.live(-1)
		w.restart()
		w.settle()
		n := len(w.keys("secrets", "n/"))
		w.wantStatus("n/q", `"secrets":"2"`, fmt.Sprintf(`"secrets":"%d"`, n))
	}
}
