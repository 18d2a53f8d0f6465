package builtin

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// relate lets every type know the other kinds. Two versions of one kind share
// their collection.
func relate(groups []resource.Group) {
	collections := kinds(groups)
	relateVersions(groups)
	for _, g := range groups {
		for _, v := range g.Versions {
			for _, t := range v.Types {
				t.Strategy.Relation = relation(collections, t.Collection)
				for i := range t.Subresources {
					if b := t.Subresources[i].Exchange; b != nil {
						b.Strategy.Relation = relation(collections, "")
					}
				}
			}
		}
	}
}

// relateVersions lets types that serve the same objects know each other.
func relateVersions(groups []resource.Group) {
	served := map[string][]*resource.Type{}
	for _, g := range groups {
		for _, v := range g.Versions {
			for _, t := range v.Types {
				if t.Collection != "" {
					served[t.Collection] = append(served[t.Collection], t)
				}
			}
		}
	}
	for _, types := range served {
		if len(types) < 2 {
			continue
		}
		for _, t := range types {
			t.Versions = types
		}
	}
}

// relation is that of other kinds to one whose objects are in a collection, "" for
// none.
func relation(collections map[schema.GroupVersionKind]string, own string) func(schema.GroupVersionKind) resource.Relation {
	return func(k schema.GroupVersionKind) resource.Relation {
		switch collection, known := collections[k]; {
		case !known:
			return resource.UnknownKind
		case collection != "" && collection == own:
			return resource.OtherVersion
		}
		return resource.OtherKind
	}
}

// kinds are all kinds that are known, with their collections: those of objects and
// of their lists, and those that stand beside them.
func kinds(groups []resource.Group) map[schema.GroupVersionKind]string {
	all := map[schema.GroupVersionKind]string{}
	add := func(gv schema.GroupVersion, kinds ...string) {
		for _, k := range kinds {
			all[gv.WithKind(k)] = ""
		}
	}
	add(schema.GroupVersion{Version: "v1"}, "List", "Status", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList", "PodLogOptions")
	for _, g := range groups {
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v.Name}
			add(gv, "WatchEvent", "ListOptions", "GetOptions", "CreateOptions", "UpdateOptions", "PatchOptions", "DeleteOptions")
			for _, t := range v.Types {
				add(gv, t.Kind+"List")
				for _, s := range t.Subresources {
					add(s.Kind.GroupVersion(), s.Kind.Kind)
				}
			}
		}
	}
	for _, g := range groups { // last: a subresource may name the kind of its object
		for _, v := range g.Versions {
			for _, t := range v.Types {
				all[t.GroupVersionKind()] = t.Collection
			}
		}
	}
	return all
}
