package registry_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const somePod = `{"metadata":{"name":"p"},"spec":{"nodeName":%q,"terminationGracePeriodSeconds":%d,"containers":[{"name":"c","image":"i"}]},"status":{}}`

// TestDeletePhases checks the reasons that delay a deletion, and when the object is removed.
func TestDeletePhases(t *testing.T) {
	foreground, orphan, background := metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan, metav1.DeletePropagationBackground
	yes, no, zero, five, fifty, minus := true, false, int64(0), int64(5), int64(50), int64(-1)
	const plain, held = `{"metadata":{"name":"p"}}`, `{"metadata":{"name":"p","finalizers":["a.b/c"]}}`
	const replicas = `{"metadata":{"name":"p"},"spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	pod := func(node string, seconds int) string { return fmt.Sprintf(somePod, node, seconds) }
	rows := []struct {
		name, plural, body string
		requests           []metav1.DeleteOptions
		// want is the finalizers and the grace period that the last response shows; empty:
		// the object is gone.
		want string
	}{
		{"plain", "configmaps", plain, []metav1.DeleteOptions{{}}, ""},
		{"plain with grace", "configmaps", plain, []metav1.DeleteOptions{{GracePeriodSeconds: &five}}, ""},
		{"a finalizer", "configmaps", held, []metav1.DeleteOptions{{}}, "[a.b/c] 0"},
		{"a finalizer, twice", "configmaps", held, []metav1.DeleteOptions{{}, {}}, "[a.b/c] 0"},
		{"foreground", "configmaps", plain, []metav1.DeleteOptions{{PropagationPolicy: &foreground}}, "[foregroundDeletion] 0"},
		{"orphan", "configmaps", plain, []metav1.DeleteOptions{{PropagationPolicy: &orphan}}, "[orphan] 0"},
		{"the old way to orphan", "configmaps", plain, []metav1.DeleteOptions{{OrphanDependents: &yes}}, "[orphan] 0"},
		{"the old way not to", "configmaps", plain, []metav1.DeleteOptions{{OrphanDependents: &no}}, ""},
		{"foreground, then background", "configmaps", plain, []metav1.DeleteOptions{{PropagationPolicy: &foreground}, {PropagationPolicy: &background}}, ""},
		{"foreground, then orphan", "configmaps", plain, []metav1.DeleteOptions{{PropagationPolicy: &foreground}, {PropagationPolicy: &orphan}}, "[orphan] 0"},
		{"foreground, then nothing said", "configmaps", plain, []metav1.DeleteOptions{{PropagationPolicy: &foreground}, {}}, "[foregroundDeletion] 0"},
		{"foreground with a finalizer", "configmaps", held, []metav1.DeleteOptions{{PropagationPolicy: &foreground}}, "[a.b/c foregroundDeletion] 0"},
		{"an event has no dependents", "events", `{"metadata":{"name":"p"},"involvedObject":{"namespace":"default"}}`, []metav1.DeleteOptions{{PropagationPolicy: &orphan}}, ""},
		{"a kind that orphans", "replicationcontrollers", replicas, []metav1.DeleteOptions{{}}, "[orphan] 0"},
		{"a kind that orphans, told not to", "replicationcontrollers", replicas, []metav1.DeleteOptions{{PropagationPolicy: &background}}, ""},
		{"a pod", "pods", pod("n", 30), []metav1.DeleteOptions{{}}, "[] 30"},
		{"a pod on no node", "pods", pod("", 30), []metav1.DeleteOptions{{}}, ""},
		{"a pod without time", "pods", pod("n", 0), []metav1.DeleteOptions{{}}, ""},
		{"a pod at once", "pods", pod("n", 30), []metav1.DeleteOptions{{GracePeriodSeconds: &zero}}, ""},
		{"a negative time is a second", "pods", pod("n", 30), []metav1.DeleteOptions{{GracePeriodSeconds: &minus}}, "[] 1"},
		{"shorter", "pods", pod("n", 30), []metav1.DeleteOptions{{}, {GracePeriodSeconds: &five}}, "[] 5"},
		{"not longer", "pods", pod("n", 30), []metav1.DeleteOptions{{}, {GracePeriodSeconds: &fifty}}, "[] 30"},
		{"then at once", "pods", pod("n", 30), []metav1.DeleteOptions{{}, {GracePeriodSeconds: &zero}}, ""},
		{"no new policy while it stops", "pods", pod("n", 30), []metav1.DeleteOptions{{}, {PropagationPolicy: &foreground}}, "[] 30"},
		{"a pod with a finalizer", "pods", strings.Replace(pod("n", 30), `"name":"p"`, `"name":"p","finalizers":["a.b/c"]`, 1), []metav1.DeleteOptions{{GracePeriodSeconds: &zero}}, "[a.b/c] 0"},
	}
	for _, row := range rows {
		for _, dryRun := range []bool{false, true} {
			s := newServer(t, store.Options{})
			target := s.target(row.plural, "default", "p")
			s.create(row.plural, "default", row.body)
			got, before := "", s.Store.Any().Revision()
			for i, o := range row.requests {
				if dryRun && i == len(row.requests)-1 {
					o.DryRun = []string{"All"}
					before = s.Store.Any().Revision()
				}
				response, err := s.Delete(context.Background(), target, &o, nil)
				if err != nil {
					t.Fatalf("%s: %v", row.name, err)
				}
				got = ""
				if response.Status == nil {
					if m := meta(t, response.Stored); m.DeletionTimestamp != nil && (len(m.Finalizers) > 0 || *m.DeletionGracePeriodSeconds > 0) {
						got = fmt.Sprint(m.Finalizers, " ", *m.DeletionGracePeriodSeconds)
					}
				}
			}
			if got != row.want {
				t.Errorf("%s (dry-run %v): %q, want %q", row.name, dryRun, got, row.want)
			}
			o := s.Store.Any().Get(target.Type.Collection, "default/p")
			if dryRun && s.Store.Any().Revision() != before {
				t.Errorf("%s: the dry-run wrote", row.name)
			}
			if !dryRun && (o == nil) != (row.want == "") {
				t.Errorf("%s: it is there: %v", row.name, o != nil)
			}
		}
	}
}

// TestLastFinalizer checks that the update that takes off the last finalizer removes the object and
// returns it as sent. No finalizer can be added to an object that is being deleted, and its name is
// taken.
func TestLastFinalizer(t *testing.T) {
	s := newServer(t, store.Options{})
	ctx := context.Background()
	s.create("configmaps", "default", `{"metadata":{"name":"a","finalizers":["a.b/c","a.b/d"]}}`)
	marked := s.delete("configmaps", "default", "a").Stored
	target := s.target("configmaps", "default", "a")
	_, err := s.Update(ctx, target, body(`{"metadata":{"name":"a","finalizers":["a.b/c","a.b/e"]}}`), registry.WriteOptions{})
	if got := statusOf(t, err); got.Code != 422 || !strings.Contains(got.Message, `no new finalizers can be added if the object is being deleted, found new finalizers []string{"a.b/e"}`) {
		t.Errorf("a new finalizer: %d %s", got.Code, got.Message)
	}
	_, err = s.Create(ctx, s.target("configmaps", "default", ""), body(`{"metadata":{"name":"a"}}`), registry.WriteOptions{})
	if got := statusOf(t, err); got.Code != 409 || got.Message != `object is being deleted: configmaps "a" already exists` {
		t.Errorf("the name again: %d %s", got.Code, got.Message)
	}
	one := s.update("configmaps", "default", "a", `{"metadata":{"name":"a","deletionTimestamp":null,"finalizers":["a.b/d"]}}`)
	if m, was := meta(t, one), meta(t, marked); !m.DeletionTimestamp.Equal(was.DeletionTimestamp) {
		t.Errorf("the deletion timestamp became %v, was %v", m.DeletionTimestamp, was.DeletionTimestamp)
	}
	dry, err := s.Update(ctx, target, body(`{"metadata":{"name":"a"},"data":{"last":"words"}}`), registry.WriteOptions{DryRun: []string{"All"}})
	if err != nil || s.Store.Any().Get("configmaps", "default/a") == nil {
		t.Fatalf("a dry-run: %v, or the object is gone", err)
	}
	last := s.update("configmaps", "default", "a", `{"metadata":{"name":"a"},"data":{"last":"words"}}`)
	for _, o := range []*store.Object{dry.Stored, last} {
		if m := meta(t, o); m.ResourceVersion != fmt.Sprint(one.Modified) || !strings.Contains(string(o.Bytes()), "words") || m.Finalizers != nil {
			t.Errorf("the response is %s", o.Bytes())
		}
	}
	if s.Store.Any().Get("configmaps", "default/a") != nil {
		t.Error("it is still there")
	}
}

// TestNamespacePhases checks that a namespace stays until it is finalized.
func TestNamespacePhases(t *testing.T) {
	s := newServer(t, store.Options{})
	ctx := context.Background()
	s.create("namespaces", "", `{"metadata":{"name":"n"}}`)
	for range 2 {
		o := s.delete("namespaces", "", "n").Stored
		if m := meta(t, o); m.DeletionTimestamp == nil || m.DeletionGracePeriodSeconds != nil || !strings.Contains(string(o.Bytes()), `"phase":"Terminating"`) {
			t.Errorf("deleted to %s", o.Bytes())
		}
	}
	_, err := s.Create(ctx, s.target("configmaps", "n", ""), body(`{"metadata":{"name":"a"}}`), registry.WriteOptions{})
	if got := statusOf(t, err); got.Code != 403 || got.Details.Name != "a" || got.Details.Causes[0].Type != "NamespaceTerminating" {
		t.Errorf("new content: %+v", got)
	}
	finalize := s.target("namespaces", "", "n")
	finalize.Subresource = "finalize"
	if _, err := s.Update(ctx, finalize, body(`{"metadata":{"name":"n","labels":{"x":"y"}},"spec":{"finalizers":[]}}`), registry.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if s.Store.Any().Get("namespaces", "n") != nil {
		t.Error("it is still there")
	}
}

// TestPodRemoval checks that a pod that is deleted at once is marked first, since watchers rely on
// it.
func TestPodRemoval(t *testing.T) {
	s := newServer(t, store.Options{})
	pod := s.create("pods", "default", fmt.Sprintf(somePod, "", 30))
	gone := s.delete("pods", "default", "p").Stored
	if m := meta(t, gone); gone.Modified != pod.Modified+2 || m.DeletionTimestamp == nil || m.Generation != 2 {
		t.Errorf("revision %d after %d, as %s", gone.Modified, pod.Modified, gone.Bytes())
	}
}

// TestEdit checks edits of the server itself under concurrent writes.
func TestEdit(t *testing.T) {
	s := newServer(t, store.Options{})
	ctx := context.Background()
	s.create("configmaps", "default", `{"metadata":{"name":"a","finalizers":["a.b/c"]}}`)
	s.delete("configmaps", "default", "a")
	calls := 0
	_, err := s.Edit(ctx, s.target("configmaps", "default", "a"), "test", func(o metav1.Object) error {
		if calls++; calls == 1 { // another writer is faster
			s.update("configmaps", "default", "a", `{"metadata":{"name":"a","finalizers":["a.b/c"]},"data":{"x":"y"}}`)
		}
		o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == "a.b/c" }))
		return nil
	})
	if err != nil || calls != 2 || s.Store.Any().Get("configmaps", "default/a") != nil {
		t.Errorf("%d calls, %v, or it is still there", calls, err)
	}
	if _, err := s.Edit(ctx, s.target("configmaps", "default", "a"), "test", func(metav1.Object) error { return nil }); err == nil || statusOf(t, err).Code != 404 {
		t.Errorf("editing a deleted object: %v", err)
	}
}

// TestDeleteCollectionPanics: a panic of admission fails the request, and does not end the process.
func TestDeleteCollectionPanics(t *testing.T) {
	s := newServer(t, store.Options{})
	s.create("configmaps", "default", configMap("a", "1", ""))
	s.Plugins = []registry.Plugin{{Validate: func(context.Context, *registry.Attributes) error { panic("a plugin fails") }}}
	_, err := s.DeleteCollection(t.Context(), s.target("configmaps", "default", ""), nil, &metainternal.ListOptions{}, nil)
	if err == nil || statusOf(t, err).Code != 500 {
		t.Errorf("got %v, want an internal error", err)
	}
}

// TestDeleteCollection checks that deletecollection deletes the objects that a list selects, and
// returns that list.
func TestDeleteCollection(t *testing.T) {
	s := newServer(t, store.Options{})
	ctx := context.Background()
	for i := range 20 {
		s.create("configmaps", "default", configMap(fmt.Sprintf("c%02d", i), fmt.Sprint(i%2), ""))
	}
	s.create("configmaps", "default", `{"metadata":{"name":"held","labels":{"l":"1"},"finalizers":["a.b/c"]}}`)
	s.create("namespaces", "", `{"metadata":{"name":"other"}}`)
	s.create("configmaps", "other", configMap("a", "1", ""))
	target := s.target("configmaps", "default", "")
	names := func(l *registry.List) (all []string) {
		for o, err := range l.Items {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, meta(t, o).Name)
		}
		return all
	}
	count := func() int { return s.Store.Any().Snapshot("configmaps").Count("", "") }
	uid := types.UID("x")
	if _, err := s.DeleteCollection(ctx, target, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}, &metainternal.ListOptions{}, nil); err == nil || statusOf(t, err).Code != 409 {
		t.Errorf("another uid: %v", err)
	}
	if _, err := s.DeleteCollection(ctx, target, nil, &metainternal.ListOptions{ResourceVersionMatch: "x"}, nil); err == nil || statusOf(t, err).Code != 422 {
		t.Errorf("a bad match: %v", err)
	}
	l, err := s.DeleteCollection(ctx, target, &metav1.DeleteOptions{DryRun: []string{"All"}}, &metainternal.ListOptions{}, nil)
	if err != nil || len(names(l)) != 21 || count() != 22 {
		t.Errorf("a dry-run: %v", err)
	}
	l, err = s.DeleteCollection(ctx, target, nil, &metainternal.ListOptions{Limit: 4}, nil)
	if err != nil || len(names(l)) != 4 || l.Continue == "" || count() != 18 {
		t.Errorf("a page: %v, %d left", err, count())
	}
	jobs := registry.Target{Type: kind(t, "batch", "v1", "jobs"), Namespace: "default"}
	if l, err := s.DeleteCollection(ctx, jobs, nil, &metainternal.ListOptions{}, nil); err != nil || len(l.Warnings) != 1 {
		t.Errorf("the deletion of jobs: %v, without a warning", err)
	}
	before := s.Store.Any().Revision()
	l, err = s.DeleteCollection(ctx, target, nil, &metainternal.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"l": "1"})}, nil)
	if err != nil || len(names(l)) != 9 || count() != 10 || s.Store.Any().Revision() != before+9 {
		t.Errorf("by label: %v, %d left, %d revisions", err, count(), s.Store.Any().Revision()-before)
	}
	if o := s.Store.Any().Get("configmaps", "default/held"); o == nil || meta(t, o).DeletionTimestamp == nil {
		t.Error("what has a finalizer is not marked")
	}
}

// TestDeletionTime checks that the deletionTimestamp of a pod is the end of its grace period.
func TestDeletionTime(t *testing.T) {
	s := newServer(t, store.Options{})
	now := time.Date(2030, 1, 2, 3, 4, 5, 999, time.UTC)
	s.Now = func() time.Time { return now }
	s.create("pods", "default", fmt.Sprintf(somePod, "n", 30))
	five := int64(5)
	for _, o := range []metav1.DeleteOptions{{}, {GracePeriodSeconds: &five}} {
		response, err := s.Delete(context.Background(), s.target("pods", "default", "p"), &o, nil)
		if err != nil {
			t.Fatal(err)
		}
		m := meta(t, response.Stored)
		if want := now.Truncate(time.Second).Add(time.Duration(*m.DeletionGracePeriodSeconds) * time.Second); !m.DeletionTimestamp.Time.Equal(want) || m.Generation != 2 {
			t.Errorf("%v seconds until %v, want %v; generation %d", *m.DeletionGracePeriodSeconds, m.DeletionTimestamp, want, m.Generation)
		}
	}
}

// TestDeleteBesideWrite: a Pod that is deleted at once is marked, and then removed. A write between the two steps removes it, as
// it has no grace period any more. The deletion succeeds all the same, also if there is a new Pod of that name by then.
func TestDeleteBesideWrite(t *testing.T) {
	for _, again := range []bool{false, true} {
		s := newServer(t, store.Options{})
		pod := fmt.Sprintf(somePod, "n", 30)
		before := s.create("pods", "default", pod)
		raced := false
		s.Plugins = append(s.Plugins, registry.Plugin{Record: func(_ context.Context, tx *registry.Transaction) error {
			if tx.Writes[0].Value != nil || raced {
				return nil
			}
			raced = true
			s.update("pods", "default", "p", strings.Replace(pod, `"name":"p"`, `"name":"p","labels":{"a":"b"}`, 1))
			if s.Store.Any().Get("pods", before.Key) != nil {
				t.Error("the write did not remove the Pod")
			}
			if again {
				s.create("pods", "default", pod)
			}
			return nil
		}})
		zero := int64(0)
		response, err := s.Delete(t.Context(), s.target("pods", "default", "p"), &metav1.DeleteOptions{GracePeriodSeconds: &zero}, nil)
		if err != nil {
			t.Fatalf("a new Pod: %t: %v", again, err)
		}
		if !raced {
			t.Fatal("no write was between the steps")
		}
		if got, want := meta(t, response.Stored).UID, meta(t, before).UID; got != want {
			t.Errorf("a new Pod: %t: the response has the Pod %s, want %s", again, got, want)
		}
		if left := s.Store.Any().Get("pods", before.Key) != nil; left != again {
			t.Errorf("a Pod is left: %t, want %t", left, again)
		}
	}
}
