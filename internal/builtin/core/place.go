package core

import "k8s.io/apimachinery/pkg/util/validation/field"

// place is a path in an object that is only made where somebody will read it. The
// zero value is the object itself.
type place struct {
	path *field.Path
	// unread: nobody will. All below it is itself, and costs nothing.
	unread bool
}

// Child is a member, and what is below it.
func (p place) Child(name string, more ...string) place {
	switch {
	case p.unread:
		return p
	case p.path == nil:
		return place{path: field.NewPath(name, more...)}
	}
	return place{path: p.path.Child(name, more...)}
}

// Index is an item of a list.
func (p place) Index(i int) place {
	if p.unread {
		return p
	}
	return place{path: p.path.Index(i)}
}

// Key is the member of a map.
func (p place) Key(key string) place {
	if p.unread {
		return p
	}
	return place{path: p.path.Key(key)}
}

func (p place) String() string { return p.path.String() }
