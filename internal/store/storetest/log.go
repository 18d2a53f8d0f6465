package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// logObject returns an object as the store passes it to a log.
func logObject(key, text string, created, modified store.Revision) *store.Object {
	head := fmt.Sprintf(`{"text":%q,"rv":"`, text)
	return &store.Object{Key: key, Held: []byte(value(text, modified)), Created: created, Modified: modified, RevisionAt: int32(len(head))}
}

// replayed opens a log and returns the objects that it replays, ordered by collection and
// key.
func replayed(t *testing.T, log store.Log) (store.Bounds, []string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	b, err := log.Replay(t.Context(), func(collection string, o *store.Object) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, collection+" "+text([]*store.Object{o}))
		return nil
	})
	if err != nil {
		t.Fatalf("replay: %v", err)
	}
	slices.Sort(all)
	return b, all
}

func closeLog(t *testing.T, log store.Log) {
	t.Helper()
	if err := log.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func appendAll(t *testing.T, log store.Log, mark *store.Mark, entries ...store.Entry) {
	t.Helper()
	if err := log.Append(t.Context(), entries, mark); err != nil {
		t.Fatalf("append: %v", err)
	}
}

func changes(t *testing.T, log store.Log, collection string, after, upTo store.Revision) ([]string, error) {
	t.Helper()
	var all []string
	for e, err := range log.Changes(t.Context(), collection, after, upTo) {
		if err != nil {
			return all, err
		}
		all = append(all, entryText(e))
	}
	return all, nil
}

func entryText(e store.Entry) string {
	s := fmt.Sprintf("%d %s %s:", e.Revision, e.Collection, e.Key)
	for _, o := range []*store.Object{e.Before, e.Object} {
		if o == nil {
			s += " -"
		} else {
			s += fmt.Sprintf(" %d/%d/%d/%s", o.Created, o.Modified, o.RevisionAt, o.Bytes())
		}
	}
	if e.Origin != nil {
		s += fmt.Sprintf(" %d %s", e.Origin.Time.UnixMicro(), caused(e.Origin))
	}
	return s
}

func testLogEmpty(t *testing.T, medium Medium) {
	open := medium(t)
	log := open(t)
	b, all := replayed(t, log)
	if len(all) > 0 || b.Floor > b.Head || len(b.Marks) > 0 {
		t.Errorf("an empty log replays %v, %d objects", b, len(all))
	}
	if got, err := collect(log.ObjectsAt(t.Context(), "pods", b.Head, "", "")); err != nil || len(got) > 0 {
		t.Errorf("objects of an empty log: %d, %v", len(got), err)
	}
	if got, err := changes(t, log, "", b.Head, b.Head); err != nil || len(got) > 0 {
		t.Errorf("changes of an empty log: %d, %v", len(got), err)
	}
	closeLog(t, log)
}

// story returns a few changes after a revision: groups of entries that change one key
// twice.
func story(r store.Revision) [][]store.Entry {
	by := func(second int64, verb store.Verb, actor *store.Actor, id string) *store.Origin {
		return &store.Origin{Time: time.Unix(1_800_000_000+second, 0).UTC(), Verb: verb, Actor: actor, AuditID: store.NewAuditID(id)}
	}
	alice, bob := &store.Actor{User: "alice", UserAgent: "kubectl"}, &store.Actor{User: "bob", FieldManager: "m", Subresource: "status", Loop: "l"}
	const id = "5d8c3c9a-0f0e-4c1e-9c55-0123456789ab"
	a1 := logObject("ns/a", "one", r+1, r+1)
	b2 := logObject("ns/b", "two", r+2, r+2)
	a3 := logObject("ns/a", "three", r+1, r+3)
	a4 := logObject("ns/a", "four", r+1, r+4)
	x5 := logObject("x", "other", r+5, r+5)
	c7 := logObject("ns2/c", "seven", r+7, r+7)
	b8 := logObject("ns/b", "again", r+8, r+8)
	return [][]store.Entry{
		{{Collection: "pods", Key: "ns/a", Revision: r + 1, Object: a1, Origin: by(1, store.VerbCreate, alice, id)}},
		{{Collection: "pods", Key: "ns/b", Revision: r + 2, Object: b2, Origin: by(2, store.VerbCreate, bob, "")},
			{Collection: "pods", Key: "ns/a", Revision: r + 3, Object: a3, Before: a1, Origin: by(2, store.VerbPatch, alice, "text")},
			{Collection: "pods", Key: "ns/a", Revision: r + 4, Object: a4, Before: a3, Origin: by(2, store.VerbUpdate, bob, id)},
			{Collection: "nodes", Key: "x", Revision: r + 5, Object: x5},
			{Collection: "pods", Key: "ns/b", Revision: r + 6, Before: b2, Origin: by(2, store.VerbDeleteCollection, nil, "")}},
		{{Collection: "pods", Key: "ns2/c", Revision: r + 7, Object: c7, Origin: by(3, 0, nil, "")}},
		{{Collection: "pods", Key: "ns/b", Revision: r + 8, Object: b8, Origin: by(3, store.VerbApply, alice, id)}},
	}
}

// objectsAt returns the objects at each revision of the story, as text(objects).
func objectsAt(entries []store.Entry, collection string, at store.Revision) []*store.Object {
	state := map[string]*store.Object{}
	for _, e := range entries {
		if e.Collection != collection || e.Revision > at {
			continue
		}
		if e.Object == nil {
			delete(state, e.Key)
		} else {
			state[e.Key] = e.Object
		}
	}
	var all []*store.Object
	for _, o := range state {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *store.Object) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
	return all
}

// checkStory compares the log's history above a floor with the story.
func checkStory(t *testing.T, log store.Log, entries []store.Entry, floor, head store.Revision) {
	t.Helper()
	for _, collection := range []string{"pods", "nodes", "unknown"} {
		for at := floor; at <= head; at++ {
			got, err := collect(log.ObjectsAt(t.Context(), collection, at, "", ""))
			if want := objectsAt(entries, collection, at); err != nil || text(got) != text(want) {
				t.Errorf("%s at %d: got %v\n%swant\n%s", collection, at, err, text(got), text(want))
			}
		}
	}
	for _, collection := range []string{"pods", "nodes", "unknown", ""} {
		for after := floor; after <= head; after++ {
			var want []string
			for _, e := range entries {
				if e.Revision > after && e.Revision < head && (collection == "" || e.Collection == collection) {
					want = append(want, entryText(e))
				}
			}
			if got, err := changes(t, log, collection, after, head-1); err != nil || !slices.Equal(got, want) {
				t.Errorf("changes of %q after %d: got %v %q want %q", collection, after, err, got, want)
			}
		}
	}
}

// checkCurrent compares the newest versions with the story.
func checkCurrent(t *testing.T, log store.Log, entries []store.Entry, head store.Revision) {
	t.Helper()
	for _, place := range [][2]string{{"pods", "ns/a"}, {"pods", "ns/b"}, {"pods", "ns2/c"}, {"nodes", "x"}, {"nodes", "absent"}, {"unknown", "x"}} {
		var want []*store.Object
		for _, o := range objectsAt(entries, place[0], head) {
			if o.Key == place[1] {
				want = append(want, o)
			}
		}
		o, err := log.Current(place[0], place[1])
		var got []*store.Object
		if o != nil {
			got = append(got, o)
		}
		if err != nil || text(got) != text(want) {
			t.Errorf("current %v: got %v %s want %s", place, err, text(got), text(want))
		}
	}
}

func testLogOrder(t *testing.T, medium Medium) {
	log := medium(t)(t)
	b, _ := replayed(t, log)
	groups := story(b.Head)
	for _, g := range groups {
		appendAll(t, log, nil, g...)
	}
	checkStory(t, log, slices.Concat(groups...), b.Head, b.Head+8)
	checkCurrent(t, log, slices.Concat(groups...), b.Head+8)
	for _, c := range []struct {
		prefix, after string
		want          []string
	}{
		{"", "", []string{"ns/a", "ns/b", "ns2/c"}},
		{"ns/", "", []string{"ns/a", "ns/b"}},
		{"ns", "", []string{"ns/a", "ns/b", "ns2/c"}},
		{"ns/", "ns/a", []string{"ns/b"}},
		{"ns/", "ns/b", nil},
		{"ns/", "ns2", nil},
		{"ns2/", "a", []string{"ns2/c"}},
		{"", "ns/a\x01", []string{"ns/b", "ns2/c"}},
		{"zz", "", nil},
	} {
		got, err := collect(log.ObjectsAt(t.Context(), "pods", b.Head+8, c.prefix, c.after))
		var keys []string
		for _, o := range got {
			keys = append(keys, o.Key)
		}
		if err != nil || !slices.Equal(keys, c.want) {
			t.Errorf("prefix %q after %q: got %q, %v, want %q", c.prefix, c.after, keys, err, c.want)
		}
	}
	for range log.ObjectsAt(t.Context(), "pods", b.Head+8, "", "") {
		break // a reader may stop early
	}
	for range log.Changes(t.Context(), "", b.Head, b.Head+8) {
		break
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := collect(log.ObjectsAt(ended, "pods", b.Head+8, "", "")); !errors.Is(err, context.Canceled) {
		t.Errorf("a scan whose context ended: %v", err)
	}
	closeLog(t, log)
}

func testLogRestart(t *testing.T, medium Medium) {
	open := medium(t)
	log := open(t)
	first, _ := replayed(t, log)
	groups := story(first.Head)
	all := slices.Concat(groups...)
	for i, g := range groups {
		if i > 0 {
			closeLog(t, log)
			log = open(t)
			b, _ := replayed(t, log)
			if want := groups[i-1][len(groups[i-1])-1].Revision; b.Head != want {
				t.Fatalf("head after a restart: got %d, want %d", b.Head, want)
			}
		}
		appendAll(t, log, &store.Mark{Revision: g[len(g)-1].Revision, Running: time.Duration(i) * time.Second}, g...)
	}
	closeLog(t, log)
	log = open(t)
	b, objects := replayed(t, log)
	var want []string
	for _, collection := range []string{"nodes", "pods"} {
		for _, o := range objectsAt(all, collection, first.Head+8) {
			want = append(want, collection+" "+text([]*store.Object{o}))
		}
	}
	if !slices.Equal(objects, want) {
		t.Errorf("replayed %q, want %q", objects, want)
	}
	var marks []store.Mark
	for i, g := range groups {
		marks = append(marks, store.Mark{Revision: g[len(g)-1].Revision, Running: time.Duration(i) * time.Second})
	}
	if !slices.Equal(b.Marks, marks) || b.Floor > first.Head {
		t.Errorf("bounds after a restart: %+v, want marks %v and a floor of at most %d", b, marks, first.Head)
	}
	if want := groups[len(groups)-1][0].Origin.Time; !b.Time.Equal(want) {
		t.Errorf("the time of the newest change after a restart: %v, want %v", b.Time, want)
	}
	checkStory(t, log, all, first.Head, first.Head+8)
	checkCurrent(t, log, all, first.Head+8)
	closeLog(t, log)
	if _, err := log.Current("pods", "ns/a"); err == nil {
		t.Error("a closed log was read")
	}
}

func testLogCompact(t *testing.T, medium Medium) {
	open := medium(t)
	log := open(t)
	b, _ := replayed(t, log)
	r := b.Head
	groups := story(r)
	all := slices.Concat(groups...)
	for i, g := range groups {
		appendAll(t, log, &store.Mark{Revision: g[len(g)-1].Revision, Running: time.Duration(i)}, g...)
	}
	for _, floor := range []store.Revision{r + 3, r + 3, r + 2, r + 6} {
		if err := log.Compact(t.Context(), floor); err != nil {
			t.Fatalf("compact below %d: %v", floor, err)
		}
		floor = max(floor, r+3)
		checkStory(t, log, all, floor, r+8)
		expired := new(*store.ExpiredError)
		if _, err := collect(log.ObjectsAt(t.Context(), "pods", floor-1, "", "")); !errors.As(err, expired) {
			t.Errorf("objects at %d with floor %d: %v, want expired", floor-1, floor, err)
		}
		if _, err := changes(t, log, "pods", floor-1, r+8); !errors.As(err, expired) {
			t.Errorf("changes after %d with floor %d: %v, want expired", floor-1, floor, err)
		}
	}
	closeLog(t, log)
	log = open(t)
	b, _ = replayed(t, log)
	if b.Floor != r+6 || b.Head != r+8 {
		t.Errorf("bounds after compaction and a restart: %+v, want floor %d and head %d", b, r+6, r+8)
	}
	if want := groups[len(groups)-1][0].Origin.Time; !b.Time.Equal(want) {
		t.Errorf("the time of the newest change after compaction: %v, want %v", b.Time, want)
	}
	for _, m := range b.Marks {
		if m.Revision < r+6 {
			t.Errorf("the mark %v outlived its revision", m)
		}
	}
	checkStory(t, log, all, r+6, r+8)
	closeLog(t, log)
}

// testLogConcurrent reads while groups are appended and compacted.
func testLogConcurrent(t *testing.T, medium Medium) {
	log := medium(t)(t)
	b, _ := replayed(t, log)
	const rounds = 200
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for ctx.Err() == nil {
				_, err := collect(log.ObjectsAt(t.Context(), "pods", b.Head, "", ""))
				if expired := new(*store.ExpiredError); err != nil && !errors.As(err, expired) {
					t.Errorf("read during writes: %v", err)
				}
				_, err = changes(t, log, "", b.Head, b.Head+rounds)
				if expired := new(*store.ExpiredError); err != nil && !errors.As(err, expired) {
					t.Errorf("read during writes: %v", err)
				}
				log.Usage()
			}
		})
	}
	var before *store.Object
	for i := range rounds {
		r := b.Head + store.Revision(i) + 1
		o := logObject("k", fmt.Sprint(i), b.Head+1, r)
		appendAll(t, log, nil, store.Entry{Collection: "pods", Key: "k", Revision: r, Object: o, Before: before})
		before = o
		if i == rounds/2 {
			if err := log.Compact(t.Context(), r); err != nil {
				t.Fatalf("compact: %v", err)
			}
		}
	}
	cancel()
	readers.Wait()
	closeLog(t, log)
}
