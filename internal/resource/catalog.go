package resource

import (
	"iter"
	"maps"
	"slices"
	"sync/atomic"
)

// Catalog is the immutable set of Types that a server serves. A change makes a new one. It
// is safe for concurrent use.
type Catalog struct {
	groups []Group
	byName map[string]*indexed
}

// indexed is a group with an index of its types. A Catalog that With returns shares those of
// unchanged groups.
type indexed struct {
	group Group
	types map[path]*Type
}

// lastID is the last Type.ID that was assigned. All servers of the process share it, because
// they share the Types of built-in kinds. It is a counter: no server learns anything of
// another one from it.
var lastID atomic.Uint64

type path struct{ version, resource string }

// Group is an API group with its versions, the preferred one first.
type Group struct {
	Name     string
	Versions []Version
}

// Version is a served version of a group, with its types sorted by Resource.
type Version struct {
	Name  string
	Types []*Type
}

// NewCatalog returns a catalog of groups in the order of discovery: the core group, whose
// name is empty, comes first.
func NewCatalog(groups []Group) *Catalog {
	c := &Catalog{groups: groups, byName: make(map[string]*indexed, len(groups))}
	for _, g := range groups {
		c.byName[g.Name] = index(g)
	}
	return c
}

// index indexes a group, and assigns IDs to its new types.
func index(g Group) *indexed {
	i := &indexed{group: g, types: map[path]*Type{}}
	for _, v := range g.Versions {
		for _, t := range v.Types {
			if t.ID == 0 {
				t.ID = lastID.Add(1)
			}
			i.types[path{t.Version, t.Resource}] = t
		}
	}
	return i
}

// With returns a catalog in which each changed group replaces the group of its name, or
// follows the others if it is new. A group without versions is removed.
func (c *Catalog) With(changed []Group) *Catalog {
	next := &Catalog{groups: slices.Clone(c.groups), byName: maps.Clone(c.byName)}
	for _, g := range changed {
		i := -1
		if next.byName[g.Name] != nil {
			i = slices.IndexFunc(next.groups, func(old Group) bool { return old.Name == g.Name })
		}
		if len(g.Versions) == 0 {
			if i >= 0 {
				next.groups = slices.Delete(next.groups, i, i+1)
				delete(next.byName, g.Name)
			}
			continue
		}
		if next.byName[g.Name] = index(g); i >= 0 {
			next.groups[i] = g
		} else {
			next.groups = append(next.groups, g)
		}
	}
	return next
}

// Groups returns the groups in the order of discovery. The caller must not change them.
func (c *Catalog) Groups() []Group { return c.groups }

// Types yields all types in the order of discovery.
func (c *Catalog) Types() iter.Seq[*Type] {
	return func(yield func(*Type) bool) {
		for _, g := range c.groups {
			for _, v := range g.Versions {
				for _, t := range v.Types {
					if !yield(t) {
						return
					}
				}
			}
		}
	}
}

// Serves reports whether a group has built-in kinds. Such a group is served even when no
// definition adds kinds to it.
func (c *Catalog) Serves(group string) bool {
	g := c.Group(group)
	if g == nil {
		return false
	}
	for _, v := range g.Versions {
		for _, t := range v.Types {
			if t.Custom == nil {
				return true
			}
		}
	}
	return false
}

// Lists returns a version of a group, nil if it is not served.
func (c *Catalog) Lists(group, version string) *Version {
	g := c.Group(group)
	if g == nil {
		return nil
	}
	for i := range g.Versions {
		if g.Versions[i].Name == version {
			return &g.Versions[i]
		}
	}
	return nil
}

// Lookup returns a type, nil if it is not served.
func (c *Catalog) Lookup(group, version, resource string) *Type {
	if i := c.byName[group]; i != nil {
		return i.types[path{version, resource}]
	}
	return nil
}

// Group returns a group, nil if it is not served.
func (c *Catalog) Group(name string) *Group {
	if i := c.byName[name]; i != nil {
		return &i.group
	}
	return nil
}
