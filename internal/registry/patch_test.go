package registry_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestPatch covers the three kinds of patches, strict field validation, and the fields that a patch
// must not change.
func TestPatch(t *testing.T) {
	s := newServer(t, store.Options{})
	ctx := context.Background()
	first := s.create("configmaps", "default", configMap("a", "x", "1"))
	target := s.target("configmaps", "default", "a")
	uid := meta(t, first).UID
	rows := []struct {
		name    string
		kind    types.PatchType
		patch   string
		options registry.WriteOptions
		code    int32  // zero: it works
		want    string // what the object holds, or the message of the error
		warning string
	}{
		{"merge", types.MergePatchType, `{"data":{"w":"2"}}`, registry.WriteOptions{}, 0, `"data":{"v":"1","w":"2"}`, ""},
		{"json", types.JSONPatchType, `[{"op":"remove","path":"/data/w"}]`, registry.WriteOptions{}, 0, `"data":{"v":"1"}`, ""},
		{"strategic", types.StrategicMergePatchType, `{"metadata":{"finalizers":["a.b/c"]}}`, registry.WriteOptions{}, 0, `"finalizers":["a.b/c"]`, ""},
		{"no options of apply", types.MergePatchType, `{}`, registry.WriteOptions{Force: new(bool)}, 422, "force: Forbidden: may not be specified for non-apply patch", ""},
		{"the current version", types.MergePatchType, `{"metadata":{"resourceVersion":"CURRENT"}}`, registry.WriteOptions{}, 0, "", ""},
		{"an old version", types.MergePatchType, fmt.Sprintf(`{"metadata":{"resourceVersion":"%d"}}`, first.Modified), registry.WriteOptions{}, 409, "the object has been modified", ""},
		{"a malformed version", types.MergePatchType, `{"metadata":{"resourceVersion":"x"}}`, registry.WriteOptions{}, 400, "not a decimal number", ""},
		{"another name", types.MergePatchType, `{"metadata":{"name":"b"}}`, registry.WriteOptions{}, 400, "the name of the object (b) does not match the name on the URL (a)", ""},
		{"another namespace", types.MergePatchType, `{"metadata":{"namespace":"b"}}`, registry.WriteOptions{}, 400, "does not match the namespace sent on the request", ""},
		{"another uid", types.MergePatchType, `{"metadata":{"uid":"b"}}`, registry.WriteOptions{}, 422, `metadata.uid: Invalid value: "b": field is immutable`, ""},
		{"the same uid", types.MergePatchType, `{"metadata":{"uid":"` + string(uid) + `"}}`, registry.WriteOptions{}, 0, "", ""},
		{"another kind", types.MergePatchType, `{"kind":"Secret"}`, registry.WriteOptions{}, 422, "patch: Invalid value", ""},
		{"a wrong type", types.MergePatchType, `{"data":"x"}`, registry.WriteOptions{}, 422, "json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string", ""},
		{"an invalid label", types.JSONPatchType, `[{"op":"add","path":"/metadata/labels","value":{"a b":"c"}}]`, registry.WriteOptions{}, 422, "metadata.labels: Invalid value", ""},
		{"an unknown field", types.MergePatchType, `{"x":1}`, registry.WriteOptions{}, 0, `"v":"1"`, `unknown field "x"`},
		{"an unknown field, ignored", types.MergePatchType, `{"x":1}`, registry.WriteOptions{FieldValidation: "Ignore"}, 0, `"v":"1"`, ""},
		{"an unknown field, strictly", types.MergePatchType, `{"x":1}`, registry.WriteOptions{FieldValidation: "Strict"}, 400, `ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "x"`, ""},
		{"a dry-run", types.MergePatchType, `{"data":{"v":"dry"}}`, registry.WriteOptions{DryRun: []string{"All"}}, 0, `"v":"dry"`, ""},
		{"it was one", types.MergePatchType, `{}`, registry.WriteOptions{}, 0, `"v":"1"`, ""},
		{"too deep", types.MergePatchType, `{"a":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, registry.WriteOptions{}, 400, "nests deeper", ""},
		{"no number of JSON", types.MergePatchType, `{"data":{"a":01}}`, registry.WriteOptions{}, 400, "invalid JSON patch", ""},
		{"two values", types.JSONPatchType, `[] []`, registry.WriteOptions{FieldValidation: "Ignore"}, 400, "invalid JSON patch", ""},
		{"nothing", types.StrategicMergePatchType, ``, registry.WriteOptions{}, 400, "invalid JSON patch", ""},
		{"no JSON, wrong options", types.JSONPatchType, `x`, registry.WriteOptions{Force: new(bool)}, 422, "force: Forbidden: may not be specified for non-apply patch", ""},
		{"a string that is not UTF-8", types.StrategicMergePatchType, "{\"data\":{\"v\":\"\xff\"}}", registry.WriteOptions{DryRun: []string{"All"}}, 0, "", ""},
	}
	for _, row := range rows {
		before := s.Store.Any().Get("configmaps", "default/a").Modified
		text := strings.ReplaceAll(row.patch, "CURRENT", fmt.Sprint(before))
		o, err := s.Patch(ctx, target, registry.Patch{Type: row.kind, Bytes: []byte(text)}, row.options)
		if row.code != 0 {
			if err == nil {
				t.Errorf("%s: it worked", row.name)
			} else if got := statusOf(t, err); got.Code != row.code || !strings.Contains(got.Message, row.want) {
				t.Errorf("%s: %d %q, want %d %q", row.name, got.Code, got.Message, row.code, row.want)
			}
			continue
		}
		if err != nil || !strings.Contains(string(o.Stored.Bytes()), row.want) || strings.Join(o.Warnings, ", ") != row.warning {
			t.Errorf("%s: %v, %q, %+v", row.name, err, o.Warnings, o.Stored)
		}
		if after := s.Store.Any().Get("configmaps", "default/a").Modified; (len(row.options.DryRun) > 0 || row.patch == "{}") && after != before {
			t.Errorf("%s: it wrote", row.name)
		}
	}
	if _, err := s.Patch(ctx, s.target("configmaps", "default", "zz"), registry.Patch{Type: types.MergePatchType, Bytes: []byte(`{}`)}, registry.WriteOptions{}); err == nil || statusOf(t, err).Code != 404 {
		t.Errorf("patching an absent object: %v", err)
	}
	if _, err := s.Patch(ctx, s.target("configmaps", "default", "zz"), registry.Patch{Type: types.MergePatchType, Bytes: []byte(`x`)}, registry.WriteOptions{}); err == nil || statusOf(t, err).Code != 400 {
		t.Errorf("patching an absent object with text that is not JSON: %v", err)
	}
}

// TestPatchesAtOnce checks that no concurrent patch is lost.
func TestPatchesAtOnce(t *testing.T) {
	s := newServer(t, store.Options{})
	s.create("configmaps", "default", configMap("a", "", ""))
	const patchers, patches = 8, 20
	var wg sync.WaitGroup
	for p := range patchers {
		wg.Go(func() {
			for i := range patches {
				text := fmt.Sprintf(`{"data":{"p%d-%d":"x"}}`, p, i)
				if _, err := s.Patch(context.Background(), s.target("configmaps", "default", "a"), registry.Patch{Type: types.MergePatchType, Bytes: []byte(text)}, registry.WriteOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := strings.Count(string(s.Store.Any().Get("configmaps", "default/a").Bytes()), `":"x"`); got != patchers*patches {
		t.Errorf("%d of %d patches are there", got, patchers*patches)
	}
}

// TestDuplicateOwners checks that owner references that equal an earlier one in every field are
// dropped, with a warning that names each, and that others to the same owner stay.
func TestDuplicateOwners(t *testing.T) {
	const plain = `{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"u1"}`
	with := func(more string) string { return plain[:len(plain)-1] + "," + more + "}" }
	but := func(was, is string) string { return strings.Replace(plain, was, is, 1) }
	for i, c := range []struct {
		sent   []string
		kept   int
		warned string
	}{
		{[]string{plain, plain}, 1, "u1"},
		{[]string{plain, plain, plain}, 1, "u1, u1"},
		{[]string{plain, with(`"controller":true`)}, 2, ""},
		{[]string{plain, with(`"controller":false`), with(`"controller":true`)}, 3, ""},
		{[]string{plain, with(`"blockOwnerDeletion":false`), with(`"blockOwnerDeletion":true`)}, 3, ""},
		{[]string{with(`"controller":true`), plain, with(`"controller":true`)}, 2, "u1"},
		{[]string{plain, but(`"x"`, `"y"`), but("ConfigMap", "Secret"), but(`"v1"`, `"v2"`)}, 4, ""},
		{[]string{plain, but("u1", "u2"), plain, but("u1", "u2")}, 2, "u1, u2"},
	} {
		s, ctx := newServer(t, store.Options{}), t.Context()
		target := s.target("configmaps", "default", "a")
		whole := body(`{"metadata":{"name":"a","ownerReferences":[` + strings.Join(c.sent, ",") + `]}}`)
		check := func(verb string, o registry.Object, err error) {
			t.Helper()
			if err != nil {
				t.Errorf("%d: %s: %v", i, verb, err)
				return
			}
			warned := strings.Join(o.Warnings, "|")
			if at := strings.LastIndex(warned, ": "); at >= 0 {
				warned = warned[at+2:]
			}
			if kept := meta(t, o.Stored).OwnerReferences; len(kept) != c.kept || warned != c.warned {
				t.Errorf("%d: %s: %v, warned of %q; want %d, %q", i, verb, kept, o.Warnings, c.kept, c.warned)
			}
		}
		o, err := s.Create(ctx, s.target("configmaps", "default", ""), whole, registry.WriteOptions{})
		check("create", o, err)
		o, err = s.Update(ctx, target, whole, registry.WriteOptions{})
		check("update", o, err)
		if _, err := s.Update(ctx, target, body(`{"metadata":{"name":"a"}}`), registry.WriteOptions{}); err != nil {
			t.Error(err)
		}
		o, err = s.Patch(ctx, target, registry.Patch{Type: types.MergePatchType, Bytes: whole.Bytes}, registry.WriteOptions{})
		check("patch", o, err)
	}
}
