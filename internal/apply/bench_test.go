package apply_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/tidemark-dev/tidemark/internal/apply"
)

// bench is one kind's object, as it is stored and after a change of one field.
type bench struct {
	b          *testing.B
	ours       *apply.Schema
	theirs     *managedfields.FieldManager
	empty      func() runtime.Object
	old, next  []byte
	patch      []byte
	patchOther []byte
	patchLess  []byte // without a label
	w          apply.Write
}

// small and large complement the kinds of the histories: most writes are of their sizes.
var small = kindOf(0, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "default", "labels": {"a": "1", "b": "2"}}, "data": {"k": "1"}}`)
var large = kindOf(1, strings.Replace(fullPod, `{"name": "d", "image": "j", "resources": {}}`, strings.Join([]string{container("d"), container("e"), container("f"), container("g")}, ","), 1))

func kindOf(kind int, full string) kindCase {
	k := kinds[kind]
	k.full = full
	return k
}

func container(name string) string {
	return `{"name": "` + name + `", "image": "registry.example.com/team/service:1.2.3", "args": ["--a", "--b"], "imagePullPolicy": "IfNotPresent",
		"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "100Mi"}}, "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
		"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "volumeMounts": [{"name": "v", "mountPath": "/v"}], "terminationMessagePath": "/dev/termination-log"}`
}

func newBench(b *testing.B, k kindCase) *bench {
	x := &bench{b: b, empty: k.empty, w: apply.Write{Manager: "kubectl-create", Time: time.Unix(1_700_000_000, 0)}}
	var err error
	if x.ours, err = apply.Builtin(k.gvk, k.empty()); err != nil {
		b.Fatal(err)
	}
	x.theirs, err = managedfields.NewDefaultFieldManager(converter, clientscheme.Scheme, noDefaults{}, clientscheme.Scheme, k.gvk, k.gvk.GroupVersion(), "", nil)
	if err != nil {
		b.Fatal(err)
	}
	var tree map[string]any
	if err := utiljson.Unmarshal([]byte(k.full), &tree); err != nil {
		b.Fatal(err)
	}
	status := tree["status"]
	delete(tree, "status") // who applies has none
	if x.patch, err = json.Marshal(tree); err != nil {
		b.Fatal(err)
	}
	tree["metadata"].(map[string]any)["labels"].(map[string]any)["a"] = "changed"
	if x.patchOther, err = json.Marshal(tree); err != nil {
		b.Fatal(err)
	}
	labels := tree["metadata"].(map[string]any)["labels"].(map[string]any)
	delete(labels, "b")
	if x.patchLess, err = json.Marshal(tree); err != nil {
		b.Fatal(err)
	}
	labels["b"] = "2"
	tree["metadata"].(map[string]any)["uid"] = "u"
	if status != nil {
		tree["status"] = status
	}
	x.next = x.encode(x.decode(tree))
	tree["metadata"].(map[string]any)["labels"].(map[string]any)["a"] = "1"
	x.old = x.encode(x.decode(tree))
	return x
}

func (x *bench) decode(tree any) runtime.Object {
	data, err := json.Marshal(tree)
	if err != nil {
		x.b.Fatal(err)
	}
	return x.object(data)
}

func (x *bench) object(data []byte) runtime.Object {
	o := x.empty()
	if err := json.Unmarshal(data, o); err != nil {
		x.b.Fatal(err)
	}
	return o
}

func (x *bench) encode(o runtime.Object) []byte {
	data, err := json.Marshal(o)
	if err != nil {
		x.b.Fatal(err)
	}
	return data
}

// with is an object with managed fields, as the library takes it.
func (x *bench) with(data, managed []byte) runtime.Object {
	o := x.object(data)
	var m []metav1.ManagedFieldsEntry
	if err := json.Unmarshal(managed, &m); err != nil {
		x.b.Fatal(err)
	}
	o.(metav1.Object).SetManagedFields(m)
	return o
}

func forKinds(b *testing.B, f func(b *testing.B, x *bench)) {
	for _, k := range kinds {
		b.Run(k.gvk.Kind, func(b *testing.B) { f(b, newBench(b, k)) })
	}
	b.Run("SmallConfigMap", func(b *testing.B) { f(b, newBench(b, small)) })
	b.Run("LargePod", func(b *testing.B) { f(b, newBench(b, large)) })
}

func BenchmarkCreate(b *testing.B) {
	forKinds(b, func(b *testing.B, x *bench) {
		b.Run("ours", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(x.next)))
			for b.Loop() {
				if _, err := x.ours.Update(nil, nil, x.next, x.w); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("library", func(b *testing.B) {
			live, next := x.empty(), x.object(x.next)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := x.theirs.Update(live, next, "m"); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

func BenchmarkUpdate(b *testing.B) {
	forKinds(b, func(b *testing.B, x *bench) {
		managed, err := x.ours.Update(nil, nil, x.old, x.w)
		if err != nil {
			b.Fatal(err)
		}
		w := x.w
		w.Manager = "controller"
		b.Run("ours", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(x.next)))
			for b.Loop() {
				if _, err := x.ours.Update(managed, x.old, x.next, w); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("library", func(b *testing.B) {
			live, next := x.with(x.old, managed), x.with(x.next, managed)
			fields := next.(metav1.Object).GetManagedFields()
			b.ReportAllocs()
			for b.Loop() {
				next.(metav1.Object).SetManagedFields(fields)
				if _, err := x.theirs.Update(live, next, "m"); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

func BenchmarkApply(b *testing.B) {
	forKinds(b, func(b *testing.B, x *bench) {
		live, managed, err := x.ours.Apply(nil, nil, x.patch, x.w, false)
		if err != nil {
			b.Fatal(err)
		}
		live = x.encode(x.object(live))
		for _, c := range []struct {
			name  string
			patch []byte
		}{{"changed", x.patchOther}, {"less", x.patchLess}, {"same", x.patch}} {
			b.Run(c.name+"/ours", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					next, _, err := x.ours.Apply(managed, live, c.patch, x.w, false)
					if err != nil || (next == nil) != (c.name == "same") {
						b.Fatal(err)
					}
				}
			})
			b.Run(c.name+"/library", func(b *testing.B) {
				was := x.with(live, managed)
				patch := &unstructured.Unstructured{}
				if err := utiljson.Unmarshal(c.patch, &patch.Object); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					if _, err := x.theirs.Apply(was, patch, "kubectl-create", false); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	})
}

// BenchmarkUnchanged measures an apply that is known to change nothing.
func BenchmarkUnchanged(b *testing.B) {
	forKinds(b, func(b *testing.B, x *bench) {
		var u apply.Unchanged
		u.Add(apply.NewApplication("default/x 17", x.patch, x.w, false))
		b.ReportAllocs()
		for b.Loop() {
			if !u.Has(apply.NewApplication("default/x 17", x.patch, x.w, false)) {
				b.Fatal("forgotten")
			}
		}
	})
}
