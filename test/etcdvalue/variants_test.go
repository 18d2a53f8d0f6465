package etcdvalue_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// sparse is how many values with fewer fields there are of each kind.
const sparse = 4

// versions are those that values may claim to have.
var versions = []string{"v1", "v1beta1", "v1beta2", "v1beta3", "v1alpha1", "v1alpha2", "v1alpha3", "v2beta1", "v2beta2"}

// variants records values that are like a recorded one of a built-in kind: with fewer fields, and
// with other versions. They are written into etcd, read, and removed.
func (r *recorder) variants(e entry) {
	var typ *resource.Type
	for _, t := range r.types {
		if t.Collection == e.Collection && t.Conversion == nil {
			typ = t
		}
	}
	if typ == nil || e.Code != http.StatusOK || e.Case != "written" {
		return
	}
	namespace, name, namespaced := strings.Cut(e.Key, "/")
	if !namespaced {
		name = e.Key
	}
	made := func(variant string) entry {
		name := name + "-" + variant
		if strings.Contains(e.Collection, "customresourcedefinitions") || strings.Contains(e.Collection, "apiservices") {
			name = variant + "." + name
		}
		key := name
		if namespaced {
			key = namespace + "/" + name
		}
		return entry{Collection: e.Collection, Key: key, Path: r.keys.Of(e.Collection, key)}
	}
	for i := range sparse {
		if typ.Kind == "PriorityLevelConfiguration" {
			break // kube-apiserver ends when it meets one without a type
		}
		v := made(fmt.Sprint("sparse", i))
		v.Case = "sparse"
		r.put(typ, v, e, func(o map[string]any) {
			prune(o, r.chance.Float64, []float64{0.2, 0.5, 0.8, 1}[i])
		}, "")
	}
	for _, version := range versions {
		if version == typ.Version {
			continue
		}
		v := made(version)
		v.Case, v.Version = "version", version
		if r.put(typ, v, e, func(map[string]any) {}, version) == http.StatusOK && typ.Kind != "PriorityLevelConfiguration" {
			for i := range sparse {
				v = made(fmt.Sprint(version, "-sparse", i))
				v.Case, v.Version = "version", version
				r.put(typ, v, e, func(o map[string]any) { prune(o, r.chance.Float64, 0.3) }, version)
			}
		}
	}
}

// put writes a changed object into etcd, records it and removes it. It returns the code of the GET.
func (r *recorder) put(typ *resource.Type, v, from entry, change func(map[string]any), version string) (code int) {
	var o map[string]any
	text, protobuf := []byte(from.Get), from.Value[0] == 'k'
	if !protobuf {
		text = from.Value
	}
	if err := json.Unmarshal(text, &o); err != nil {
		r.t.Fatal(err)
	}
	change(o)
	if spec, ok := o["spec"].(map[string]any); typ.Kind == "DeviceTaintRule" && ok {
		if taint, _ := spec["taint"].(map[string]any); taint["timeAdded"] == nil {
			return 0 // each read shows another time
		}
	}
	metadata := o["metadata"].(map[string]any)
	metadata["name"] = v.Key[strings.LastIndex(v.Key, "/")+1:]
	delete(metadata, "resourceVersion")
	if version != "" {
		o["apiVersion"] = schema.GroupVersion{Group: typ.Group, Version: version}.String()
	} else if protobuf { // the version that kube-apiserver stores
		envelope, err := wire.OpenEnvelope(from.Value)
		if err != nil {
			r.t.Fatal(err)
		}
		o["apiVersion"] = envelope.APIVersion
	}
	text, err := json.Marshal(o)
	if err != nil {
		r.t.Fatal(err)
	}
	value := append(text, '\n')
	if protobuf {
		value = r.message(typ, text, o["apiVersion"].(string))
	}
	if _, err := r.db.Put(r.t.Context(), v.Path, string(value)); err != nil {
		r.t.Fatal(err)
	}
	made := len(r.all)
	r.get(&v, r.at(typ.Group, typ.Version, typ.Resource, typ.Namespaced)+"/"+metadata["name"].(string))
	if last := &r.all[len(r.all)-1]; last.Code != http.StatusOK {
		last.Value = nil // it follows from the version
	}
	if _, err := r.db.Delete(r.t.Context(), v.Path); err != nil {
		r.t.Fatal(err)
	}
	code = r.all[made].Code
	if code == http.StatusOK && !bytes.Equal(r.all[made].Value, value) {
		r.t.Logf("%s is left out: kube-apiserver rewrote it at once", v.Path)
		r.all = r.all[:made]
	}
	return code
}

// message returns an object as it is, without defaults, in the envelope of a version.
func (r *recorder) message(typ *resource.Type, text []byte, apiVersion string) []byte {
	o, err := wire.Unmarshal(text, typ.New)
	if err != nil {
		r.t.Fatal(err)
	}
	raw, err := wire.Message(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return wire.AppendEnvelope(nil, metav1.TypeMeta{Kind: typ.Kind, APIVersion: apiVersion}, raw)
}

// prune drops members at random, except for those that identify the object.
func prune(v any, chance func() float64, share float64) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			switch name {
			case "kind", "apiVersion", "metadata", "name", "namespace", "uid", "creationTimestamp", "group", "names", "plural", "singular", "versions", "timeAdded":
			default:
				if chance() < share {
					delete(v, name)
					continue
				}
			}
			prune(v[name], chance, share)
		}
	case []any:
		for _, e := range v {
			prune(e, chance, share)
		}
	}
}
