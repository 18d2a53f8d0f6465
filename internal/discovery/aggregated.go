package discovery

import (
	"crypto/sha512"
	"fmt"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// aggregate is GET /api or /apis in the form that holds everything: the groups of
// the catalog that the caller keeps.
func aggregate(c *resource.Catalog, keep func(*resource.Group) bool) Document {
	doc := apidiscovery.APIGroupDiscoveryList{Items: []apidiscovery.APIGroupDiscovery{}}
	groups := c.Groups()
	for i := range groups {
		if keep(&groups[i]) {
			doc.Items = append(doc.Items, groupDiscovery(&groups[i]))
		}
	}
	// The tag is that of the list before it is given its kind, so that it is the one
	// that clients have cached of any server that serves the same.
	sum := sha512.Sum512(marshal(doc))
	doc.TypeMeta = metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}
	return Document{
		Body:        append(marshal(doc), '\n'),
		ContentType: AggregatedJSON,
		ETag:        fmt.Sprintf("%q", fmt.Sprintf("%X", sum)),
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
		Verbs:            t.Verbs,
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

// responseKind leaves group and version empty where they are those of the
// resource.
func responseKind(t *resource.Type, k schema.GroupVersionKind) *metav1.GroupVersionKind {
	out := &metav1.GroupVersionKind{Kind: k.Kind}
	if t.Explicit || k.GroupVersion() != t.GroupVersion() {
		out.Group, out.Version = k.Group, k.Version
	}
	return out
}
