package apply

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Replicas are the paths of a kind's replicas, as names of members by apiVersion, for its
// scale subresource. A version without a path has no scale. Entries of versions that are
// missing here are lost when the object is scaled.
type Replicas map[string][]string

func (r Replicas) mappings() managedfields.ResourcePathMappings {
	m := managedfields.ResourcePathMappings{}
	for version, names := range r {
		m[version] = nil
		if len(names) == 0 {
			continue
		}
		var path fieldpath.Path
		for _, name := range names {
			path = append(path, fieldpath.FieldNameElement(name))
		}
		m[version] = path
	}
	return m
}

// ToScale returns the managed fields of the Scale of an object, given those of the object:
// who owns the replicas. An Update or Apply of the Scale starts from them.
func (r Replicas) ToScale(managed []byte) ([]byte, error) {
	entries, err := decodeEntries(managed)
	if err != nil {
		return nil, err
	}
	out, err := managedfields.NewScaleHandler(entries, schema.GroupVersion{}, r.mappings()).ToSubresource()
	return encodeEntries(out, err)
}

// FromScale returns the managed fields of the object after its Scale got those of scale,
// given the ones that it had at a version. They are equal when the owners of the replicas
// stay. As in kube-apiserver, the entry of the writer has no time.
func (r Replicas) FromScale(managed, scale []byte, version schema.GroupVersion) ([]byte, error) {
	if was, err := r.ToScale(managed); err != nil || string(was) == string(scale) {
		return managed, err
	}
	entries, err := decodeEntries(managed)
	if err != nil {
		return nil, err
	}
	of, err := decodeEntries(scale)
	if err != nil {
		return nil, err
	}
	out, err := managedfields.NewScaleHandler(entries, version, r.mappings()).ToParent(of)
	return encodeEntries(out, err)
}

// Untimed removes the time of this write from the entries of the scale subresource. As in
// kube-apiserver, they keep the one that they had before, mostly none, and then come first.
func Untimed(before, managed []byte) ([]byte, error) {
	old, err := decodeEntries(before)
	if err != nil {
		return nil, err
	}
	entries, err := decodeEntries(managed)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		if e := &entries[i]; e.Subresource == "scale" {
			e.Time = nil
			for _, o := range old {
				if o.Subresource == e.Subresource && o.Manager == e.Manager && o.Operation == e.Operation && o.APIVersion == e.APIVersion {
					e.Time = o.Time
				}
			}
		}
	}
	rank := func(e metav1.ManagedFieldsEntry) int {
		switch {
		case e.Operation == metav1.ManagedFieldsOperationApply:
			return 0
		case e.Time == nil:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(entries, func(a, b metav1.ManagedFieldsEntry) int { return rank(a) - rank(b) })
	return encodeEntries(entries, nil)
}

func decodeEntries(managed []byte) ([]metav1.ManagedFieldsEntry, error) {
	if len(managed) == 0 {
		return nil, nil
	}
	var entries []metav1.ManagedFieldsEntry
	if err := json.Unmarshal(managed, &entries); err != nil {
		return nil, fmt.Errorf("managed fields: %w", err)
	}
	return entries, nil
}

func encodeEntries(entries []metav1.ManagedFieldsEntry, err error) ([]byte, error) {
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	return json.Marshal(entries)
}
