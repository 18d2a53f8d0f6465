package apply

import (
	"errors"
	"maps"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
)

// lastApplied is the annotation in which kubectl's client-side apply keeps its
// configuration.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// applyWithLastApplied applies a patch. kubectl takes over, without a conflict, the fields
// that its client-side apply set and that have not changed since.
func (s *Schema) applyWithLastApplied(entries []*entry, live, patch map[string]any, w applying) (map[string]any, []*entry, error) {
	next, after, err := s.applyByLibrary(entries, live, patch, w)
	var conflicts merge.Conflicts
	if w.Manager != "kubectl" || !errors.As(err, &conflicts) {
		return next, after, err
	}
	allowed, unknown := s.setByLastApplied(live)
	if unknown != nil {
		return next, after, err
	}
	var left merge.Conflicts
	for _, c := range conflicts {
		if !allowed.Has(c.Path) {
			left = append(left, c)
		}
	}
	if len(left) > 0 {
		return nil, nil, left
	}
	w.force = true
	return s.applyByLibrary(entries, live, patch, w)
}

var errNoLastApplied = errors.New("no last applied configuration of this version")

// setByLastApplied returns the fields that the annotation's configuration set and the live
// object still has.
func (s *Schema) setByLastApplied(live map[string]any) (*fieldpath.Set, error) {
	u := unstructured.Unstructured{Object: live}
	text := u.GetAnnotations()[lastApplied]
	if text == "" {
		return nil, errNoLastApplied
	}
	last := &unstructured.Unstructured{}
	if err := last.UnmarshalJSON([]byte(text)); err != nil {
		return nil, err
	}
	if last.GetAPIVersion() != s.apiVersion() || last.GetKind() != s.kind.Kind {
		return nil, errNoLastApplied
	}
	lastTyped, err := s.typed(last.Object)
	if err != nil {
		return nil, err
	}
	set, err := lastTyped.ToFieldSet()
	if err != nil {
		return nil, err
	}
	liveTyped, err := s.typed(live) // as in kube-apiserver, nothing is taken over from an object with duplicates
	if err != nil {
		return nil, err
	}
	changes, err := lastTyped.Compare(liveTyped)
	if err != nil {
		return nil, err
	}
	return set.Difference(changes.Modified).Difference(changes.Added).Difference(changes.Removed), nil
}

// keepLastApplied updates the annotation where there is one, so that a client-side apply
// can follow. Merged is nil when nothing else has changed.
func keepLastApplied(merged, live, patch map[string]any) (map[string]any, error) {
	to := merged
	if to == nil {
		to = live
	}
	u := unstructured.Unstructured{Object: to}
	annotations := u.GetAnnotations()
	if annotations[lastApplied] == "" {
		return merged, nil
	}
	sent := unstructured.Unstructured{Object: maps.Clone(patch)}
	if _, has, _ := unstructured.NestedFieldNoCopy(patch, "metadata", "annotations"); has { // null, perhaps
		of := sent.GetAnnotations()
		sent = *sent.DeepCopy()
		delete(of, lastApplied)
		sent.SetAnnotations(of)
	}
	text, err := sent.MarshalJSON()
	if err != nil {
		return nil, err
	}
	if annotations[lastApplied] == string(text) {
		return merged, nil
	}
	annotations[lastApplied] = string(text)
	if validation.ValidateAnnotationsSize(annotations) != nil {
		delete(annotations, lastApplied)
	}
	u.SetAnnotations(annotations)
	return to, nil
}

func unmarshalTree(data []byte, to *map[string]any) error {
	return utiljson.Unmarshal(data, to)
}
