package apply

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
)

// Apply merges an applied configuration into the live object, and returns the merged object and its
// managed fields. The objects are JSON in the schema's version; live is nil for a new object.
// before holds the managed fields of live, as in Update; patch is the configuration as JSON. next
// is nil if the live object does not change. It has no managed fields, and still needs defaulting
// and validation.
//
// Errors are *apierrors.StatusError: 409 with causes for conflicts, 400 for an invalid patch. Any
// other error means that live is not a JSON object.
func (s *Schema) Apply(before, live, patch []byte, w Write, force bool) (next, managed []byte, err error) {
	entries, err := parseManaged(before)
	if err != nil {
		return nil, nil, fmt.Errorf("managed fields of the object: %w", err)
	}
	was := live
	if live == nil {
		was = s.empty
	}
	if len(entries) == 0 && live != nil {
		first := w
		first.Manager = beforeFirstApply
		if entries, err = s.firstEntries(was, first); err != nil {
			return nil, nil, err
		}
	}
	next, after, ok := s.applyBytes(entries, was, patch, applying{w, force})
	if !ok {
		if next, after, err = s.applyTrees(entries, was, patch, applying{w, force}); err != nil {
			return nil, nil, err
		}
	}
	if next == nil && live == nil {
		next = was
	}
	return next, encodeManaged(after), nil
}

// applying is the writer, and whether it takes over fields of other owners.
type applying struct {
	Write
	force bool
}

// applyBytes takes the fast path where it can. kubectl's annotation is left to the library.
func (s *Schema) applyBytes(entries []*entry, live, patch []byte, w applying) (next []byte, after []*entry, ok bool) {
	if w.Manager == "kubectl" && (bytes.Contains(live, []byte(lastApplied)) || bytes.Contains(patch, []byte(lastApplied))) {
		return nil, nil, false
	}
	return s.applyFast(entries, live, patch, w)
}

// firstEntries returns the entries of an object that has none at its first apply: one
// manager owns all of its fields.
func (s *Schema) firstEntries(live []byte, first Write) ([]*entry, error) {
	if entries, ok := s.updateFast(nil, nil, live, first); ok {
		for _, e := range entries {
			var err error
			if e.fields, err = parsed.get(e.fields.json); err != nil {
				return nil, err
			}
		}
		return entries, nil
	}
	empty, err := s.liveTree(nil)
	if err != nil {
		return nil, err
	}
	was, err := s.liveTree(live)
	if err != nil {
		return nil, err
	}
	entries, err := s.updateByLibrary(nil, empty, was, first)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("failed to create manager for existing fields: %v", err))
	}
	return entries, nil
}

// applyTrees applies by the library.
func (s *Schema) applyTrees(entries []*entry, live, patch []byte, w applying) (next []byte, after []*entry, err error) {
	patched, err := s.patchTree(patch)
	if err != nil {
		return nil, nil, err
	}
	was, err := s.liveTree(live)
	if err != nil {
		return nil, nil, err
	}
	merged, after, err := s.applyWithLastApplied(entries, was, patched, w)
	if err != nil {
		return nil, nil, statusOf(err, patched)
	}
	if w.Manager == "kubectl" {
		if merged, err = keepLastApplied(merged, was, patched); err != nil {
			return nil, nil, err
		}
	}
	if merged != nil {
		if next, err = json.Marshal(merged); err != nil {
			return nil, nil, err
		}
	}
	return next, after, nil
}

// patchTree decodes the configuration, and makes the checks that do not depend on the object.
func (s *Schema) patchTree(patch []byte) (map[string]any, error) {
	m := map[string]any{}
	if err := unmarshalTree(patch, &m); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: error unmarshaling JSON: while decoding JSON: %v", err))
	}
	u := unstructured.Unstructured{Object: m}
	if gvk := u.GroupVersionKind(); gvk != s.kind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid object type: %v", gvk))
	}
	if u.GetManagedFields() != nil {
		return nil, apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	return m, nil
}

// statusOf returns the error for the client.
func statusOf(err error, patch map[string]any) error {
	var conflicts merge.Conflicts
	if errors.As(err, &conflicts) {
		return conflictError(conflicts)
	}
	var wrong *patchError
	if errors.As(err, &wrong) {
		return apierrors.NewBadRequest(fmt.Sprintf("failed to create typed patch object (%s): %v", named(patch), wrong.err))
	}
	return apierrors.NewBadRequest(err.Error())
}

// named describes the object of a patch.
func named(patch map[string]any) string {
	u := unstructured.Unstructured{Object: patch}
	return fmt.Sprintf("%v/%v; %v", u.GetNamespace(), u.GetName(), u.GroupVersionKind())
}
