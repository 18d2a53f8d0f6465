package resource

// Catalog is the immutable set of what is served. A change makes a new one. It is
// safe for concurrent use.
type Catalog struct {
	groups []Group
	byPath map[path]*Type
}

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
	n := 0
	for _, g := range groups {
		for _, v := range g.Versions {
			n += len(v.Types)
		}
	}
	c := &Catalog{groups: groups, byPath: make(map[path]*Type, n)}
	for _, g := range groups {
		for _, v := range g.Versions {
			for _, t := range v.Types {
				c.byPath[path{g.Name, v.Name, t.Resource}] = t
			}
		}
	}
	return c
}

// Groups returns what discovery shows. The caller must not change it.
func (c *Catalog) Groups() []Group { return c.groups }

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
