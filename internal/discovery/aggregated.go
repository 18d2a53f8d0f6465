package discovery

import (
	"bytes"
	"crypto/sha512"
	"fmt"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// aggregate is GET /api or /apis in the aggregated form, with the groups for which keep returns
// true.
func (d *Documents) aggregate(keep func(*resource.Group) bool) Document {
	var items [][]byte
	for _, g := range d.groups {
		if keep(g.of) {
			items = append(items, g.whole())
		}
	}
	return Aggregate(items)
}

// Aggregate returns the aggregated document with the groups that are its items.
func Aggregate(groups [][]byte) Document {
	items := append(append([]byte{'['}, bytes.Join(groups, []byte{','})...), ']')
	// As in kube-apiserver, the tag is the hash of the list without its kind, so that clients can
	// use documents that they have cached of another server.
	list := append(append([]byte(`{"metadata":{},"items":`), items...), '}')
	const head = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2",`
	return Document{
		Body: append(append([]byte(head), list[1:]...), '\n'),
		ETag: fmt.Sprintf("%q", fmt.Sprintf("%X", sha512.Sum512(list))),
	}
}

func groupDiscovery(g *resource.Group) apidiscovery.APIGroupDiscovery {
	out := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}
	for _, v := range g.Versions {
		version := apidiscovery.APIVersionDiscovery{
			Version:   v.Name,
			Freshness: apidiscovery.DiscoveryFreshnessCurrent,
		}
		for _, t := range v.Types {
			version.Resources = append(version.Resources, resourceDiscovery(t))
		}
		out.Versions = append(out.Versions, version)
	}
	return out
}

func resourceDiscovery(t *resource.Type) apidiscovery.APIResourceDiscovery {
	out := apidiscovery.APIResourceDiscovery{
		Resource:         t.Resource,
		ResponseKind:     responseKind(t, t.GroupVersionKind()),
		Scope:            apidiscovery.ScopeCluster,
		SingularResource: t.Singular,
		Verbs:            t.Discovered(),
		ShortNames:       t.ShortNames,
		Categories:       t.Categories,
	}
	if t.Namespaced {
		out.Scope = apidiscovery.ScopeNamespace
	}
	for i := range t.Subresources {
		s := &t.Subresources[i]
		out.Subresources = append(out.Subresources, apidiscovery.APISubresourceDiscovery{
			Subresource:  s.Name,
			ResponseKind: responseKind(t, s.Kind),
			Verbs:        s.Verbs,
		})
	}
	return out
}

// responseKind omits group and version of a built-in kind if they are those of the resource.
func responseKind(t *resource.Type, k schema.GroupVersionKind) *metav1.GroupVersionKind {
	out := &metav1.GroupVersionKind{Kind: k.Kind}
	if t.Custom != nil || k.GroupVersion() != t.GroupVersion() {
		out.Group, out.Version = k.Group, k.Version
	}
	return out
}
