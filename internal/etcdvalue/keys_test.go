package etcdvalue_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
)

func TestKeys(t *testing.T) {
	var keys etcdvalue.Keys
	for _, c := range []struct{ collection, key, want string }{
		{"configmaps", "ns/a", "/registry/configmaps/ns/a"},
		{"services", "ns/a", "/registry/services/specs/ns/a"},
		{"endpoints", "ns/a", "/registry/services/endpoints/ns/a"},
		{"replicationcontrollers", "ns/a", "/registry/controllers/ns/a"},
		{"nodes", "a", "/registry/minions/a"},
		{"events", "ns/a", "/registry/events/ns/a"},
		{"namespaces", "a", "/registry/namespaces/a"},
		{"deployments.apps", "ns/a", "/registry/deployments/ns/a"},
		{"ingresses.networking.k8s.io", "ns/a", "/registry/ingress/ns/a"},
		{"clusterroles.rbac.authorization.k8s.io", "system:node", "/registry/clusterroles/system:node"},
		{"apiservices.apiregistration.k8s.io", "v1.apps", "/registry/apiregistration.k8s.io/apiservices/v1.apps"},
		{"customresourcedefinitions.apiextensions.k8s.io", "foos.cr.bar.com", "/registry/apiextensions.k8s.io/customresourcedefinitions/foos.cr.bar.com"},
		{"foos.cr.bar.com", "ns/a", "/registry/cr.bar.com/foos/ns/a"},
		{"pants.custom.fancy.com", "a", "/registry/custom.fancy.com/pants/a"},
		// Custom resources in the group of built-in ones, and of the name of one.
		{"foos.networking.k8s.io", "ns/a", "/registry/networking.k8s.io/foos/ns/a"},
		{"apiservices.example.com", "a", "/registry/example.com/apiservices/a"},
	} {
		if got := keys.Of(c.collection, c.key); got != c.want {
			t.Errorf("Of(%s, %s) = %s, want %s", c.collection, c.key, got, c.want)
		}
		if got := keys.Find(c.want); got.Class != etcdvalue.Object || got.Collection != c.collection || got.Key != c.key {
			t.Errorf("Find(%s) = %+v, want %s %s", c.want, got, c.collection, c.key)
		}
	}
}

// TestKeysOfBuiltins: no two collections share a path, and no path begins another one.
func TestKeysOfBuiltins(t *testing.T) {
	var keys etcdvalue.Keys
	for typ := range builtin.Catalog().Types() {
		if typ.Collection == "" {
			continue
		}
		key, namespace := "a", ""
		if typ.Namespaced {
			key, namespace = "ns/a", "ns"
		}
		want := etcdvalue.Place{Class: etcdvalue.Object, Collection: typ.Collection, Key: key, Namespace: namespace}
		if got := keys.Find(keys.Of(typ.Collection, key)); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestFind(t *testing.T) {
	var keys etcdvalue.Keys
	for at, want := range map[string]etcdvalue.Place{
		"compact_rev_key":                         {Class: etcdvalue.Internal},
		"/other/pods/ns/a":                        {Class: etcdvalue.Internal},
		"/registry/masterleases/10.0.0.1":         {Class: etcdvalue.Object, Collection: "masterleases", Key: "10.0.0.1"},
		"/registry/peerserverleases/a":            {Class: etcdvalue.Internal},
		"/registry/ranges/serviceips":             {Class: etcdvalue.Object, Collection: "ranges", Key: "serviceips"},
		keys.Guard("quota/ns"):                    {Class: etcdvalue.Internal},
		"/registry/leasecandidates/kube-system/a": {Class: etcdvalue.Unknown, Namespace: "kube-system"},
		"/registry/storageversions/a":             {Class: etcdvalue.Unknown},
		"/registry/pods/a":                        {Class: etcdvalue.Unknown},
		"/registry/pods/":                         {Class: etcdvalue.Unknown},
		"/registry/pods":                          {Class: etcdvalue.Unknown},
		"/registry/":                              {Class: etcdvalue.Unknown},
		"/registry/pods/ns/a/b":                   {Class: etcdvalue.Unknown},
		"/registry/pods//a":                       {Class: etcdvalue.Unknown},
		"/registry/namespaces/a/b":                {Class: etcdvalue.Unknown, Namespace: "a"},
		"/registry/services/ns/a":                 {Class: etcdvalue.Unknown, Namespace: "ns"},
		"/registry/cr.bar.com/foos":               {Class: etcdvalue.Unknown},
		"/registry/cr.bar.com/foos/ns/a/b":        {Class: etcdvalue.Unknown},
		"/registry/cr.bar.com/foos/ns/a":          {Class: etcdvalue.Object, Collection: "foos.cr.bar.com", Key: "ns/a", Namespace: "ns"},
		// No other keys of objects: the Ingress ns/a, and an object of the resource foos in the group cr.bar.com.
		"/registry/networking.k8s.io/ingresses/ns/a":    {Class: etcdvalue.Unknown, Namespace: "ns"},
		"/registry/bar.com/foos.cr/ns/a":                {Class: etcdvalue.Unknown, Namespace: "ns"},
		"/registry/evictionrequests/ns/a":               {Class: etcdvalue.Unknown, Namespace: "ns"},
		"/registry/apiregistration.k8s.io/apiservices/": {Class: etcdvalue.Unknown},
	} {
		if got := keys.Find(at); got != want {
			t.Errorf("Find(%q) = %+v, want %+v", at, got, want)
		}
	}
}

func TestPrefix(t *testing.T) {
	for prefix, want := range map[string]string{"": "/registry/pods/ns/a", "/registry/": "/registry/pods/ns/a", "other": "/other/pods/ns/a", "/a/b": "/a/b/pods/ns/a", "/": "/pods/ns/a"} {
		keys := etcdvalue.NewKeys(prefix)
		if got := keys.Of("pods", "ns/a"); got != want {
			t.Errorf("with the prefix %q: got %s, want %s", prefix, got, want)
		}
		if got := keys.Find(want); got.Collection != "pods" || got.Key != "ns/a" {
			t.Errorf("with the prefix %q: Find(%s) = %+v", prefix, want, got)
		}
	}
}
