package apply

import (
	"bytes"
	"fmt"
	"time"
)

// Write says who writes.
type Write struct {
	// Manager is the field manager's name; empty is "unknown".
	Manager string
	// Subresource is what was written to; empty is the object itself.
	Subresource string
	// Time is when; the wire has whole seconds of it.
	Time time.Time
}

// Update answers with metadata.managedFields as they are after a create (old is
// nil) or an update: row G7. The objects are JSON in the schema's version; managed
// fields inside them are ignored. before is the array to start from: see Before. No
// bytes are no entries, before and after. Before comes back, the same bytes, when
// the write changed nothing of it. An object that existed without entries stays
// without until something is applied to it. An object that does not fit its schema,
// where it changes, loses its entries, as upstream. An error means that an object is no JSON object.
func (s *Schema) Update(before, old, next []byte, w Write) ([]byte, error) {
	entries, err := parseManaged(before)
	if err != nil {
		entries = nil
	}
	if len(entries) == 0 && old != nil {
		return nil, nil
	}
	if after, ok := s.updateStraight(entries, old, next, w); ok {
		return unlessSame(before, encodeManaged(after)), nil
	}
	live, err := s.liveTree(old)
	if err != nil {
		return nil, err
	}
	after, err := tree(next)
	if err != nil {
		return nil, fmt.Errorf("the object: %w", err)
	}
	entries, err = s.updateByLibrary(entries, live, after, w)
	if err != nil {
		return nil, nil
	}
	return unlessSame(before, encodeManaged(entries)), nil
}

// liveTree is the object before the write; a create has an empty one.
func (s *Schema) liveTree(old []byte) (map[string]any, error) {
	if old == nil {
		old = s.empty
	}
	live, err := tree(old)
	if err != nil {
		return nil, fmt.Errorf("the object as it was: %w", err)
	}
	live["apiVersion"], live["kind"] = s.apiVersion(), s.kind.Kind
	return live, nil
}

func unlessSame(before, after []byte) []byte {
	if bytes.Equal(before, after) {
		return before
	}
	return after
}
