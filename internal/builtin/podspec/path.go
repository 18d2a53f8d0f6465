package podspec

import "k8s.io/apimachinery/pkg/util/validation/field"

// lazyPath is a path in an object that is only made where somebody will read it. The
// zero value is the object itself.
type lazyPath struct {
	path *field.Path
	// unread: nobody will. All below it is itself, and costs nothing.
	unread bool
}

// Child is a member, and what is below it.
func (p lazyPath) Child(name string, more ...string) lazyPath {
	switch {
	case p.unread:
		return p
	case p.path == nil:
		return lazyPath{path: field.NewPath(name, more...)}
	}
	return lazyPath{path: p.path.Child(name, more...)}
}

// Index is an item of a list.
func (p lazyPath) Index(i int) lazyPath {
	if p.unread {
		return p
	}
	return lazyPath{path: p.path.Index(i)}
}

// Key is the member of a map.
func (p lazyPath) Key(key string) lazyPath {
	if p.unread {
		return p
	}
	return lazyPath{path: p.path.Key(key)}
}

func (p lazyPath) String() string { return p.path.String() }
