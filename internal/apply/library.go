package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// This file goes through the library: merge.Updater, with objects as trees.

const (
	currentOperation = "current-operation"
	beforeFirstApply = "before-first-apply"
	ancientChanges   = "ancient-changes"
	maxUpdateEntries = 10
)

// neverOwned is system metadata, which no manager owns.
var neverOwned = fieldpath.NewSet(
	fieldpath.MakePathOrDie("apiVersion"),
	fieldpath.MakePathOrDie("kind"),
	fieldpath.MakePathOrDie("metadata"),
	fieldpath.MakePathOrDie("metadata", "name"),
	fieldpath.MakePathOrDie("metadata", "namespace"),
	fieldpath.MakePathOrDie("metadata", "creationTimestamp"),
	fieldpath.MakePathOrDie("metadata", "selfLink"),
	fieldpath.MakePathOrDie("metadata", "uid"),
	fieldpath.MakePathOrDie("metadata", "clusterName"),
	fieldpath.MakePathOrDie("metadata", "generation"),
	fieldpath.MakePathOrDie("metadata", "managedFields"),
	fieldpath.MakePathOrDie("metadata", "resourceVersion"),
)

// owners are entries in the library's form, by their id.
type owners struct {
	sets  fieldpath.ManagedFields
	heads map[string]*entry
}

func newOwners(entries []*entry) owners {
	o := owners{sets: fieldpath.ManagedFields{}, heads: map[string]*entry{}}
	for _, e := range entries {
		id := e.id()
		o.sets[id] = fieldpath.NewVersionedSet(e.fields.library(), fieldpath.APIVersion(e.apiVersion), e.applied)
		o.heads[id] = e
	}
	return o
}

// entries converts the sets back to entries. Unchanged entries stay as they were.
func (o owners) entries() ([]*entry, error) {
	var out []*entry
	for id, vs := range o.sets {
		head := o.heads[id]
		if head.fields != nil && head.fields.library() == vs.Set() && head.apiVersion == string(vs.APIVersion()) {
			out = append(out, head)
			continue
		}
		e := *head
		f, err := fieldsOf(vs.Set())
		if err != nil {
			return nil, err
		}
		e.fields, e.apiVersion = f, string(vs.APIVersion())
		out = append(out, &e)
	}
	return out, nil
}

// updateByLibrary is Update for existing entries, or for a create.
func (s *Schema) updateByLibrary(entries []*entry, live, next any, w Write) ([]*entry, error) {
	o := newOwners(entries)
	liveTyped, err := s.typed(live, typed.AllowDuplicates)
	if err != nil {
		return nil, err
	}
	nextTyped, err := s.typed(next, typed.AllowDuplicates)
	if err != nil {
		return nil, err
	}
	u := s.updater(w.Subresource, entries)
	version := fieldpath.APIVersion(s.apiVersion())
	_, sets, err := u.Update(liveTyped, nextTyped, version, o.sets, currentOperation)
	if err != nil {
		return nil, err
	}
	o.sets = sets
	if vs, ok := sets[currentOperation]; ok {
		delete(sets, currentOperation)
		if own := vs.Set().Difference(neverOwned); !own.Empty() {
			head := w.entry(s, false)
			id := head.id()
			if previous, ok := sets[id]; ok {
				own = own.Union(previous.Set())
			}
			sets[id] = fieldpath.NewVersionedSet(own, version, false)
			o.heads[id] = head
		}
	}
	out, err := o.entries()
	if err != nil {
		return nil, err
	}
	return capped(out)
}

// entry returns a new entry of the writer, without fields.
func (w Write) entry(s *Schema, applied bool) *entry {
	e := &entry{manager: w.Manager, apiVersion: s.apiVersion(), subresource: w.Subresource, applied: applied}
	if e.manager == "" {
		e.manager = "unknown"
	}
	e.setTime(w.Time)
	return e
}

// capped merges the oldest update entries of each version, while there are too many.
func capped(entries []*entry) ([]*entry, error) {
	var updates []*entry
	for _, e := range entries {
		if !e.applied {
			updates = append(updates, e)
		}
	}
	if len(updates) <= maxUpdateEntries {
		return entries, nil
	}
	ids := make(map[*entry]string, len(updates))
	for _, e := range updates {
		ids[e] = e.id()
	}
	slices.SortFunc(updates, func(a, b *entry) int {
		if a.seconds != b.seconds {
			return int(min(1, max(-1, a.seconds-b.seconds)))
		}
		return strings.Compare(ids[a], ids[b])
	})
	o := newOwners(entries)
	first := map[string]string{}
	left := len(updates)
	for _, e := range updates {
		if left <= maxUpdateEntries {
			break
		}
		bucket := &entry{manager: ancientChanges, apiVersion: e.apiVersion}
		oldest, ok := first[e.apiVersion]
		if !ok {
			first[e.apiVersion] = ids[e]
			continue
		}
		id, own := bucket.id(), ids[e]
		if _, ok := o.sets[id]; !ok {
			o.sets[id] = o.sets[oldest]
			delete(o.sets, oldest)
		}
		o.sets[id] = fieldpath.NewVersionedSet(o.sets[own].Set().Union(o.sets[id].Set()), fieldpath.APIVersion(e.apiVersion), false)
		bucket.time, bucket.seconds = e.time, e.seconds
		o.heads[id] = bucket
		delete(o.sets, own)
		left--
	}
	return o.entries()
}

func (s *Schema) updater(subresource string, entries []*entry) *merge.Updater {
	b := merge.UpdaterBuilder{Converter: converter{s}}
	if f := s.resets[subresource]; f != nil {
		b.IgnoreFilter = map[fieldpath.APIVersion]fieldpath.Filter{}
		b.IgnoreFilter[fieldpath.APIVersion(s.apiVersion())] = f.library
		for _, e := range entries {
			b.IgnoreFilter[fieldpath.APIVersion(e.apiVersion)] = f.library
		}
	}
	return b.BuildUpdater()
}

// typed checks a tree against the schema.
func (s *Schema) typed(tree any, o ...typed.ValidationOptions) (*typed.TypedValue, error) {
	typ, err := s.typ()
	if err != nil {
		return nil, err
	}
	return typ.FromUnstructured(tree, o...)
}

// tree decodes JSON as the library needs it, without managed fields.
func tree(object []byte) (map[string]any, error) {
	m := map[string]any{}
	if err := utiljson.Unmarshal(object, &m); err != nil {
		return nil, err
	}
	if meta, ok := m["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	return m, nil
}

// converter converts typed values between versions.
type converter struct{ s *Schema }

var errUnknownVersion = errors.New("the kind has no such version")

func (converter) IsMissingVersionError(err error) bool { return errors.Is(err, errUnknownVersion) }

func (c converter) Convert(v *typed.TypedValue, version fieldpath.APIVersion) (*typed.TypedValue, error) {
	from, err := c.version(v)
	if err != nil {
		return v, err
	}
	if from.apiVersion() == string(version) {
		return v, nil
	}
	to := c.s
	if string(version) != c.s.apiVersion() {
		if to = c.s.other(string(version)); to == nil {
			return v, errUnknownVersion
		}
	}
	object, err := json.Marshal(v.AsValue().Unstructured())
	if err != nil {
		return v, err
	}
	object, err = c.s.versions.Convert(object, from.apiVersion(), string(version))
	if err != nil {
		return v, fmt.Errorf("as %s: %w", version, err)
	}
	converted, err := tree(object)
	if err != nil {
		return v, err
	}
	return to.typed(converted, typed.AllowDuplicates)
}

// version returns the schema of a value.
func (c converter) version(v *typed.TypedValue) (*Schema, error) {
	own, err := c.s.typ()
	if err != nil {
		return nil, err
	}
	if v.Schema() == own.Schema {
		return c.s, nil
	}
	if m, ok := v.AsValue().Unstructured().(map[string]any); ok {
		if apiVersion, ok := m["apiVersion"].(string); ok {
			if s := c.s.other(apiVersion); s != nil {
				return s, nil
			}
		}
	}
	return nil, errUnknownVersion
}

// other returns the schema of another version, nil if it is unknown. A version of another group
// is: kube-apiserver has no schemas of the core group when it writes an Event of events.k8s.io, nor
// the other way round.
func (s *Schema) other(apiVersion string) *Schema {
	if s.versions.Schema == nil || s.versions.Convert == nil {
		return nil
	}
	if gv, err := schema.ParseGroupVersion(apiVersion); err != nil || gv.Group != s.kind.Group {
		return nil
	}
	return s.versions.Schema(apiVersion)
}

// checkVersions returns an error if a manager of a custom resource owns fields in a version that the
// definition no longer has. kube-apiserver refuses such an apply with these words, and tools that
// migrate custom resources rely on it. For built-in kinds it drops the entries.
func (s *Schema) checkVersions(entries []*entry) error {
	if !s.custom {
		return nil
	}
	for _, e := range entries {
		if e.apiVersion != s.apiVersion() && s.other(e.apiVersion) == nil {
			return fmt.Errorf("request to convert CR to an invalid group/version: %s", e.apiVersion)
		}
	}
	return nil
}

// applyByLibrary merges the patch into the live tree. The tree is nil when nothing changed.
func (s *Schema) applyByLibrary(entries []*entry, live, patch any, w applying) (map[string]any, []*entry, error) {
	patchTyped, err := s.typed(patch)
	if err != nil {
		return nil, nil, &patchError{err}
	}
	liveTyped, err := s.typed(live, typed.AllowDuplicates)
	if err != nil {
		tree, _ := live.(map[string]any)
		return nil, nil, fmt.Errorf("failed to create typed live object (%s): %w", named(tree), err)
	}
	if err := s.checkVersions(entries); err != nil {
		return nil, nil, err
	}
	head := w.entry(s, true)
	id := head.id()
	o := newOwners(entries)
	version := fieldpath.APIVersion(s.apiVersion())
	next, sets, err := s.updater(w.Subresource, entries).Apply(liveTyped, patchTyped, version, o.sets, id, w.force)
	if err != nil {
		return nil, nil, err
	}
	o.sets = sets
	if vs, ok := sets[id]; ok {
		if own := vs.Set().Difference(neverOwned); own.Empty() {
			delete(sets, id)
		} else {
			sets[id] = fieldpath.NewVersionedSet(own, version, true)
		}
	}
	if next == nil {
		if last := o.heads[id]; last != nil {
			head.time, head.seconds = last.time, last.seconds
		} else {
			head.time, head.seconds = "", 0
		}
	}
	if last := o.heads[id]; last != nil && sets[id] != nil && last.time == head.time && last.fields.library().Equals(sets[id].Set()) {
		head.fields = last.fields
		sets[id] = fieldpath.NewVersionedSet(last.fields.library(), version, true)
	}
	o.heads[id] = head
	out, err := o.entries()
	if err != nil || next == nil {
		return nil, out, err
	}
	result, ok := next.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, nil, fmt.Errorf("the merged object is no JSON object")
	}
	return result, out, nil
}

// patchError is an error in an applied configuration.
type patchError struct{ err error }

func (e *patchError) Error() string { return e.err.Error() }
