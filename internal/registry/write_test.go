package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestDryRunWithVersion: only a create that stores refuses a resource version. A dry-run responds with
// it, as kube-apiserver does.
func TestDryRunWithVersion(t *testing.T) {
	s := newServer(t, store.Options{})
	target := s.target("configmaps", "default", "")
	dry := registry.WriteOptions{DryRun: []string{"All"}}
	for sent, want := range map[string]string{"": "", "0": "", "5": "5"} {
		o, err := s.Create(t.Context(), target, body(`{"metadata":{"name":"a","resourceVersion":"`+sent+`"},"data":{"k":"v"}}`), dry)
		if err != nil {
			t.Errorf("%q: %v", sent, err)
			continue
		}
		if got := meta(t, o.Stored); got.ResourceVersion != want || got.UID == "" {
			t.Errorf("%q: the response has version %q and UID %q", sent, got.ResourceVersion, got.UID)
		}
	}
	s.create("configmaps", "default", configMap("taken", "", ""))
	_, err := s.Create(t.Context(), target, body(`{"metadata":{"name":"taken","resourceVersion":"5"}}`), dry)
	if got := statusOf(t, err); got.Reason != metav1.StatusReasonAlreadyExists {
		t.Errorf("a taken name: %v", got)
	}
}

// meta reads the metadata of a stored object.
func meta(t testing.TB, o *store.Object) metav1.ObjectMeta {
	t.Helper()
	var v struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(o.Bytes(), &v); err != nil {
		t.Fatalf("%s: %v", o.Bytes(), err)
	}
	return v.Metadata
}

func TestCreateRefuses(t *testing.T) {
	s := newServer(t, store.Options{})
	s.create("configmaps", "default", configMap("taken", "", ""))
	rows := []struct {
		name, plural, namespace, body string
		options                       registry.WriteOptions
		code                          int32
		reason                        metav1.StatusReason
		message                       string
	}{
		{"no name", "configmaps", "default", `{}`, registry.WriteOptions{}, 422, "Invalid", "name or generateName is required"},
		{"bad name", "configmaps", "default", `{"metadata":{"name":"A_"}}`, registry.WriteOptions{}, 422, "Invalid", "a lowercase RFC 1123 subdomain must consist of"},
		{"long name", "configmaps", "default", `{"metadata":{"name":"` + strings.Repeat("a", 254) + `"}}`, registry.WriteOptions{}, 422, "Invalid", "must be no more than 253"},
		{"dots in a name", "roles", "default", `{"metadata":{"name":".."}}`, registry.WriteOptions{}, 422, "Invalid", "may not be '..'"},
		{"taken", "configmaps", "default", `{"metadata":{"name":"taken"}}`, registry.WriteOptions{}, 409, "AlreadyExists", `configmaps "taken" already exists`},
		{"no namespace", "configmaps", "nope", `{"metadata":{"name":"a"}}`, registry.WriteOptions{}, 404, "NotFound", `namespaces "nope" not found`},
		{"another namespace", "configmaps", "default", `{"metadata":{"name":"a","namespace":"x"}}`, registry.WriteOptions{}, 400, "BadRequest", "does not match the namespace sent on the request"},
		{"a resource version", "configmaps", "default", `{"metadata":{"name":"a","resourceVersion":"5"}}`, registry.WriteOptions{}, 400, "BadRequest", "resourceVersion should not be set"},
		{"a malformed one", "configmaps", "default", `{"metadata":{"name":"a","resourceVersion":"x"}}`, registry.WriteOptions{}, 400, "BadRequest", "not a decimal number"},
		{"another kind", "configmaps", "default", `{"kind":"Secret","apiVersion":"v1"}`, registry.WriteOptions{}, 400, "BadRequest", "cannot be handled as a ConfigMap"},
		{"another version", "configmaps", "default", `{"kind":"ConfigMap","apiVersion":"v9"}`, registry.WriteOptions{}, 400, "BadRequest", `no kind "ConfigMap" is registered for version "v9"`},
		{"a list", "configmaps", "default", `{"kind":"List","apiVersion":"v1","items":[]}`, registry.WriteOptions{}, 400, "BadRequest", "cannot be handled"},
		{"an array", "configmaps", "default", `[]`, registry.WriteOptions{}, 400, "BadRequest", "couldn't get version/kind"},
		{"empty", "configmaps", "default", ``, registry.WriteOptions{}, 400, "BadRequest", "(<empty>)"},
		{"truncated", "configmaps", "default", `{"metadata":{"na`, registry.WriteOptions{}, 400, "BadRequest", "json parse error"},
		{"not UTF-8", "configmaps", "default", "{\"metadata\":{\"name\":\"a\xff\"}}", registry.WriteOptions{}, 400, "BadRequest", "UTF-8"},
		{"too deep", "configmaps", "default", `{"data":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, registry.WriteOptions{}, 400, "BadRequest", "nests deeper"},
		{"a wrong type", "configmaps", "default", `{"metadata":{"name":"a"},"data":[]}`, registry.WriteOptions{}, 400, "BadRequest", "cannot unmarshal array"},
		{"strict", "configmaps", "default", `{"metadata":{"name":"a"},"x":1,"data":{"k":"1","k":"2"}}`, registry.WriteOptions{FieldValidation: "Strict"}, 400, "BadRequest", `strict decoding error: unknown field "x", duplicate field "data.k"`},
		{"a bad level", "configmaps", "default", `{}`, registry.WriteOptions{FieldValidation: "strict"}, 422, "Invalid", `fieldValidation: Unsupported value: "strict"`},
		{"dry-run of a taken name", "configmaps", "default", `{"metadata":{"name":"taken"}}`, registry.WriteOptions{DryRun: []string{"All"}}, 409, "AlreadyExists", `configmaps "taken" already exists`},
		{"a bad dry-run", "configmaps", "default", `{"metadata":{"name":"a"}}`, registry.WriteOptions{DryRun: []string{"x"}}, 422, "Invalid", `dryRun: Unsupported value`},
		{"a finalizer", "configmaps", "default", `{"metadata":{"name":"a","finalizers":["x"]}}`, registry.WriteOptions{}, 422, "Invalid", "neither a standard finalizer name"},
	}
	before := s.Store.Any().Revision()
	for _, row := range rows {
		target := s.target("configmaps", row.namespace, "")
		if row.plural == "roles" {
			target.Type = kind(t, "rbac.authorization.k8s.io", "v1", "roles")
		}
		_, err := s.Create(context.Background(), target, body(row.body), row.options)
		if err == nil {
			t.Errorf("%s: it was stored", row.name)
			continue
		}
		got := statusOf(t, err)
		if got.Code != row.code || got.Reason != row.reason || !strings.Contains(got.Message, row.message) {
			t.Errorf("%s: %d %s %q, want %d %s %q", row.name, got.Code, got.Reason, got.Message, row.code, row.reason, row.message)
		}
	}
	if after := s.Store.Any().Revision(); after != before {
		t.Errorf("what was refused wrote revisions %d to %d", before+1, after)
	}
}

func TestCreateFills(t *testing.T) {
	s := newServer(t, store.Options{})
	o := s.create("configmaps", "default", `{"metadata":{"name":"a","uid":"mine","creationTimestamp":"2001-01-01T00:00:00Z","deletionTimestamp":"2001-01-01T00:00:00Z","selfLink":"x","managedFields":[{"manager":"m"}]},"data":{"k":"<&>"}}`)
	m := meta(t, o)
	if m.UID == "mine" || len(m.UID) != 36 || m.CreationTimestamp.Year() < 2020 || m.DeletionTimestamp != nil || len(m.ManagedFields) != 1 || m.ManagedFields[0].Manager != "unknown" || m.Namespace != "default" || strings.Contains(string(o.Bytes()), "selfLink") {
		t.Errorf("created with %+v", m)
	}
	if want := fmt.Sprint(o.Modified); m.ResourceVersion != want || string(o.Bytes()[o.RevisionAt:int(o.RevisionAt)+len(want)]) != want {
		t.Errorf("version %q, want %q in %s", m.ResourceVersion, want, o.Bytes())
	}
	g := meta(t, s.create("configmaps", "default", `{"metadata":{"generateName":"gen-"}}`))
	if !strings.HasPrefix(g.Name, "gen-") || len(g.Name) != 9 {
		t.Errorf("the generated name is %q", g.Name)
	}
}

func TestWarnings(t *testing.T) {
	s := newServer(t, store.Options{})
	o, err := s.Create(context.Background(), s.target("configmaps", "default", ""), body(`{"metadata":{"name":"a"},"x":1}`), registry.WriteOptions{FieldValidation: "Warn", DryRun: []string{""}})
	if err != nil || len(o.Warnings) != 1 || o.Warnings[0] != `unknown field "x"` || strings.Contains(string(o.Stored.Bytes()), `"x"`) {
		t.Errorf("%v, %q, %s", err, o.Warnings, o.Stored.Bytes())
	}
}

func TestUpdate(t *testing.T) {
	s := newServer(t, store.Options{})
	first := s.create("configmaps", "default", configMap("a", "x", "1"))
	at := func(o *store.Object) string { return fmt.Sprint(o.Modified) }

	second := s.update("configmaps", "default", "a", `{"metadata":{"name":"a","resourceVersion":"`+at(first)+`"},"data":{"v":"2"}}`)
	if same := s.update("configmaps", "default", "a", `{"metadata":{"name":"a"},"data":{"v":"2"}}`); same.Modified != second.Modified {
		t.Errorf("an update that changes nothing moved the version from %d to %d", second.Modified, same.Modified)
	}
	if m, was := meta(t, second), meta(t, first); m.UID != was.UID || !m.CreationTimestamp.Equal(&was.CreationTimestamp) || m.Labels != nil {
		t.Errorf("updated to %+v, was %+v", m, was)
	}
	rows := []struct {
		name, url, body string
		code            int32
		message         string
	}{
		{"stale", "a", `{"metadata":{"name":"a","resourceVersion":"` + at(first) + `"}}`, 409, "the object has been modified; please apply your changes to the latest version and try again"},
		{"stale, the same", "a", `{"metadata":{"name":"a","resourceVersion":"` + at(first) + `"},"data":{"v":"2"}}`, 409, "the object has been modified"},
		{"malformed version", "a", `{"metadata":{"name":"a","resourceVersion":"abc"}}`, 400, "not a decimal number"},
		{"another name", "a", `{"metadata":{"name":"b"}}`, 400, "the name of the object (b) does not match the name on the URL (a)"},
		{"no name", "a", `{}`, 400, "the name of the object (a based on URL) was undeterminable: name must be provided"},
		{"another uid", "a", `{"metadata":{"name":"a","uid":"x"}}`, 409, "Precondition failed: UID in precondition: x, UID in object meta: "},
		{"not there", "b", `{"metadata":{"name":"b"}}`, 404, `configmaps "b" not found`},
	}
	for _, row := range rows {
		_, err := s.Update(context.Background(), s.target("configmaps", "default", row.url), body(row.body), registry.WriteOptions{})
		if err == nil {
			t.Errorf("%s: it was stored", row.name)
			continue
		}
		if got := statusOf(t, err); got.Code != row.code || !strings.Contains(got.Message, row.message) {
			t.Errorf("%s: %d %q, want %d %q", row.name, got.Code, got.Message, row.code, row.message)
		}
	}
}

// TestStatusApart checks that the object and its status do not change each other, and that
// generation counts changes of the desired state.
func TestStatusApart(t *testing.T) {
	s := newServer(t, store.Options{})
	target := registry.Target{Type: kind(t, "apps", "v1", "deployments"), Namespace: "default"}
	text := func(replicas, ready int, version string) registry.Body {
		return body(fmt.Sprintf(`{"metadata":{"name":"d","resourceVersion":%q},"spec":{"replicas":%d,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}},"status":{"replicas":%[3]d,"readyReplicas":%[3]d}}`, version, replicas, ready))
	}
	check := func(o registry.Object, err error, generation int64, replicas, ready int) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		var v struct {
			Spec   struct{ Replicas int }
			Status struct{ ReadyReplicas int }
		}
		json.Unmarshal(o.Stored.Bytes(), &v)
		if m := meta(t, o.Stored); m.Generation != generation || v.Spec.Replicas != replicas || v.Status.ReadyReplicas != ready {
			t.Errorf("generation %d, %d replicas, %d ready; want %d, %d, %d", m.Generation, v.Spec.Replicas, v.Status.ReadyReplicas, generation, replicas, ready)
		}
	}
	ctx, none := context.Background(), registry.WriteOptions{}
	o, err := s.Create(ctx, target, text(1, 9, ""), none)
	check(o, err, 1, 1, 0)
	target.Name = "d"
	o, err = s.Update(ctx, target, text(2, 9, ""), none)
	check(o, err, 2, 2, 0)
	target.Subresource = "status"
	o, err = s.Update(ctx, target, text(7, 5, ""), none)
	check(o, err, 2, 2, 5)
	target.Subresource = ""
	o, err = s.Update(ctx, target, text(2, 0, ""), none)
	check(o, err, 2, 2, 5)
}

// TestContention checks that concurrent updates without a version never fail, and that none is
// lost.
func TestContention(t *testing.T) {
	s := newServer(t, store.Options{})
	s.create("configmaps", "default", configMap("a", "", "0"))
	before := s.Store.Any().Revision()
	const writers, writes = 8, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range writes {
				_, err := s.Update(context.Background(), s.target("configmaps", "default", "a"), body(configMap("a", "", fmt.Sprintf("%d-%d", w, i))), registry.WriteOptions{})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := s.Store.Any().Revision() - before; got != writers*writes {
		t.Errorf("%d updates made %d revisions", writers*writes, got)
	}
}

// TestLargeContention: requests change a large object one after the other, so that no work on it is done twice. A request
// whose client is gone leaves the line.
func TestLargeContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, store.Options{})
		s.create("configmaps", "default", configMap("a", "", strings.Repeat("x", 100_000)))
		times := atomic.Int64{}
		s.Now = func() time.Time {
			times.Add(1)
			time.Sleep(time.Second) // so that all requests are at work at once
			return time.Unix(1e9, 0)
		}
		target := s.target("configmaps", "default", "a")
		patch := func(ctx context.Context, i int) error {
			_, err := s.Patch(ctx, target, registry.Patch{Type: types.ApplyYAMLPatchType, Bytes: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k%d":"v"}}`, i)},
				registry.WriteOptions{FieldManager: fmt.Sprint("m", i)})
			return err
		}
		if err := patch(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		one := times.Swap(0)
		const writers = 20
		before := s.Store.Any().Revision()
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				if err := patch(t.Context(), i+1); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		gone, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			if err := patch(gone, writers+1); !errors.Is(err, context.Canceled) {
				t.Errorf("the request of a client that is gone: %v", err)
			}
		})
		synctest.Wait()
		cancel()
		all.Wait()
		if got := s.Store.Any().Revision() - before; got != writers {
			t.Errorf("%d patches made %d revisions", writers, got)
		}
		if got, most := times.Load(), writers*one+1; got > most { // the request of the client that is gone took it once
			t.Errorf("%d patches took the time %d times, want at most %d", writers, got, most)
		}
	})
}

func TestDelete(t *testing.T) {
	s := newServer(t, store.Options{})
	ctx := context.Background()
	o := s.create("configmaps", "default", configMap("a", "", ""))
	uid, other, stale := meta(t, o).UID, types.UID("x"), "1"
	rows := []struct {
		name    string
		target  registry.Target
		options metav1.DeleteOptions
		code    int32
		message string
	}{
		{"another uid", s.target("configmaps", "default", "a"), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}, 409, `Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition (x) does not match the UID in record (` + string(uid) + `)`},
		{"another version", s.target("configmaps", "default", "a"), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &stale}}, 409, "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ("},
		{"not there", s.target("configmaps", "default", "b"), metav1.DeleteOptions{}, 404, `configmaps "b" not found`},
		{"immortal", s.target("namespaces", "", "default"), metav1.DeleteOptions{}, 403, "this namespace may not be deleted"},
	}
	for _, row := range rows {
		_, err := s.Delete(ctx, row.target, &row.options, nil)
		if err == nil {
			t.Errorf("%s: it was deleted", row.name)
			continue
		}
		if got := statusOf(t, err); got.Code != row.code || !strings.Contains(got.Message, row.message) {
			t.Errorf("%s: %d %q, want %d %q", row.name, got.Code, got.Message, row.code, row.message)
		}
	}
	gone := s.delete("configmaps", "default", "a")
	if gone.Status == nil || gone.Status.Status != "Success" || gone.Status.Details.Kind != "configmaps" || gone.Status.Details.UID != uid {
		t.Errorf("the deletion responds with %+v", gone.Status)
	}
	svc := s.create("services", "default", `{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}`)
	if o := s.delete("services", "default", "s"); o.Stored == nil || o.Stored.Modified <= svc.Modified {
		t.Errorf("the deletion of a service responds with %+v", o)
	}
}

// TestCreateByUpdate checks that a PUT creates objects of the kinds that allow it.
func TestCreateByUpdate(t *testing.T) {
	s := newServer(t, store.Options{})
	target := registry.Target{Type: kind(t, "coordination.k8s.io", "v1", "leases"), Namespace: "default", Name: "l"}
	o, err := s.Update(context.Background(), target, body(`{"metadata":{"name":"l"},"spec":{"holderIdentity":"me"}}`), registry.WriteOptions{})
	if err != nil || !o.Created || meta(t, o.Stored).UID == "" {
		t.Fatalf("%+v, %v", o, err)
	}
	back := registry.Target{Type: target.Type, Namespace: "default", Name: "back"}
	if o, err := s.Update(context.Background(), back, body(`{"metadata":{"name":"back","resourceVersion":"5"}}`), registry.WriteOptions{}); err != nil || !o.Created {
		t.Errorf("what was deleted, written back: %v", err)
	}
	gone := registry.Target{Type: target.Type, Namespace: "default", Name: "gone"}
	_, err = s.Update(context.Background(), gone, body(`{"metadata":{"name":"gone","uid":"x"}}`), registry.WriteOptions{})
	if got := statusOf(t, err); got.Code != 409 || !strings.Contains(got.Message, "UID in precondition: x, UID in object meta: ") {
		t.Errorf("a lease of another time: %d %q", got.Code, got.Message)
	}
	_, err = s.Update(context.Background(), target, body(`{"metadata":{"name":"l"}}`), registry.WriteOptions{})
	if got := statusOf(t, err); got.Code != 422 || !strings.Contains(got.Message, "must be specified for an update") {
		t.Errorf("a lease without a version: %d %q", got.Code, got.Message)
	}
}

// TestOtherVersions checks that an object that is served at two versions is one object.
func TestOtherVersions(t *testing.T) {
	s := newServer(t, store.Options{})
	ctx := context.Background()
	v1 := registry.Target{Type: kind(t, "autoscaling", "v1", "horizontalpodautoscalers"), Namespace: "default"}
	made, err := s.Create(ctx, v1, body(`{"metadata":{"name":"h"},"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"maxReplicas":5,"targetCPUUtilizationPercentage":50}}`), registry.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(made.Stored.Bytes()), `{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2",`) || !strings.Contains(string(made.Stored.Bytes()), `"averageUtilization":50`) {
		t.Errorf("stored as %s", made.Stored.Bytes())
	}
	v2 := registry.Target{Type: kind(t, "autoscaling", "v2", "horizontalpodautoscalers"), Namespace: "default", Name: "h"}
	if o, err := s.Get(ctx, v2, ""); err != nil || o.Stored != made.Stored {
		t.Errorf("read at the other version: %v, %v", o, err)
	}
}

// TestSecretData checks that stringData is merged and not stored.
func TestSecretData(t *testing.T) {
	s := newServer(t, store.Options{})
	o := s.create("secrets", "default", `{"metadata":{"name":"s"},"data":{"a":"MQ==","b":"Mg=="},"stringData":{"b":"3"}}`)
	var got corev1.Secret
	if err := json.Unmarshal(o.Bytes(), &got); err != nil || string(got.Data["a"]) != "1" || string(got.Data["b"]) != "3" || got.StringData != nil || got.Type != "Opaque" {
		t.Errorf("%v: %s", err, o.Bytes())
	}
}
