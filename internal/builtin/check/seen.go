package check

import (
	"maps"
	"slices"
)

// Seen are values that stood before, for finding what stands twice in time that grows as
// the list does. The zero value has none.
type Seen[K comparable] struct {
	few  [8]K // the first of them, compared one by one: most lists are short
	n    int
	more map[K]struct{}
}

// SeenIn are the values of a list.
func SeenIn[K comparable](all []K) (s Seen[K]) {
	for _, v := range all {
		s.Again(v)
	}
	return s
}

// Has reports whether the value stood before.
func (s *Seen[K]) Has(v K) bool {
	for _, have := range s.few[:s.n] {
		if have == v {
			return true
		}
	}
	_, ok := s.more[v]
	return ok
}

// Again reports whether the value stood before, and adds it.
func (s *Seen[K]) Again(v K) bool {
	switch {
	case s.Has(v):
		return true
	case s.n < len(s.few):
		s.few[s.n] = v
		s.n++
	case s.more == nil:
		s.more = map[K]struct{}{v: {}}
	default:
		s.more[v] = struct{}{}
	}
	return false
}

// All are the values, each once, in no order.
func (s *Seen[K]) All() []K { return slices.AppendSeq(slices.Clone(s.few[:s.n]), maps.Keys(s.more)) }
