package podspec

import "k8s.io/apimachinery/pkg/util/validation/field"

// lazyPath is a path in an object, or a placeholder that costs nothing where no message needs it.
// The zero value is the object itself.
type lazyPath struct {
	path *field.Path
	// unread marks a placeholder. All paths below it are the placeholder itself.
	unread bool
}

// Child returns the path of a member.
func (p lazyPath) Child(name string, more ...string) lazyPath {
	switch {
	case p.unread:
		return p
	case p.path == nil:
		return lazyPath{path: field.NewPath(name, more...)}
	}
	return lazyPath{path: p.path.Child(name, more...)}
}

// Index returns the path of an item of a list.
func (p lazyPath) Index(i int) lazyPath {
	if p.unread {
		return p
	}
	return lazyPath{path: p.path.Index(i)}
}

// Key returns the path of an entry of a map.
func (p lazyPath) Key(key string) lazyPath {
	if p.unread {
		return p
	}
	return lazyPath{path: p.path.Key(key)}
}

func (p lazyPath) String() string { return p.path.String() }
