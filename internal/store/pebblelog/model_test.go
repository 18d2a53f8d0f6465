package pebblelog_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// model is a naive log: every entry that was ever appended, in a list.
type model struct {
	entries []store.Entry
	marks   []store.Mark
	floor   store.Revision
	big     bool // some objects are big enough for memtables to be flushed
}

func (m *model) clone() *model {
	return &model{entries: slices.Clone(m.entries), marks: slices.Clone(m.marks), floor: m.floor, big: m.big}
}

func (m *model) head() store.Revision {
	if len(m.entries) == 0 {
		return 0
	}
	return m.entries[len(m.entries)-1].Revision
}

// at returns a collection as of a revision, in the order of keys.
func (m *model) at(collection string, r store.Revision) []*store.Object {
	state := map[string]*store.Object{}
	for _, e := range m.entries {
		if e.Revision <= r && e.Collection == collection {
			state[e.Key] = e.Object
		}
	}
	var objects []*store.Object
	for _, o := range state {
		if o != nil {
			objects = append(objects, o)
		}
	}
	slices.SortFunc(objects, func(a, b *store.Object) int { return strings.Compare(a.Key, b.Key) })
	return objects
}

func (m *model) changes(collection string, after, upTo store.Revision) []store.Entry {
	var changes []store.Entry
	for _, e := range m.entries {
		if e.Revision > after && e.Revision <= upTo && (collection == "" || e.Collection == collection) {
			changes = append(changes, e)
		}
	}
	return changes
}

var (
	collections = []string{"pods", "pod", "deployments.apps"}
	keys        = []string{"a", "a/a", "a/b", "ab", "a/aa", "b/x", "b/x-1", "b/x.1", "\x01", "\xff\xff", "ns/ü", "zzz"}
)

// group makes a random group that follows the model, and does not add it.
func (m *model) group(rng *rand.Rand) []store.Entry {
	next := m.clone()
	start := len(next.entries)
	for range 1 + rng.IntN(6) {
		c := collections[rng.IntN(len(collections))]
		k := keys[rng.IntN(len(keys))]
		e := store.Entry{Collection: c, Key: k, Revision: next.head() + 1 + store.Revision(rng.IntN(2))}
		for i := len(next.entries) - 1; i >= 0; i-- {
			if p := next.entries[i]; p.Collection == c && p.Key == k {
				e.Before = p.Object
				break
			}
		}
		e.Origin = next.origin(rng)
		if e.Before == nil || rng.IntN(4) > 0 {
			padding := rng.IntN(400)
			if m.big && rng.IntN(20) == 0 {
				padding = 100 << 10
			}
			e.Object = object(k, e.Revision, e.Before, padding)
		}
		next.entries = append(next.entries, e)
	}
	return next.entries[start:]
}

// actors are those that changes have most of the time.
var actors = []*store.Actor{
	{User: "alice", UserAgent: "kubectl/v1.36", FieldManager: "kubectl"},
	{User: "system:apiserver", Loop: "namespace", Subresource: "finalize"},
	{},
}

// origin makes the origin of the next change, nil now and then.
func (m *model) origin(rng *rand.Rand) *store.Origin {
	o := &store.Origin{Time: m.time(), Verb: store.Verb(rng.IntN(7))}
	if o.Time.IsZero() {
		o.Time = time.UnixMicro(1_800_000_000_000_000).UTC()
	}
	if rng.IntN(3) == 0 {
		o.Time = o.Time.Add(time.Duration(rng.IntN(1000)) * time.Millisecond)
	}
	switch rng.IntN(12) {
	case 0:
		return nil
	case 1: // no actor
	case 2:
		o.Actor = &store.Actor{User: fmt.Sprint(rng.Uint64()), UserAgent: strings.Repeat("x", rng.IntN(store.MaxActorField+1))}
	default:
		o.Actor = actors[rng.IntN(len(actors))]
	}
	switch rng.IntN(3) {
	case 0:
		o.AuditID = store.AuditUUID([16]byte{1, byte(rng.IntN(256))})
	case 1:
		o.AuditID = store.NewAuditID(strings.Repeat("t", rng.IntN(20)))
	}
	return o
}

// time is that of the newest change that has one.
func (m *model) time() time.Time {
	for _, e := range slices.Backward(m.entries) {
		if e.Origin != nil {
			return e.Origin.Time
		}
	}
	return time.Time{}
}

// sameOrigin compares two origins; nil is one, too.
func sameOrigin(a, b *store.Origin) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Actor == nil || b.Actor == nil {
		return *a == *b
	}
	actors := *a.Actor == *b.Actor
	return actors && a.Time == b.Time && a.Verb == b.Verb && a.AuditID == b.AuditID
}

// object makes a version of an object, with padding.
func object(key string, r store.Revision, before *store.Object, padding int) *store.Object {
	o := &store.Object{Key: key, Created: r, Modified: r}
	if before != nil {
		o.Created = before.Created
	}
	head := fmt.Sprintf(`{"name":%q,"resourceVersion":"`, key)
	o.RevisionAt = int32(len(head))
	o.Held = []byte(head + strconv.FormatUint(uint64(r), 10) + `","data":"` + strings.Repeat("x", padding) + `"}`)
	return o
}

// compact takes the floor, as the log's Compact does.
func (m *model) compact(floor store.Revision) {
	if floor = min(floor, m.head()); floor <= m.floor {
		return
	}
	m.floor = floor
	for len(m.marks) > 1 && m.marks[0].Revision < floor {
		m.marks = m.marks[1:]
	}
}

// same compares two versions of an object; nil is one, too.
func same(a, b *store.Object) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Key == b.Key && a.Created == b.Created && a.Modified == b.Modified &&
		a.RevisionAt == b.RevisionAt && bytes.Equal(a.Bytes(), b.Bytes())
}

func sameEntry(a, b store.Entry) bool {
	return a.Collection == b.Collection && a.Key == b.Key && a.Revision == b.Revision &&
		same(a.Object, b.Object) && same(a.Before, b.Before) && sameOrigin(a.Origin, b.Origin)
}

var diffOptions = cmp.Options{cmpopts.IgnoreUnexported(store.Object{}), cmpopts.EquateComparable(store.AuditID{}), cmpopts.EquateEmpty()}

// replay reads the log as a start does.
func replay(log store.Log) (map[string]map[string]*store.Object, store.Bounds, error) {
	var mu sync.Mutex
	objects := map[string]map[string]*store.Object{}
	bounds, err := log.Replay(context.Background(), func(c string, o *store.Object) error {
		mu.Lock()
		defer mu.Unlock()
		if objects[c] == nil {
			objects[c] = map[string]*store.Object{}
		}
		if objects[c][o.Key] != nil {
			return fmt.Errorf("%s %s came twice", c, o.Key)
		}
		objects[c][o.Key] = o
		return nil
	})
	return objects, bounds, err
}

// verifyStart compares the result of replay with the model.
func (m *model) verifyStart(log store.Log) error {
	objects, bounds, err := replay(log)
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	if d := cmp.Diff(bounds, store.Bounds{Head: m.head(), Floor: m.floor, Time: m.time(), Marks: m.marks}, diffOptions); d != "" {
		return fmt.Errorf("the bounds (- got, + want):\n%s", d)
	}
	want := map[string]map[string]*store.Object{}
	for _, c := range collections {
		for _, o := range m.at(c, m.head()) {
			if want[c] == nil {
				want[c] = map[string]*store.Object{}
			}
			want[c][o.Key] = o
		}
	}
	sameObjects := func(a, b map[string]*store.Object) bool { return maps.EqualFunc(a, b, same) }
	if !maps.EqualFunc(objects, want, sameObjects) {
		d := cmp.Diff(objects, want, diffOptions)
		return fmt.Errorf("the newest state (- got, + want):\n%s", d)
	}
	return nil
}

// verify compares the log to the model: the newest state, some exact states, some
// changes; and has the log prove itself.
func (m *model) verify(log *pebblelog.Log, rng *rand.Rand, reads int) error {
	ctx := context.Background()
	if err := m.verifyStart(log); err != nil {
		return err
	}
	if err := log.Check(ctx); err != nil {
		return err
	}
	between := func(a, b store.Revision) store.Revision { return a + store.Revision(rng.Uint64N(uint64(b-a)+1)) }
	for range reads {
		c := collections[rng.IntN(len(collections))]
		at := between(m.floor, m.head())
		prefix := []string{"", "", "a", "a/", "b/", "zzz", "none", "\x00"}[rng.IntN(8)]
		after := []string{"", "", "a", "a/a", "a\x00b", "b/x", "\xff", "0"}[rng.IntN(8)]
		var want, got []*store.Object
		for _, o := range m.at(c, at) {
			if strings.HasPrefix(o.Key, prefix) && o.Key > after {
				want = append(want, o)
			}
		}
		for o, err := range log.ObjectsAt(ctx, c, at, prefix, after) {
			if err != nil {
				return fmt.Errorf("objects of %s at %d: %w", c, at, err)
			}
			got = append(got, o)
		}
		if !slices.EqualFunc(got, want, same) {
			d := cmp.Diff(got, want, diffOptions)
			return fmt.Errorf("objects of %s at %d, prefix %q, after %q (- got, + want):\n%s", c, at, prefix, after, d)
		}
		if err := m.verifyChanges(log, []string{"", c}[rng.IntN(2)], at, between(at, m.head())); err != nil {
			return err
		}
	}
	return nil
}

func (m *model) verifyChanges(log store.Log, collection string, after, upTo store.Revision) error {
	var got []store.Entry
	for e, err := range log.Changes(context.Background(), collection, after, upTo) {
		if err != nil {
			return fmt.Errorf("changes of %q after %d up to %d: %w", collection, after, upTo, err)
		}
		got = append(got, e)
	}
	if want := m.changes(collection, after, upTo); !slices.EqualFunc(got, want, sameEntry) {
		d := cmp.Diff(got, want, diffOptions)
		return fmt.Errorf("changes of %q after %d up to %d (- got, + want):\n%s", collection, after, upTo, d)
	}
	return nil
}

// step does one random thing to the log and the model: mostly an append, now and
// then a compaction. It returns the error of the log.
func (m *model) step(log store.Log, rng *rand.Rand) error {
	if rng.IntN(20) == 0 && m.head() > m.floor {
		floor := m.floor + store.Revision(rng.Uint64N(uint64(m.head()-m.floor)+1))
		if err := log.Compact(context.Background(), floor); err != nil {
			return err
		}
		m.compact(floor)
		return nil
	}
	g := m.group(rng)
	mark := m.nextMark(rng, g)
	if err := log.Append(context.Background(), g, mark); err != nil {
		return err
	}
	m.add(g, mark)
	return nil
}

func (m *model) nextMark(rng *rand.Rand, g []store.Entry) *store.Mark {
	if rng.IntN(5) > 0 {
		return nil
	}
	r := g[len(g)-1].Revision
	return &store.Mark{Revision: r, Running: time.Duration(r) * time.Second}
}

func (m *model) add(g []store.Entry, mark *store.Mark) {
	m.entries = append(m.entries, g...)
	if mark != nil {
		m.marks = append(m.marks, *mark)
	}
}

// options are those of the logs of models, whose actors are soon defined again.
func options(fs vfs.FS) pebblelog.Options {
	o := pebblelog.Options{Dir: "/log", FS: fs}
	o.SetReach(50)
	return o
}

func open(fs vfs.FS) (*pebblelog.Log, error) {
	return pebblelog.Open(context.Background(), options(fs))
}

func mustOpen(t *testing.T, fs vfs.FS) *pebblelog.Log {
	t.Helper()
	log, err := open(fs)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func mustClose(t *testing.T, log store.Log) {
	t.Helper()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestModel(t *testing.T) {
	rng := testrand.New(t)
	fs := vfs.NewMem()
	log := mustOpen(t, fs)
	var m model
	for i := range 1500 {
		if err := m.step(log, rng); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if i%100 == 0 {
			mustClose(t, log)
			log = mustOpen(t, fs)
		}
		if i%25 == 0 {
			if err := m.verify(log, rng, 10); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
		}
	}
	mustClose(t, log)
}
