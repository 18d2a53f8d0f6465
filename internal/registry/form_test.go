package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	admissionv1 "k8s.io/api/admission/v1"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// viewer records the views of webhooks, and replaces text in the object of the mutating phase.
type viewer struct {
	seen     []string
	from, to string
	form     int // of Forms
}

func (v *viewer) plugin() registry.Plugin {
	view := func(ctx context.Context, phase string, a *registry.Attributes) (*registry.Versioned, error) {
		seen, err := a.In(ctx, a.Forms()[v.form])
		if err != nil {
			return nil, err
		}
		object, old, err := seen.JSON()
		if err != nil {
			return nil, err
		}
		v.seen = append(v.seen, fmt.Sprintf("%s %s %q %s | %s", phase, a.Operation, a.ShownName(), object, old))
		return seen, nil
	}
	return registry.Plugin{
		Replaces: true,
		Mutate: func(ctx context.Context, a *registry.Attributes) error {
			seen, err := view(ctx, "mutate", a)
			if err != nil || v.from == "" || seen.Object == nil {
				return err
			}
			object, _, _ := seen.JSON()
			if !strings.Contains(string(object), v.from) {
				return fmt.Errorf("%s is not in %s", v.from, object)
			}
			return a.Replace(ctx, seen.Form, []byte(strings.Replace(string(object), v.from, v.to, 1)))
		},
		Validate: func(ctx context.Context, a *registry.Attributes) error {
			_, err := view(ctx, "validate", a)
			return err
		},
	}
}

// take returns the records since the last call.
func (v *viewer) take() []string { defer func() { v.seen = nil }(); return v.seen }

// contains checks that each text contains, in this order, the parts of want that " ... " separates.
// A part after "!" must not occur.
func contains(t *testing.T, seen []string, want ...string) {
	t.Helper()
	if len(seen) != len(want) {
		t.Fatalf("%d calls, want %d: %s", len(seen), len(want), strings.Join(seen, "\n"))
	}
	for i, w := range want {
		rest := seen[i]
		for part := range strings.SplitSeq(w, " ... ") {
			if absent, ok := strings.CutPrefix(part, "!"); ok {
				if strings.Contains(seen[i], absent) {
					t.Errorf("%s\nhas %s", seen[i], absent)
				}
				continue
			}
			at := strings.Index(rest, part)
			if at < 0 {
				t.Fatalf("%s\nlacks %s", seen[i], part)
			}
			rest = rest[at+len(part):]
		}
	}
}

const podBody = `{"metadata":{"name":"p","labels":{"a":"1"}},"spec":{"containers":[{"name":"c","image":"i"}]},"status":{"phase":"Running"}}`

// TestCreateShown checks the view of plugins of a create: in the mutating phase the object as the
// client sent it, with its managed fields; in the validating phase the completed one.
func TestCreateShown(t *testing.T) {
	s, v := newServer(t, store.Options{}), &viewer{}
	s.Plugins = []registry.Plugin{v.plugin()}
	s.GenerateName = func(base string) string { return base + "made" }
	sent := strings.Replace(podBody, `"name":"p"`, `"generateName":"p-","uid":"mine"`, 1)
	if _, err := s.Create(t.Context(), s.target("pods", "default", ""), body(sent), registry.WriteOptions{FieldManager: "m"}); err != nil {
		t.Fatal(err)
	}
	contains(t, v.take(),
		`mutate CREATE "" {"kind":"Pod","apiVersion":"v1","metadata":{"generateName":"p-","namespace":"default","labels":{"a":"1"},"managedFields":[{"manager":"m" ... `+
			`"f:labels" ... "terminationMessagePath" ... "status":{"phase":"Running"} ...  |  ... !"uid" ... !creationTimestamp ... !"name":"p-`,
		`validate CREATE "p-made" {"kind":"Pod","apiVersion":"v1","metadata":{"name":"p-made","generateName":"p-","namespace":"default","uid":" ... "generation":1 ... creationTimestamp ... "managedFields":[{"manager":"m" ... "phase":"Pending"`)
}

// TestReplacedObjects checks that a request keeps the object after the last change only, not those
// in between.
func TestReplacedObjects(t *testing.T) {
	s := newServer(t, store.Options{})
	var seen []weak.Pointer[registry.Versioned]
	s.Plugins = []registry.Plugin{{Mutate: func(ctx context.Context, a *registry.Attributes) error {
		for i := range 20 {
			v, err := a.In(ctx, a.Forms()[0])
			if err != nil {
				return err
			}
			seen = append(seen, weak.Make(v))
			object, _, err := v.JSON()
			if err != nil {
				return err
			}
			if err := a.Replace(ctx, v.Form, []byte(strings.Replace(string(object), fmt.Sprintf(`"%d"`, i), fmt.Sprintf(`"%d"`, i+1), 1))); err != nil {
				return err
			}
		}
		runtime.GC()
		kept := 0
		for _, p := range seen {
			if p.Value() != nil {
				kept++
			}
		}
		if kept > 3 {
			t.Errorf("%d of %d objects are kept", kept, len(seen))
		}
		return nil
	}}}
	made, err := s.Create(t.Context(), s.target("configmaps", "default", ""), body(`{"metadata":{"name":"c"},"data":{"k":"0"}}`), registry.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	contains(t, []string{string(made.Stored.Bytes())}, `"k":"20"`)
}

// TestReplaceCreate checks that an object that a plugin replaced gets defaults and is validated,
// that no manager owns the change, and that the plugin may name the object.
func TestReplaceCreate(t *testing.T) {
	s, v := newServer(t, store.Options{}), &viewer{}
	s.Plugins = []registry.Plugin{v.plugin()}
	create := func(from, to string) (registry.Object, error) {
		v.from, v.to = from, to
		return s.Create(t.Context(), s.target("pods", "default", ""), body(podBody), registry.WriteOptions{FieldManager: "m"})
	}
	made, err := create(`"containers":[`, `"containers":[{"name":"sidecar","image":"s"},`)
	if err != nil {
		t.Fatal(err)
	}
	text := string(made.Stored.Bytes())
	contains(t, []string{text}, `{"name":"sidecar","image":"s","resources":{},"terminationMessagePath":"/dev/termination-log" ... !sidecar\" ... "phase":"Pending"`)
	contains(t, v.take(), `mutate`, `validate ... "sidecar"`)
	if made, err = create(`"name":"p"`, `"name":"other"`); err != nil || made.Stored.Key != "default/other" {
		t.Errorf("renamed: %v %v", made.Stored, err)
	}
	contains(t, v.take(), `mutate CREATE "p"`, `validate CREATE "p" ... "name":"other"`)
	if made, err = create(`"namespace":"default"`, `"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"u"},{"apiVersion":"v1","kind":"Pod","name":"x","uid":"u"}]`); err == nil {
		t.Error("created twice")
	}
	if len(made.Warnings) == 0 || !strings.Contains(made.Warnings[0], "after mutating admission happens") {
		t.Errorf("the warnings are %q", made.Warnings)
	}
	for _, c := range [][3]string{
		{`"apiVersion":"v1"`, `"apiVersion":"v7"`, `Internal error occurred: no kind "Pod" is registered for version "v7" in scheme "pkg/runtime/scheme.go:111"`},
		{`"image":"i",`, ``, `Pod "p" is invalid: spec.containers[0].image: Required value`},
		{`"namespace":"default"`, `"namespace":"elsewhere"`, `the namespace of the provided object does not match the namespace sent on the request`},
		{`"namespace":"default"`, `"resourceVersion":"7"`, `resourceVersion should not be set on objects to be created`},
		{`"containers":[`, `"containers":[1,`, `Internal error occurred: `},
	} {
		if _, err := create(c[0], c[1]); err == nil || !strings.HasPrefix(err.Error(), c[2]) {
			t.Errorf("%s -> %s: %v, want %s", c[0], c[1], err, c[2])
		}
	}
}

// TestUpdateShown checks that the mutating phase has the object that the client sent, and the
// validating phase the one that is stored.
func TestUpdateShown(t *testing.T) {
	s, v := newServer(t, store.Options{}), &viewer{}
	if _, err := s.Create(t.Context(), s.target("pods", "default", ""), body(podBody), registry.WriteOptions{FieldManager: "m"}); err != nil {
		t.Fatal(err)
	}
	s.Plugins = []registry.Plugin{v.plugin()}
	at := s.target("pods", "default", "p")
	change := strings.NewReplacer(`"a":"1"`, `"a":"2"`, "Running", "Failed").Replace(podBody)
	if _, err := s.Update(t.Context(), at, body(change), registry.WriteOptions{FieldManager: "n"}); err != nil {
		t.Fatal(err)
	}
	contains(t, v.take(),
		`mutate UPDATE "p" {"kind":"Pod" ... "labels":{"a":"2"},"managedFields":[ ... "manager":"n" ... "status":{"phase":"Failed"} ...  | {"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"default","uid" ... "resourceVersion" ... "a":"1" ... "managedFields":[{"manager":"m" ... Pending`,
		`validate UPDATE "p" {"kind":"Pod" ... "uid" ... "resourceVersion" ... "a":"2" ... "manager":"n" ... Pending ...  | {"kind":"Pod" ... Pending ... !Failed`)
	for _, c := range [][3]string{
		{`"namespace":"default"`, `"namespace":"elsewhere"`, `the namespace of the provided object does not match the namespace sent on the request`},
		{`"namespace":"default"`, `"resourceVersion":"7"`, `Operation cannot be fulfilled on pods "p": the object has been modified; please apply your changes to the latest version and try again`},
		{`"name":"p"`, `"name":"q"`, `Pod "q" is invalid: metadata.name: Invalid value: "q": field is immutable`},
		{`"namespace":"default"`, `"uid":"mine"`, `Pod "p" is invalid: metadata.uid: Invalid value: "mine": field is immutable`},
	} {
		v.from, v.to = c[0], c[1]
		if _, err := s.Update(t.Context(), at, body(change), registry.WriteOptions{}); err == nil || !strings.HasPrefix(err.Error(), c[2]) {
			t.Errorf("%s -> %s: %v, want %s", c[0], c[1], err, c[2])
		}
	}
	v.take()
	at.Subresource = "status"
	v.from, v.to = `Failed`, `Succeeded`
	made, err := s.Update(t.Context(), at, body(strings.Replace(change, `"image":"i"`, `"image":"no"`, 1)), registry.WriteOptions{FieldManager: "n"})
	if err != nil {
		t.Fatal(err)
	}
	contains(t, v.take(),
		`mutate UPDATE "p" {"kind":"Pod" ... "image":"no" ... Failed ...  | `,
		`validate UPDATE "p" {"kind":"Pod" ... "image":"i" ... Succeeded ...  | `)
	if !strings.Contains(string(made.Stored.Bytes()), `"phase":"Succeeded"`) {
		t.Errorf("stored %s", made.Stored.Bytes())
	}
}

// TestScaleShown checks the scale subresource: plugins see and change a Scale.
func TestScaleShown(t *testing.T) {
	s, v := newServer(t, store.Options{}), &viewer{from: `"replicas":2`, to: `"replicas":3`}
	deployment := `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"1"}},"template":{"metadata":{"labels":{"a":"1"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	target := registry.Target{Type: kind(t, "apps", "v1", "deployments"), Namespace: "default"}
	if _, err := s.Create(t.Context(), target, body(deployment), registry.WriteOptions{FieldManager: "m"}); err != nil {
		t.Fatal(err)
	}
	s.Plugins = []registry.Plugin{v.plugin()}
	target.Name, target.Subresource = "d", "scale"
	sent := `{"metadata":{"name":"d","labels":{"z":"1"}},"spec":{"replicas":2},"status":{"replicas":7}}`
	made, err := s.Update(t.Context(), target, body(sent), registry.WriteOptions{FieldManager: "n"})
	if err != nil {
		t.Fatal(err)
	}
	contains(t, v.take(),
		`mutate UPDATE "d" {"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"d","namespace":"default","labels":{"z":"1"},"managedFields":[ ... "spec":{"replicas":2},"status":{"replicas":7}} | {"kind":"Scale" ... "resourceVersion" ... "spec":{"replicas":1},"status":{"replicas":0,"selector":"a=1"}}`,
		`validate UPDATE "d" {"kind":"Scale" ... "uid" ... "spec":{"replicas":3},"status":{"replicas":0,"selector":"a=1"}} | {"kind":"Scale" ... !managedFields`)
	if !strings.Contains(string(made.Stored.Bytes()), `"replicas":3`) {
		t.Errorf("stored %s", made.Stored.Bytes())
	}
	patch := registry.Patch{Type: types.ApplyYAMLPatchType, Bytes: []byte(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d"},"spec":{"replicas":2}}`)}
	force := true
	made, err = s.Patch(t.Context(), target, patch, registry.WriteOptions{FieldManager: "a", Force: &force})
	if err != nil || !strings.Contains(string(made.Stored.Bytes()), `"replicas":3`) {
		t.Errorf("applied: %v %v", made.Stored, err)
	}
	contains(t, v.take(), `mutate ... "replicas":2`, `validate ... "replicas":3`)
}

// TestReplaceApply checks that no manager owns the fields that a plugin adds to an applied
// configuration.
func TestReplaceApply(t *testing.T) {
	s, v := newServer(t, store.Options{}), &viewer{from: `"data":{`, to: `"data":{"added":"1",`}
	s.Plugins = []registry.Plugin{v.plugin()}
	at := s.target("configmaps", "default", "a")
	for i, value := range []string{"1", "2"} {
		patch := registry.Patch{Type: types.ApplyYAMLPatchType, Bytes: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":%q}}`, value)}
		made, err := s.Patch(t.Context(), at, patch, registry.WriteOptions{FieldManager: "m"})
		if err != nil {
			t.Fatal(err)
		}
		contains(t, []string{string(made.Stored.Bytes())}, `"f:data":{"f:a":{}} ... "data":{"a":"`+value+`","added":"1"}`)
		operation := []string{"CREATE", "UPDATE"}[i]
		contains(t, v.take(), `mutate `+operation+` "a" ... "operation":"Apply"`, `validate `+operation+` "a" ... "added"`)
	}
}

// TestReplaceManagedFields checks that plugins may change managed fields, and that an invalid change
// is dropped with a warning.
func TestReplaceManagedFields(t *testing.T) {
	s, v := newServer(t, store.Options{}), &viewer{from: `"manager":"m"`, to: `"manager":"plugin"`}
	s.Plugins = []registry.Plugin{v.plugin()}
	create := func(name string) registry.Object {
		t.Helper()
		made, err := s.Create(t.Context(), s.target("configmaps", "default", ""), body(`{"metadata":{"name":"`+name+`"},"data":{"a":"1"}}`), registry.WriteOptions{FieldManager: "m"})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	contains(t, []string{string(create("a").Stored.Bytes())}, `"manager":"plugin"`)
	v.from, v.to = `"operation":"Update"`, `"operation":"Nothing"`
	made := create("b")
	contains(t, []string{string(made.Stored.Bytes())}, `"operation":"Update"`)
	want := ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: operation must be `Apply` or `Update`"
	if !slices.Equal(made.Warnings, []string{want}) {
		t.Errorf("the warnings are %q", made.Warnings)
	}
}

// TestForms checks the equivalent forms of built-in kinds.
func TestForms(t *testing.T) {
	for _, c := range []struct{ group, version, resource, subresource, want string }{
		{"", "v1", "configmaps", "", "/v1 configmaps ConfigMap"},
		{"apps", "v1", "deployments", "scale", "apps/v1 deployments Scale"},
		{"", "v1", "pods", "exec", "/v1 pods PodExecOptions"},
		{"", "v1", "pods", "eviction", "/v1 pods Eviction"},
		{"autoscaling", "v2", "horizontalpodautoscalers", "status", "autoscaling/v2 horizontalpodautoscalers HorizontalPodAutoscaler, autoscaling/v1 horizontalpodautoscalers HorizontalPodAutoscaler"},
		{"", "v1", "events", "", "/v1 events Event, events.k8s.io/v1 events Event"},
	} {
		target := registry.Target{Type: kind(t, c.group, c.version, c.resource), Namespace: "default", Subresource: c.subresource}
		var all []string
		for _, f := range target.Forms() {
			all = append(all, f.Resource.Group+"/"+f.Resource.Version+" "+f.Resource.Resource+" "+f.Kind.Kind)
		}
		if got := strings.Join(all, ", "); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.resource, c.subresource, got, c.want)
		}
	}
}

// TestOtherForm checks that a plugin sees and changes a request in another version.
func TestOtherForm(t *testing.T) {
	s, v := newServer(t, store.Options{}), &viewer{form: 1, from: `"maxReplicas":5`, to: `"maxReplicas":6`}
	s.Plugins = []registry.Plugin{v.plugin()}
	sent := `{"metadata":{"name":"a"},"spec":{"maxReplicas":5,"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"}}}`
	made, err := s.Create(t.Context(), registry.Target{Type: kind(t, "autoscaling", "v2", "horizontalpodautoscalers"), Namespace: "default"}, body(sent), registry.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	contains(t, v.take(), `mutate CREATE "a" {"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1" ... targetCPUUtilizationPercentage`, `validate CREATE "a" {"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1" ... "maxReplicas":6`)
	contains(t, []string{string(made.Stored.Bytes())}, `"apiVersion":"autoscaling/v2" ... "maxReplicas":6`)
}

// TestReinvoke checks that the mutating plugins run once more, with the state that they kept.
func TestReinvoke(t *testing.T) {
	s := newServer(t, store.Options{})
	var calls []string
	type key struct{}
	plugin := func(name string) registry.Plugin {
		return registry.Plugin{Mutate: func(_ context.Context, a *registry.Attributes) error {
			n := a.Local(key{}, func() any { return new(int) }).(*int)
			*n++
			calls = append(calls, fmt.Sprintf("%s %d %v", name, *n, a.Reinvoking))
			a.Reinvoke()
			return nil
		}}
	}
	s.Plugins = []registry.Plugin{plugin("a"), plugin("b")}
	if _, err := s.Create(t.Context(), s.target("configmaps", "default", ""), body(`{"metadata":{"name":"a"}}`), registry.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(calls, ", "); got != "a 1 false, b 2 false, a 3 true, b 4 true" {
		t.Errorf("calls: %s", got)
	}
}

// TestDeleteShown checks deletions: there is no object, and a deletecollection shows no names.
func TestDeleteShown(t *testing.T) {
	s, v := newServer(t, store.Options{}), &viewer{}
	for _, name := range []string{"a", "b"} {
		if _, err := s.Create(t.Context(), s.target("configmaps", "default", ""), body(`{"metadata":{"name":"`+name+`"}}`), registry.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.Plugins = []registry.Plugin{v.plugin(), {Mutate: func(ctx context.Context, a *registry.Attributes) error {
		if a.Operation == admissionv1.Delete && a.Replace(ctx, a.Forms()[0], []byte(`{}`)) == nil {
			return errors.New("a deletion was changed")
		}
		return nil
	}}}
	if _, err := s.Delete(t.Context(), s.target("configmaps", "default", "a"), nil, nil); err != nil {
		t.Fatal(err)
	}
	contains(t, v.take(), `mutate DELETE "a"  | {"kind":"ConfigMap" ... "name":"a"`, `validate DELETE "a"  | {"kind":"ConfigMap"`)
	if _, err := s.DeleteCollection(t.Context(), s.target("configmaps", "default", ""), &metav1.DeleteOptions{}, &metainternal.ListOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	contains(t, v.take(), `mutate DELETE ""  | {"kind":"ConfigMap" ... "name":"b"`, `validate DELETE ""  | {"kind":"ConfigMap"`)
}

// TestTrees checks that the trees of a form agree with its JSON.
func TestTrees(t *testing.T) {
	s := newServer(t, store.Options{})
	s.Plugins = []registry.Plugin{{Validate: func(ctx context.Context, a *registry.Attributes) error {
		v, err := a.In(ctx, a.Forms()[0])
		if err != nil {
			return err
		}
		object, old, err := v.Trees()
		if err != nil || old != nil {
			return fmt.Errorf("%v %v", old, err)
		}
		tree, _ := json.Marshal(object)
		text, _, _ := v.JSON()
		var again any
		if err := json.Unmarshal(text, &again); err != nil {
			return err
		}
		if text, _ = json.Marshal(again); string(text) != string(tree) {
			t.Errorf("%s\nand %s", text, tree)
		}
		return nil
	}}}
	if _, err := s.Create(t.Context(), s.target("pods", "default", ""), body(podBody), registry.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
}
