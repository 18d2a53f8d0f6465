package registry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// applyAs applies a configuration of default/a.
func (s *server) applyAs(manager, config string, force bool) (registry.Object, error) {
	o := registry.WriteOptions{FieldManager: manager}
	if force {
		o.Force = &force
	}
	return s.Patch(context.Background(), s.target("configmaps", "default", "a"), registry.Patch{Type: types.ApplyPatchType, Bytes: []byte(config)}, o)
}

// owners formats the managed fields in the order of the entries.
func owners(m metav1.ObjectMeta) string {
	var all []string
	for _, e := range m.ManagedFields {
		name := e.Manager + " " + string(e.Operation) + " " + e.APIVersion
		if e.Subresource != "" {
			name += "/" + e.Subresource
		}
		all = append(all, name+" "+e.FieldsV1.GetRawString())
	}
	return strings.Join(all, "; ")
}

// TestApply covers server-side apply: creation, conflicts, force, and removal of fields.
func TestApply(t *testing.T) {
	s := newServer(t, store.Options{})
	const head = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":`
	o, err := s.applyAs("m1", head+`{"x":"1","y":"1"}}`, false)
	if err != nil || !o.Created {
		t.Fatalf("%v, %+v", err, o)
	}
	if got := owners(meta(t, o.Stored)); got != `m1 Apply v1 {"f:data":{"f:x":{},"f:y":{}}}` {
		t.Errorf("created: %s", got)
	}
	again, err := s.applyAs("m1", head+`{"x":"1","y":"1"}}`, false)
	if err != nil || again.Stored != o.Stored || again.Created {
		t.Errorf("applied again: %v, %+v", err, again)
	}
	_, err = s.applyAs("m2", head+`{"x":"2"}}`, false)
	if got := statusOf(t, err); got.Code != 409 || got.Message != `Apply failed with 1 conflict: conflict with "m1": .data.x` || got.Details.Causes[0].Type != "FieldManagerConflict" {
		t.Errorf("a conflict: %+v", got)
	}
	forced, err := s.applyAs("m2", head+`{"x":"2"}}`, true)
	if err != nil || owners(meta(t, forced.Stored)) != `m1 Apply v1 {"f:data":{"f:y":{}}}; m2 Apply v1 {"f:data":{"f:x":{}}}` {
		t.Errorf("forced: %v, %s", err, owners(meta(t, forced.Stored)))
	}
	less, err := s.applyAs("m1", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n", false)
	if err != nil || strings.Contains(string(less.Stored.Bytes()), `"y"`) || !strings.Contains(string(less.Stored.Bytes()), `"x":"2"`) {
		t.Errorf("no longer applied: %v, %s", err, less.Stored.Bytes())
	}
	rows := []struct {
		name, manager, config string
		options               registry.WriteOptions
		code                  int32
		message               string
	}{
		{"no manager", "", head + `{}}`, registry.WriteOptions{}, 422, "fieldManager: Required value: is required for apply patch"},
		{"another name", "m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"z"}}`, registry.WriteOptions{}, 400, "the name of the object (z) does not match the name on the URL (a)"},
		{"another kind", "m", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`, registry.WriteOptions{}, 400, "invalid object type: /v1, Kind=Secret"},
		{"managed fields", "m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","managedFields":[]}}`, registry.WriteOptions{}, 400, "metadata.managedFields must be nil"},
		{"an old version", "m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"5"}}`, registry.WriteOptions{}, 409, "the object has been modified"},
		{"another uid", "m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"5"}}`, registry.WriteOptions{}, 422, "field is immutable"},
		{"what the schema does not have", "m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"bogus":1}`, registry.WriteOptions{}, 400, ".bogus: field not declared in schema"},
		{"no YAML", "m", `a: b: c`, registry.WriteOptions{}, 400, "error encoding patch: yaml: mapping values are not allowed in this context"},
		{"a number that JSON lacks", "m", `a: .inf`, registry.WriteOptions{}, 400, "error encoding patch: json: unsupported value: +Inf"},
		{"one in braces", "m", " {a: .inf}", registry.WriteOptions{}, 400, "error decoding patch: error converting YAML to JSON: json: unsupported value: +Inf"},
		{"no JSON", "m", `{"a":[}`, registry.WriteOptions{}, 400, "error decoding patch: error converting YAML to JSON: yaml: did not find expected node content"},
		{"an array", "m", `[]`, registry.WriteOptions{}, 400, "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}"},
		{"aliases", "m", "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f]\n", registry.WriteOptions{}, 400, "aliasing"},
		{"too deep", "m", `{"a":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, registry.WriteOptions{}, 400, "nests deeper"},
		{"a key twice, strictly", "m", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: \"2\"\n  x: \"2\"\n", registry.WriteOptions{FieldValidation: "Strict"}, 400, "error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  line 7: key \"x\" already set in map"},
	}
	for _, row := range rows {
		row.options.FieldManager = row.manager
		_, err := s.Patch(context.Background(), s.target("configmaps", "default", "a"), registry.Patch{Type: types.ApplyPatchType, Bytes: []byte(row.config)}, row.options)
		if err == nil {
			t.Errorf("%s: it worked", row.name)
		} else if got := statusOf(t, err); got.Code != row.code || !strings.Contains(got.Message, row.message) {
			t.Errorf("%s: %d %q, want %d %q", row.name, got.Code, got.Message, row.code, row.message)
		}
	}
	twice, err := s.applyAs("m2", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: \"1\"\n  x: \"3\"\n", false)
	if err != nil || len(twice.Warnings) != 1 || twice.Warnings[0] != `line 7: key "x" already set in map` || !strings.Contains(string(twice.Stored.Bytes()), `"x":"3"`) {
		t.Errorf("a key twice: %v, %q", err, twice.Warnings)
	}
}

// TestManagedFields checks that every verb tracks the owners of fields.
func TestManagedFields(t *testing.T) {
	s := newServer(t, store.Options{})
	ctx := context.Background()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s.Now = func() time.Time { return now }
	as := func(agent string) registry.WriteOptions { return registry.WriteOptions{UserAgent: agent} }
	const defaulted = `"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:nodeName":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{},"f:tolerations":{}}}`
	steps := []struct {
		name string
		do   func() (registry.Object, error)
		want string
	}{
		{"create", func() (registry.Object, error) {
			return s.Create(ctx, s.target("pods", "default", ""), body(`{"metadata":{"name":"p"},"spec":{"nodeName":"n","tolerations":[{"operator":"Exists"}],"containers":[{"name":"c","image":"i"}]}}`), as("curl/8.1 (x)"))
		}, `curl Update v1 {"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},` + defaulted},
		{"update by another", func() (registry.Object, error) {
			return s.Update(ctx, s.target("pods", "default", "p"), body(`{"metadata":{"name":"p","labels":{"a":"b"}},"spec":{"nodeName":"n","tolerations":[{"operator":"Exists"}],"containers":[{"name":"c","image":"i2"}]},"status":{"podIP":"1.2.3.4"}}`), as("kubectl/v1"))
		}, `curl Update v1 {"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},` + defaulted + `; ` +
			`kubectl Update v1 {"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{"f:image":{}}}}}`},
		{"update by the same", func() (registry.Object, error) {
			now = now.Add(time.Hour)
			o, err := s.Patch(ctx, s.target("pods", "default", "p"), registry.Patch{Type: types.MergePatchType, Bytes: []byte(`{"metadata":{"labels":{"a":"c"}}}`)}, as("kubectl/v1"))
			if err == nil && !meta(t, o.Stored).ManagedFields[1].Time.Time.Equal(now) {
				t.Errorf("the time of the last change is %v, want %v", meta(t, o.Stored).ManagedFields[1].Time, now)
			}
			return o, err
		}, `kubectl Update v1 {"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{"f:image":{}}}}}`},
		{"the same again", func() (registry.Object, error) {
			now = now.Add(time.Hour)
			return s.Patch(ctx, s.target("pods", "default", "p"), registry.Patch{Type: types.MergePatchType, Bytes: []byte(`{"metadata":{"labels":{"a":"c"}}}`)}, as("somebody"))
		}, "same"},
		{"status", func() (registry.Object, error) {
			target := s.target("pods", "default", "p")
			target.Subresource = "status"
			return s.Patch(ctx, target, registry.Patch{Type: types.MergePatchType, Bytes: []byte(`{"status":{"podIP":"1.2.3.4"},"metadata":{"managedFields":[]}}`)}, as("kubelet"))
		}, `kubelet Update v1/status {"f:status":{"f:podIP":{}`},
		{"reset", func() (registry.Object, error) {
			return s.Patch(ctx, s.target("pods", "default", "p"), registry.Patch{Type: types.MergePatchType, Bytes: []byte(`{"metadata":{"managedFields":[{}]}}`)}, as("x"))
		}, ""},
		{"nothing is tracked after that", func() (registry.Object, error) {
			return s.Patch(ctx, s.target("pods", "default", "p"), registry.Patch{Type: types.MergePatchType, Bytes: []byte(`{"metadata":{"labels":{"a":"d"}}}`)}, as("x"))
		}, ""},
	}
	var before *store.Object
	for _, step := range steps {
		o, err := step.do()
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		got := owners(meta(t, o.Stored))
		switch {
		case step.want == "same" && o.Stored != before:
			t.Errorf("%s: it wrote %s", step.name, o.Stored.Bytes())
		case step.want == "" && got != "", step.want != "same" && !strings.Contains(got, step.want):
			t.Errorf("%s: %s\nwant %s", step.name, got, step.want)
		}
		before = o.Stored
	}
}

// TestManagedVersions checks that owners are tracked across the versions of a kind, each in the
// version that it wrote.
func TestManagedVersions(t *testing.T) {
	s := newServer(t, store.Options{})
	ctx := context.Background()
	v1 := registry.Target{Type: kind(t, "autoscaling", "v1", "horizontalpodautoscalers"), Namespace: "default"}
	o, err := s.Create(ctx, v1, body(`{"metadata":{"name":"h"},"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"maxReplicas":5,"targetCPUUtilizationPercentage":50}}`), registry.WriteOptions{FieldManager: "one"})
	if err != nil {
		t.Fatal(err)
	}
	const first = `one Update autoscaling/v1 {"f:spec":{"f:maxReplicas":{},"f:minReplicas":{},"f:scaleTargetRef":{},"f:targetCPUUtilizationPercentage":{}}}`
	if got := owners(meta(t, o.Stored)); got != first {
		t.Errorf("created: %s, want %s", got, first)
	}
	v2 := registry.Target{Type: kind(t, "autoscaling", "v2", "horizontalpodautoscalers"), Namespace: "default", Name: "h"}
	o, err = s.Patch(ctx, v2, registry.Patch{Type: types.MergePatchType, Bytes: []byte(`{"spec":{"maxReplicas":6}}`)}, registry.WriteOptions{FieldManager: "two"})
	if err != nil {
		t.Fatal(err)
	}
	const second = `one Update autoscaling/v1 {"f:spec":{"f:minReplicas":{},"f:scaleTargetRef":{},"f:targetCPUUtilizationPercentage":{}}}; two Update autoscaling/v2 {"f:spec":{"f:maxReplicas":{}}}`
	if got := owners(meta(t, o.Stored)); got != second {
		t.Errorf("changed: %s, want %s", got, second)
	}
}

// TestServerSets checks that no manager owns the fields that the server sets in a new object.
func TestServerSets(t *testing.T) {
	s := newServer(t, store.Options{})
	o, err := s.Create(context.Background(), s.target("namespaces", "", ""), body(`{"metadata":{"name":"n"}}`), registry.WriteOptions{FieldManager: "m"})
	if err != nil {
		t.Fatal(err)
	}
	const want = `m Update v1 {"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/metadata.name":{}}}}`
	if got := owners(meta(t, o.Stored)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestAllowCreate checks that a PUT or an apply that creates an object needs the create permission.
func TestAllowCreate(t *testing.T) {
	s := newServer(t, store.Options{})
	ctx := context.Background()
	asked := 0
	o := registry.WriteOptions{FieldManager: "m", Allow: func(verb string) error {
		asked++
		return fmt.Errorf("may not %s", verb)
	}}
	lease := registry.Target{Type: kind(t, "coordination.k8s.io", "v1", "leases"), Namespace: "default", Name: "l"}
	if _, err := s.Update(ctx, lease, body(`{"metadata":{"name":"l"}}`), o); err == nil || err.Error() != "may not create" {
		t.Errorf("an update: %v", err)
	}
	_, err := s.Patch(ctx, s.target("configmaps", "default", "a"), registry.Patch{Type: types.ApplyPatchType, Bytes: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)}, o)
	if err == nil || err.Error() != "may not create" {
		t.Errorf("an apply: %v", err)
	}
	s.create("configmaps", "default", `{"metadata":{"name":"a"}}`)
	if _, err := s.applyAs("m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"b"}}`, false); err != nil || asked != 2 {
		t.Errorf("an apply that changes: %v, asked %d times", err, asked)
	}
}

// TestAdmission checks that plugins see each write once, as it will be stored, with the stored
// object, and that a refused write is not stored.
func TestAdmission(t *testing.T) {
	s := newServer(t, store.Options{})
	ctx := context.Background()
	var seen []string
	s.Plugins = append(s.Plugins, registry.Plugin{Validate: func(_ context.Context, a *registry.Attributes) error {
		text := strings.ToLower(string(a.Operation))
		if a.Subresource != "" {
			text += "/" + a.Subresource
		}
		if a.Object != nil {
			text += " new:" + a.Object.(metav1.Object).GetName()
		}
		if a.Old != nil {
			text += " old:" + a.Old.(metav1.Object).GetName()
		}
		if a.DryRun {
			text += " dry"
		}
		seen = append(seen, text)
		a.Warn("seen")
		if a.Object != nil && a.Object.(metav1.Object).GetLabels()["bad"] != "" {
			return fmt.Errorf("refused")
		}
		return nil
	}})
	status := s.target("pods", "default", "a")
	status.Subresource = "status"
	dry := registry.WriteOptions{DryRun: []string{"All"}}
	merge := func(text string) registry.Patch {
		return registry.Patch{Type: types.MergePatchType, Bytes: []byte(text)}
	}
	s.create("pods", "default", `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	_, err := s.Patch(ctx, s.target("pods", "default", "a"), merge(`{"metadata":{"labels":{"bad":"x"}}}`), registry.WriteOptions{})
	if err == nil || strings.Contains(string(s.Store.Any().Get("pods", "default/a").Bytes()), `"bad"`) {
		t.Errorf("what was refused: %v", err)
	}
	if _, err := s.Patch(ctx, status, merge(`{"status":{"podIP":"1.1.1.1"}}`), dry); err != nil {
		t.Error(err)
	}
	if o, err := s.Delete(ctx, s.target("pods", "default", "a"), nil, nil); err != nil || len(o.Warnings) != 1 {
		t.Errorf("%v, %q", err, o.Warnings)
	}
	want := "create new:a; update new:a old:a; update/status new:a old:a dry; delete old:a"
	if got := strings.Join(seen, "; "); got != want {
		t.Errorf("admission saw %s, want %s", got, want)
	}
}

// TestLostCreation checks that an update or an apply that finds no object changes one that another
// client creates meanwhile.
func TestLostCreation(t *testing.T) {
	s := newServer(t, store.Options{})
	ctx := context.Background()
	lease := registry.Target{Type: kind(t, "coordination.k8s.io", "v1", "leases"), Namespace: "default", Name: "l"}
	raced := false
	s.Plugins = append(s.Plugins, registry.Plugin{Validate: func(_ context.Context, a *registry.Attributes) error {
		if raced || a.Operation != "CREATE" {
			return nil
		}
		raced = true
		if a.Type.Resource == "configmaps" {
			s.create("configmaps", "default", `{"metadata":{"name":"a"}}`)
			return nil
		}
		_, err := s.Create(ctx, registry.Target{Type: lease.Type, Namespace: "default"}, body(`{"metadata":{"name":"l"}}`), registry.WriteOptions{})
		return err
	}})
	o, err := s.applyAs("m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`, false)
	if err != nil || o.Created {
		t.Errorf("an apply: created %v, %v", o.Created, err)
	}
	raced = false
	o, err = s.Update(ctx, lease, body(`{"metadata":{"name":"l"}}`), registry.WriteOptions{})
	if err == nil || o.Created || statusOf(t, err).Code != 422 { // leases want a version
		t.Errorf("an update: created %v, %v", o.Created, err)
	}
}

// TestAdmissionOfNothing checks that plugins see an apply that changes nothing.
func TestAdmissionOfNothing(t *testing.T) {
	s := newServer(t, store.Options{})
	const config = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`
	first, err := s.applyAs("m", config, false)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	s.Plugins = append(s.Plugins, registry.Plugin{Validate: func(context.Context, *registry.Attributes) error {
		asked++
		return nil
	}})
	for i := range 3 {
		if o, err := s.applyAs("m", config, false); err != nil || o.Stored != first.Stored || asked != i+1 {
			t.Errorf("apply %d: %v, asked %d times", i, err, asked)
		}
	}
}

// TestApplyOfDefaults checks that an apply changes nothing, at any time, if it leaves out a part of
// an atomic value that the server sets by default.
func TestApplyOfDefaults(t *testing.T) {
	s := newServer(t, store.Options{})
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s.Now = func() time.Time { return now }
	const config = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[` +
		`{"name":"c","image":"i","env":[{"name":"N","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]}]}}}}`
	target := registry.Target{Type: kind(t, "apps", "v1", "deployments"), Namespace: "default", Name: "d"}
	apply := func() registry.Object {
		t.Helper()
		o, err := s.Patch(context.Background(), target, registry.Patch{Type: types.ApplyPatchType, Bytes: []byte(config)}, registry.WriteOptions{FieldManager: "m"})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	first := apply()
	now = now.Add(time.Minute)
	if again := apply(); again.Stored != first.Stored {
		t.Errorf("an apply of what is there made %s\nof %s", again.Stored.Bytes(), first.Stored.Bytes())
	}
}
