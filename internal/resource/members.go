package resource

import "strings"

// Members are some of the members of an object as JSON, at any depth. Nil stands for
// all. A value is immutable and safe for concurrent use.
type Members struct {
	only map[string]*Members
	not  map[string]bool
}

// MembersOf are those that paths lead to, each with all that is in it. A path is
// names with dots between them, and goes through lists: "spec.containers.name".
func MembersOf(paths ...string) *Members {
	m := &Members{only: map[string]*Members{}}
	for _, path := range paths {
		at := m
		for {
			name, rest, more := strings.Cut(path, ".")
			if !more {
				at.only[name] = nil
				break
			}
			if at.only[name] == nil {
				at.only[name] = &Members{only: map[string]*Members{}}
			}
			at, path = at.only[name], rest
		}
	}
	return m
}

// AllButManagedFields are what most who look at an object want of it.
var AllButManagedFields = &Members{
	only: map[string]*Members{"metadata": {not: map[string]bool{"managedFields": true}}},
	not:  map[string]bool{},
}

// Of returns what of a member belongs to them: nothing, when it is not one of them.
func (m *Members) Of(name []byte) (inner *Members, ok bool) {
	if inner, ok = m.only[string(name)]; ok || m.not == nil {
		return inner, ok
	}
	return nil, !m.not[string(name)]
}
