package apply

import (
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
)

// Apply merges an applied configuration into the live object, and answers with the
// merged object and its managed fields: rows S2 to S7. The objects are JSON in the
// schema's version; live is nil when there is none yet. before is the live array, as
// for Update; patch is the JSON of the configuration. next is live itself, the same
// bytes, when nothing changed, and so is managed. What is next has no managed
// fields, and needs defaulting and validation.
//
// Errors are *apierrors.StatusError: 409 with causes for conflicts, 400 for what is
// wrong with the patch. Any other error means that live is no JSON object.
func (s *Schema) Apply(before, live, patch []byte, w Write, force bool) (next, managed []byte, err error) {
	patched, err := s.patchTree(patch)
	if err != nil {
		return nil, nil, err
	}
	was, err := s.liveTree(live)
	if err != nil {
		return nil, nil, err
	}
	entries, err := parseManaged(before)
	if err != nil {
		return nil, nil, fmt.Errorf("managed fields of the object: %w", err)
	}
	if len(entries) == 0 {
		first := w
		first.Manager = beforeFirstApply
		empty, err := s.liveTree(nil)
		if err != nil {
			return nil, nil, err
		}
		if entries, err = s.updateByLibrary(nil, empty, was, first); err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("failed to create manager for existing fields: %v", err))
		}
	}
	merged, entries, err := s.applyWithLastApplied(entries, was, patched, w, force)
	if err != nil {
		return nil, nil, statusOf(err, patched)
	}
	next = live
	if w.Manager == "kubectl" {
		if merged, err = keepLastApplied(merged, was, patched); err != nil {
			return nil, nil, err
		}
	}
	if merged != nil || live == nil {
		if merged == nil {
			merged = was
		}
		if next, err = json.Marshal(merged); err != nil {
			return nil, nil, err
		}
	}
	return next, unlessSame(before, encodeManaged(entries)), nil
}

// patchTree reads the configuration and looks at what can be said of it alone.
func (s *Schema) patchTree(patch []byte) (map[string]any, error) {
	m := map[string]any{}
	if err := unmarshalTree(patch, &m); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
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

// statusOf is what a client is told.
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

// named says which object a patch is for.
func named(patch map[string]any) string {
	u := unstructured.Unstructured{Object: patch}
	return fmt.Sprintf("%v/%v; %v", u.GetNamespace(), u.GetName(), u.GroupVersionKind())
}
