package beside

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestKinds checks objects of all built-in kinds that one server writes, and the other one reads,
// writes and deletes. A no-op update changes nothing in etcd either.
func TestKinds(t *testing.T) {
	tier.Full(t)
	c := newCluster(t)
	k, td := c.serve(kube, "192.0.2.1"), c.serve(tidemark, "192.0.2.2")
	types := map[schema.GroupVersionKind]*resource.Type{}
	for typ := range builtin.Catalog().Types() {
		if typ.Collection != "" {
			types[typ.GroupVersionKind()] = typ
		}
	}
	for _, pair := range [][2]*server{{k, td}, {td, k}} {
		a, b := pair[0], pair[1]
		t.Run(fmt.Sprintf("written by %s", a.kind), func(t *testing.T) {
			objects := func(seed uint64) []map[string]any {
				return testkinds.Objects(t, "../kinds/testdata/objects", "beside-"+a.kind, rand.New(rand.NewPCG(36, seed)))
			}
			for i := range objects(0) {
				why := ""
				for seed := range uint64(60) { // of parts that exclude each other, some do not fit
					o := objects(seed)[i]
					kind := schema.FromAPIVersionAndKind(o["apiVersion"].(string), o["kind"].(string))
					if why = exchange(t, a, b, types[kind], o); why == "" {
						break
					}
				}
				if why != "" {
					t.Error(why)
				}
			}
		})
	}
}

// fit removes fields that kube-apiserver rejects beside the rest of a template.
func fit(o map[string]any) {
	drop := func(part string, names ...string) {
		if v, ok := o[part].(map[string]any); ok {
			for _, name := range names {
				delete(v, name)
			}
		}
	}
	switch o["kind"] {
	case "IPAddress":
		o["metadata"].(map[string]any)["name"] = "10.77.0.7"
	case "Pod":
		drop("spec", "resources")
	case "ResourceQuota":
		drop("spec", "scopeSelector")
	case "CertificateSigningRequest":
		drop("status", "conditions")
	case "Job":
		drop("status", "active", "ready", "uncountedTerminatedPods")
	}
}

// paths returns where the objects of a type are in the API, in its version and in the stored one.
func paths(t *resource.Type) (own, held string) {
	at := func(t *resource.Type) string {
		path := "/apis/" + t.Group + "/" + t.Version
		if t.Group == "" {
			path = "/api/" + t.Version
		}
		if t.Namespaced {
			path += "/namespaces/default"
		}
		return path + "/" + t.Resource
	}
	return at(t), at(t.StoredVersion())
}

// exchange writes an object by a, and all else by b. It returns why the object was not accepted.
func exchange(t *testing.T, a, b *server, typ *resource.Type, o map[string]any) string {
	t.Helper()
	fit(o)
	path, held := paths(typ)
	status := o["status"]
	code, body := a.send("POST", path, o)
	name := member(o, "metadata.name").(string)
	for n := 2; code == http.StatusConflict && n < 5; n++ {
		name = fmt.Sprint(member(o, "metadata.name"), "-", n)
		o["metadata"].(map[string]any)["name"] = name
		code, body = a.send("POST", path, o)
	}
	if code != http.StatusCreated {
		return fmt.Sprintf("%s: POST %s: %d %s", a.kind, path, code, body)
	}
	if status != nil {
		code, body := a.send("PATCH", path+"/"+name+"/status", map[string]any{"status": status})
		if code != http.StatusOK {
			t.Logf("%s: the status of %s/%s: %d %s", a.kind, path, name, code, body)
		}
	}
	key := name
	if typ.Namespaced {
		key = "default/" + name
	}
	key = etcdvalue.Keys{}.Of(typ.Collection, key)
	at := held + "/" + name
	same(t, a, b, at)
	if typ.Group == "events.k8s.io" {
		at = path + "/" + name // an update in the other version removes the managed fields of this one
	}
	unchanged(t, b, at, key)
	b.want(http.StatusOK, "PATCH", at, object(`{"metadata":{"labels":{"beside":"`+b.kind+`"}}}`))
	same(t, a, b, at)
	unchanged(t, a, at, key)
	unchanged(t, b, at, key)
	remove(t, a, b, at)
	if value, _ := a.value(key); value != nil {
		t.Errorf("%s is still there", key)
	}
	return ""
}

// remove deletes an object by b, with its finalizers.
func remove(t *testing.T, a, b *server, at string) {
	t.Helper()
	b.want(http.StatusOK, "DELETE", at, object(`{"gracePeriodSeconds":0,"propagationPolicy":"Background"}`))
	b.until(at+" is gone", func() bool {
		if code, text := b.send("GET", at, nil); code == http.StatusOK { // controllers may change it meanwhile, so this is tried again
			b.send("PATCH", at, object(`{"metadata":{"finalizers":null}}`))
			if bytes.Contains(text, []byte(`"kind":"Namespace"`)) {
				o := object(string(text))
				delete(o["spec"].(map[string]any), "finalizers")
				delete(o["metadata"].(map[string]any), "resourceVersion")
				b.send("PUT", at+"/finalize", o)
			}
		}
		one, _ := a.send("GET", at, nil)
		other, _ := b.send("GET", at, nil)
		return one == http.StatusNotFound && other == http.StatusNotFound
	})
}

// same fails unless both servers show the same object.
func same(t *testing.T, a, b *server, at string) {
	t.Helper()
	for range 20 {
		one, other := a.want(http.StatusOK, "GET", at, nil), b.want(http.StatusOK, "GET", at, nil)
		if member(one, "metadata.resourceVersion") != member(other, "metadata.resourceVersion") {
			continue // a controller has changed it
		}
		if !reflect.DeepEqual(one, other) {
			x, _ := json.Marshal(one)
			y, _ := json.Marshal(other)
			t.Errorf("%s differs:\n%s: %s\n%s: %s", at, a.kind, x, b.kind, y)
		}
		return
	}
	t.Errorf("%s changes all the time", at)
}

// unchanged fails if an update by a server that changes nothing changes the stored value.
func unchanged(t *testing.T, s *server, at, key string) {
	t.Helper()
	for range 20 {
		o := s.want(http.StatusOK, "GET", at, nil)
		before, was := s.value(key)
		if fmt.Sprint(was) != member(o, "metadata.resourceVersion") {
			continue
		}
		code, body := s.send("PUT", at, o)
		if code == http.StatusConflict {
			continue
		}
		after, is := s.value(key)
		if code != http.StatusOK || is != was {
			t.Errorf("%s: PUT %s as it is: %d, revision %d, then %d\n%s\n%q\n%q", s.kind, at, code, was, is, body, before, after)
		}
		return
	}
	t.Errorf("%s changes all the time", at)
}
