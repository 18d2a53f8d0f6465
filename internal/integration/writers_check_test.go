package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// event is an event of a watch.
type event struct {
	kind   string
	object *written
}

// record holds the events of a watch.
type record struct {
	t       *testing.T
	path    string
	decoder *json.Decoder
	events  []event
}

func (w *writers) watch(path string, after uint64) *record {
	w.t.Helper()
	resp, err := w.http.Get(fmt.Sprintf("%s%s?watch=1&resourceVersion=%d", w.host, path, after))
	if err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("watching %s: %v", path, err)
	}
	w.t.Cleanup(func() { resp.Body.Close() })
	return &record{t: w.t, path: path, decoder: json.NewDecoder(resp.Body)}
}

// until reads events up to a version.
func (r *record) until(version uint64) {
	r.t.Helper()
	for len(r.events) == 0 || r.events[len(r.events)-1].object.version() < version {
		var e struct {
			Type   string
			Object json.RawMessage
		}
		if err := r.decoder.Decode(&e); err != nil {
			r.t.Fatalf("the watch of %s: %v", r.path, err)
		}
		o, err := read(r.path, e.Object)
		if err != nil || e.Type == "ERROR" {
			r.t.Fatalf("the watch of %s: %v: %s", r.path, err, e.Object)
		}
		r.events = append(r.events, event{e.Type, o})
	}
}

// state is a collection at a version: its objects by name.
type state struct {
	version uint64
	objects map[string]*written
}

func (w *writers) list(path, query string) state {
	w.t.Helper()
	resp, err := w.http.Get(w.host + path + query)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var l struct {
		Metadata struct{ ResourceVersion string }
		Items    []json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&l); err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("list %s%s: %d %v", path, query, resp.StatusCode, err)
	}
	s := state{objects: map[string]*written{}}
	if s.version, err = strconv.ParseUint(l.Metadata.ResourceVersion, 10, 64); err != nil {
		w.t.Fatal(err)
	}
	for _, raw := range l.Items {
		o, err := read(path, raw)
		if err != nil {
			w.t.Fatal(err)
		}
		s.objects[o.Metadata.Name] = o
	}
	return s
}

// check checks that each event of a collection follows from the ones before it.
func (w *writers) check(r *record) {
	w.t.Helper()
	now, gone := map[string]*written{}, map[string]uint64{}
	byVersion, last := map[uint64]*written{}, map[string]*written{}
	var before uint64
	for _, e := range r.events {
		o, m := e.object, &e.object.Metadata
		version, was := o.version(), now[m.Name]
		if version <= before {
			w.t.Errorf("%s: an event at %d after one at %d", r.path, version, before)
		}
		before = version
		if at, ok := gone[m.UID]; ok {
			w.t.Errorf("%s: %s of %s at %d, which is gone since %d", r.path, e.kind, m.UID, version, at)
		}
		switch {
		case (e.kind == "ADDED") != (was == nil):
			w.t.Errorf("%s: %s of %s, which was there: %v", r.path, e.kind, m.Name, was != nil)
		case e.kind == "DELETED":
			delete(now, m.Name)
			gone[m.UID] = version
			w.checkRemoval(was)
		case e.kind == "MODIFIED":
			w.checkChange(was, o)
			fallthrough
		default:
			now[m.Name] = o
			byVersion[version] = o
		}
		last[m.UID] = o
		w.checkManaged(o)
		if strings.Contains(string(o.raw), `"dry"`) {
			w.t.Errorf("a dry-run left %s", o.raw)
		}
	}
	w.checkResponses(r.path, byVersion, gone)
	for uid, o := range last {
		w.checkLast(uid, o)
	}
	w.same(r.path, now, w.list(r.path, fmt.Sprintf("?resourceVersionMatch=Exact&resourceVersion=%d", before)).objects)
}

// checkRemoval checks that an object was removed only without other finalizers.
func (w *writers) checkRemoval(was *written) {
	if was == nil {
		return
	}
	held := len(was.Metadata.Finalizers)
	if held > 1 || held == 1 && was.Metadata.DeletionTimestamp == "" {
		w.t.Errorf("it was removed with its finalizers: %s", was.raw)
	}
}

// checkChange compares two successive states of an object.
func (w *writers) checkChange(was, is *written) {
	a, b := &was.Metadata, &is.Metadata
	if a.UID != b.UID {
		w.t.Errorf("%s became %s without a deletion", was.raw, is.raw)
	}
	want := a.Generation
	begun := a.DeletionTimestamp == "" && b.DeletionTimestamp != ""
	// Of a Deployment annotations count, too.
	desired := !reflect.DeepEqual(was.tree["spec"], is.tree["spec"]) || !reflect.DeepEqual(was.annotations(), is.annotations())
	if want > 0 && (begun || desired) {
		want++
	}
	if b.Generation != want {
		w.t.Errorf("generation %d, want %d, between\n%s\n%s", b.Generation, want, was.raw, is.raw)
	}
	if begun || a.DeletionTimestamp == "" {
		return
	}
	if a.DeletionTimestamp != b.DeletionTimestamp {
		w.t.Errorf("the deletion timestamp %s became %s", a.DeletionTimestamp, b.DeletionTimestamp)
	}
	for _, f := range b.Finalizers {
		if strings.Contains(f, "/") && !slices.Contains(a.Finalizers, f) {
			w.t.Errorf("the finalizer %s is new on an object that is deleted: %s", f, is.raw)
		}
	}
}

// checkResponses checks that each response is the state that the watch showed at its
// version, and that none is newer than the end of its object.
func (w *writers) checkResponses(path string, events map[uint64]*written, gone map[string]uint64) {
	for _, a := range w.responses {
		if a.path != path {
			continue
		}
		if at, ok := gone[a.Metadata.UID]; ok && a.version() >= at {
			w.t.Errorf("%s is gone since %d, and was written at %d", a.Metadata.UID, at, a.version())
		}
		if a.going() {
			continue
		}
		e := events[a.version()]
		if e == nil {
			w.t.Errorf("no event has the version of what was acknowledged: %s", a.raw)
		} else if !bytes.Equal(e.raw, a.raw) {
			w.t.Errorf("acknowledged was\n%s\nand the event of that version is\n%s", a.raw, e.raw)
		}
	}
}

// checkLast checks that the final object has the keys that were acknowledged to their
// writers.
func (w *writers) checkLast(uid string, o *written) {
	keys := o.keys()
	for key, want := range w.own[uid] {
		if got, _ := keys[key].(string); got != want {
			w.t.Errorf("lost update: %s=%q was acknowledged, the last state is %s", key, want, o.raw)
		}
	}
	if n := w.counted[uid]; n > 0 && keys["count"] != strconv.Itoa(n) {
		w.t.Errorf("%d increments were acknowledged, the last state is %s", n, o.raw)
	}
}

// checkManaged checks that managed fields are well-formed, belong to one writer each,
// and contain only fields of the object.
func (w *writers) checkManaged(o *written) {
	var managed struct {
		Metadata struct {
			ManagedFields []struct {
				Manager, Operation, APIVersion, Time, FieldsType, Subresource string
				FieldsV1                                                      json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(o.raw, &managed); err != nil {
		w.t.Error(err)
		return
	}
	entries := managed.Metadata.ManagedFields
	seen := map[string]bool{}
	for _, e := range entries {
		id := fmt.Sprint(e.Manager, e.Operation, e.APIVersion, e.Subresource)
		if e.Operation == "Update" && e.Time == "" { // an apply without a change has none
			w.t.Errorf("managed fields of %s have no time of %s", o.raw, id)
		}
		if e.Manager == "" || e.Operation != "Apply" && e.Operation != "Update" || e.APIVersion == "" || e.FieldsType != "FieldsV1" || seen[id] {
			w.t.Errorf("managed fields of %s have %+v, twice: %v", o.raw, e, seen[id])
		}
		seen[id] = true
		var set fieldpath.Set
		if err := set.FromJSON(bytes.NewReader(e.FieldsV1)); err != nil || set.Empty() {
			w.t.Errorf("managed fields of %s: %v in %s", o.raw, err, e.FieldsV1)
		}
		set.Iterate(func(p fieldpath.Path) {
			if !has(o.tree, p) {
				w.t.Errorf("%s owns %s of %s", e.Manager, p, o.raw)
			}
		})
	}
	if len(entries) == 0 {
		w.t.Errorf("no manager owns a field of %s", o.raw)
	}
}

// has reports whether a value has a field at a path.
func has(v any, p fieldpath.Path) bool {
	for _, e := range p {
		items, _ := v.([]any)
		i := -1
		switch {
		case e.FieldName != nil:
			m, _ := v.(map[string]any)
			inner, ok := m[*e.FieldName]
			if !ok {
				return false
			}
			v = inner
			continue
		case e.Key != nil:
			i = slices.IndexFunc(items, func(item any) bool { return hasKey(item, *e.Key) })
		case e.Value != nil:
			i = slices.IndexFunc(items, func(item any) bool { return reflect.DeepEqual(item, (*e.Value).Unstructured()) })
		case e.Index != nil && *e.Index < len(items):
			i = *e.Index
		}
		if i < 0 {
			return false
		}
		v = items[i]
	}
	return true
}

func hasKey(item any, key value.FieldList) bool {
	m, ok := item.(map[string]any)
	for _, f := range key {
		ok = ok && reflect.DeepEqual(m[f.Name], f.Value.Unstructured())
	}
	return ok
}

// same compares the objects after replaying all events with a list.
func (w *writers) same(path string, replayed, listed map[string]*written) {
	w.t.Helper()
	if len(replayed) != len(listed) {
		w.t.Errorf("%s: the events leave %d objects, the list has %d", path, len(replayed), len(listed))
	}
	for name, o := range listed {
		var want map[string]any
		if e := replayed[name]; e != nil {
			want = withoutKind(e.tree)
		}
		if !reflect.DeepEqual(withoutKind(o.tree), want) {
			w.t.Errorf("%s: the list has %s, the events %v", path, o.raw, want)
		}
	}
}

// withoutKind returns an object without kind and apiVersion, as lists have it.
func withoutKind(tree map[string]any) map[string]any {
	out := map[string]any{}
	for name, v := range tree {
		if name != "kind" && name != "apiVersion" {
			out[name] = v
		}
	}
	return out
}

// again watches and lists from past versions, and checks that the events and states
// are the same as before.
func (w *writers) again(chance *rand.Rand, r *record) {
	w.t.Helper()
	for range 5 {
		at := chance.IntN(len(r.events))
		version := r.events[at].object.version()
		objects := map[string]*written{}
		for _, e := range r.events[:at+1] {
			if objects[e.object.Metadata.Name] = e.object; e.kind == "DELETED" {
				delete(objects, e.object.Metadata.Name)
			}
		}
		w.same(r.path, objects, w.list(r.path, fmt.Sprintf("?resourceVersionMatch=Exact&resourceVersion=%d", version)).objects)
		if at == len(r.events)-1 {
			continue
		}
		later := w.watch(r.path, version)
		later.until(r.events[len(r.events)-1].object.version())
		for i, e := range later.events {
			if want := r.events[at+1+i]; e.kind != want.kind || !bytes.Equal(e.object.raw, want.object.raw) {
				w.t.Fatalf("%s: event %d after %d is %s %s, was %s %s", r.path, i, version, e.kind, e.object.raw, want.kind, want.object.raw)
			}
		}
	}
}

// checkChildren checks that no object is left whose owners are all gone.
func (w *writers) checkChildren() {
	w.t.Helper()
	there := map[string]bool{}
	for _, path := range []string{configMaps, deployments} {
		for _, o := range w.list(path, "").objects {
			there[o.Metadata.UID] = true
		}
	}
	for _, o := range w.list(configMaps, "?labelSelector=child").objects {
		owners := o.Metadata.OwnerReferences
		if len(owners) > 0 && !there[owners[0].UID] {
			w.t.Errorf("the owner of %s is gone", o.raw)
		}
	}
}
