package apply

import (
	"fmt"
	"time"

	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// Write describes the write that managed fields record.
type Write struct {
	// Manager is the field manager's name; empty is "unknown".
	Manager string
	// Subresource is the subresource of the write, "" for the object itself.
	Subresource string
	// Time is the time of the write; managedFields have whole seconds.
	Time time.Time
}

// Update returns metadata.managedFields after a create (old is nil) or an update. The
// objects are JSON in the schema's version; managed fields inside them are ignored. before
// is the array to start from, see Before. No bytes mean no entries, before and after. The
// result equals before when the write changed no owner. An existing object without entries
// has none until a configuration is applied to it. An object that does not fit its schema
// where it changes, or in a list without keys beside the change, keeps its entries as they were, as in kube-apiserver; a new
// one has none. An error means that one of the
// objects is not a JSON object.
func (s *Schema) Update(before, old, next []byte, w Write) ([]byte, error) {
	entries, err := parseManaged(before)
	if err != nil {
		entries = nil
	}
	if len(entries) == 0 && old != nil {
		return nil, nil
	}
	if after, ok := s.updateFast(entries, old, next, w); ok {
		return encodeManaged(after), nil
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
		if old == nil {
			return nil, nil
		}
		return before, nil
	}
	return encodeManaged(entries), nil
}

// Fits reports whether an object, which is JSON in the schema's version, fits the schema.
func (s *Schema) Fits(object []byte) bool {
	all, err := tree(object)
	if err == nil {
		_, err = s.typed(all, typed.AllowDuplicates)
	}
	return err == nil
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
