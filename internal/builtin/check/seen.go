package check

import (
	"maps"
	"slices"
)

// Seen is a set of values that finds duplicates in linear time. The zero value is empty.
type Seen[K comparable] struct {
	few  [8]K // the first ones, compared one by one: most lists are short
	n    int
	more map[K]struct{}
}

// SeenIn returns the set of the values of a list.
func SeenIn[K comparable](all []K) (s Seen[K]) {
	for _, v := range all {
		s.Again(v)
	}
	return s
}

// Has reports whether v is in the set.
func (s *Seen[K]) Has(v K) bool {
	for _, have := range s.few[:s.n] {
		if have == v {
			return true
		}
	}
	_, ok := s.more[v]
	return ok
}

// Again adds v, and reports whether it was in the set.
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

// All returns the values in no particular order.
func (s *Seen[K]) All() []K { return slices.AppendSeq(slices.Clone(s.few[:s.n]), maps.Keys(s.more)) }
