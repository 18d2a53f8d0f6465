package controller

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// kinds finds the types of a catalog by the kind or the collection of an object.
type kinds struct {
	catalog      *resource.Catalog
	byKind       map[schema.GroupVersionKind]*resource.Type
	byCollection map[string]*resource.Type
	// namespaced are the types of namespaced objects that can be deleted, one for each
	// collection.
	namespaced []*resource.Type
}

// served returns the types of the catalog that is served now.
func (l *Loops) served() *kinds {
	catalog := l.c.Catalog()
	if k := l.kinds.Load(); k != nil && k.catalog == catalog {
		return k
	}
	k := &kinds{catalog: catalog, byKind: map[schema.GroupVersionKind]*resource.Type{}, byCollection: map[string]*resource.Type{}}
	for t := range catalog.Types() {
		if t.Collection == "" || !t.Allows("delete") {
			continue
		}
		k.byKind[t.GroupVersionKind()] = t
		// Use the stored version, so that edits need no conversion.
		if old := k.byCollection[t.Collection]; old == nil || old.Conversion != nil && t.Conversion == nil {
			k.byCollection[t.Collection] = t
		}
	}
	for t := range catalog.Types() { // in the order of discovery
		if t.Namespaced && k.byCollection[t.Collection] == t {
			k.namespaced = append(k.namespaced, t)
		}
	}
	l.kinds.Store(k)
	return k
}

// target returns the target of requests for an object; false when its kind is not served.
func (k *kinds) target(o object) (registry.Target, bool) {
	t := k.byCollection[o.collection]
	if t == nil {
		return registry.Target{}, false
	}
	return targetOf(t, o.key), true
}

// targetOf returns the target of requests for an object of a type.
func targetOf(t *resource.Type, key string) registry.Target {
	target := registry.Target{Type: t, Name: key}
	if t.Namespaced {
		target.Namespace, target.Name, _ = strings.Cut(key, "/")
	}
	return target
}
