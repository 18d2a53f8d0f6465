package resource

import (
	"iter"
	"slices"
	"sync/atomic"
)

// Catalog is the immutable set of what is served. A change makes a new one. It is
// safe for concurrent use.
type Catalog struct {
	groups []Group
	byPath map[path]*Type
}

// lastID is the ID that was given last.
var lastID atomic.Uint64

type path struct{ group, version, resource string }

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

// NewCatalog makes a catalog of groups, in the order in which discovery names
// them; the core group, whose name is empty, comes first.
func NewCatalog(groups []Group) *Catalog {
	c := &Catalog{groups: groups, byPath: map[path]*Type{}}
	for t := range c.Types() {
		if t.ID == 0 {
			t.ID = lastID.Add(1)
		}
		c.byPath[path{t.Group, t.Version, t.Resource}] = t
	}
	return c
}

// With returns a catalog with groups in the place of those of their names, or behind
// the others; one without versions is taken away.
func (c *Catalog) With(changed []Group) *Catalog {
	groups := slices.Clone(c.groups)
	for _, g := range changed {
		i := slices.IndexFunc(groups, func(old Group) bool { return old.Name == g.Name })
		switch {
		case len(g.Versions) == 0 && i >= 0:
			groups = slices.Delete(groups, i, i+1)
		case len(g.Versions) == 0:
		case i >= 0:
			groups[i] = g
		default:
			groups = append(groups, g)
		}
	}
	return NewCatalog(groups)
}

// Groups returns what discovery shows. The caller must not change it.
func (c *Catalog) Groups() []Group { return c.groups }

// Types yields all types in the order in which discovery names them.
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

// Serves tells whether a group is a part of the server, in which all paths are known:
// there is more in it than what comes and goes with definitions.
func (c *Catalog) Serves(group string) bool {
	g := c.Group(group)
	if g == nil {
		return false
	}
	for _, v := range g.Versions {
		for _, t := range v.Types {
			if !t.Explicit {
				return true
			}
		}
	}
	return false
}

// Lists returns a version of a group, nil when it is not served.
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

// Lookup returns the type, nil when it is not served.
func (c *Catalog) Lookup(group, version, resource string) *Type {
	return c.byPath[path{group, version, resource}]
}

// Group returns the group, nil when it is not served.
func (c *Catalog) Group(name string) *Group {
	for i := range c.groups {
		if c.groups[i].Name == name {
			return &c.groups[i]
		}
	}
	return nil
}
