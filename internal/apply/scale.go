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

// Replicas are where a kind has the replicas that its scale subresource speaks of:
// names of members, by apiVersion. A version without a path has no scale; entries of
// versions that are not here are lost when somebody scales.
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

// ToScale are the managed fields of the Scale of an object that has these: who owns
// the replicas. They are what an Update or Apply of the Scale starts from.
func (r Replicas) ToScale(managed []byte) ([]byte, error) {
	entries, err := decodeEntries(managed)
	if err != nil {
		return nil, err
	}
	out, err := managedfields.NewScaleHandler(entries, schema.GroupVersion{}, r.mappings()).ToSubresource()
	return encodeEntries(out, err)
}

// FromScale are the managed fields of the object, which had these at its version,
// after its Scale got those of scale. They are equal when the replicas' owners stay. As in
// kube-apiserver, the entry of the one who scales has no time.
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

// Untimed takes from those who scaled the time that this write gave them: as upstream,
// they have the one that they had before, mostly none, and then stand first.
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
