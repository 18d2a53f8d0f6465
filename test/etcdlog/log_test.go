// Package etcdlog_test tests the log on etcd with members of etcd in this process.
package etcdlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/etcdlog"
)

const prefix = "/registry"

// codec stores the value behind the offset of the revision and a colon.
func codec() etcdlog.Codec {
	return etcdlog.Codec{
		Prefix: func(collection string) (string, error) { return prefix + "/" + collection + "/", nil },
		Place: func(etcdKey string) (collection, key string, ok bool) {
			rest, ok := strings.CutPrefix(etcdKey, prefix+"/")
			if !ok {
				return "", "", false
			}
			collection, key, ok = strings.Cut(rest, "/")
			return collection, key, ok && key != ""
		},
		Encode: func(_, _ string, value []byte, revisionAt int) ([]byte, error) {
			return append(strconv.AppendInt(nil, int64(revisionAt), 10), ":"+string(value)...), nil
		},
		Decode: func(_ context.Context, _, _ string, stored []byte) (etcdlog.Decoded, error) {
			at, value, ok := bytes.Cut(stored, []byte(":"))
			n, err := strconv.Atoi(string(at))
			if !ok || err != nil || n > len(value) {
				return etcdlog.Decoded{}, fmt.Errorf("the value %q is not one of this codec", stored)
			}
			return etcdlog.Decoded{Value: bytes.Clone(value), RevisionAt: n, Outdated: bytes.Contains(value, []byte("outdated"))}, nil
		},
	}
}

// openUnowned opens a log of the cluster, which the caller closes.
func openUnowned(t testing.TB, c *cluster) *etcdlog.Log {
	t.Helper()
	l, err := etcdlog.Open(etcdlog.Options{Servers: c.servers(), Codec: codec(), CompactionInterval: -1})
	must(t, err)
	return l
}

// open opens a log of the cluster. Change may change its options; nil: it does not.
func open(t testing.TB, c *cluster, change func(*etcdlog.Options)) *etcdlog.Log {
	t.Helper()
	o := etcdlog.Options{Servers: c.servers(), Codec: codec(), CompactionInterval: -1}
	if os.Getenv("ETCD_LOG") != "" {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if change != nil {
		change(&o)
	}
	l, err := etcdlog.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

// put returns a write of an object whose value has the text.
func put(collection, key, text string, condition store.Revision) store.Write {
	head := fmt.Sprintf(`{"text":%q,"rv":"`, text)
	return store.Write{Collection: collection, Key: key, Value: []byte(head + `"}`), RevisionAt: len(head), If: condition}
}

func value(text string, r store.Revision) string {
	return fmt.Sprintf(`{"text":%q,"rv":"%d"}`, text, r)
}

func del(collection, key string, condition store.Revision) store.Write {
	return store.Write{Collection: collection, Key: key, If: condition}
}

// propose makes a transaction, and fails the test if it is not made.
func propose(t testing.TB, l *etcdlog.Log, writes ...store.Write) store.Revision {
	t.Helper()
	d, err := l.Propose(t.Context(), &store.Txn{Writes: writes})
	if err != nil || !d.Made {
		t.Fatalf("propose %s %s: got %+v, %v, want it made", writes[0].Collection, writes[0].Key, d, err)
	}
	return d.Revision
}

// load returns all objects by collection and key.
func load(t testing.TB, l *etcdlog.Log) (map[string]*store.Object, store.Bounds) {
	t.Helper()
	for {
		all := map[string]*store.Object{}
		var mu sync.Mutex
		b, err := l.Load(t.Context(), func(collection string, o *store.Object) error {
			mu.Lock()
			defer mu.Unlock()
			all[collection+" "+o.Key] = o
			return nil
		})
		switch {
		case err == nil:
			return all, b
		case !errors.As(err, new(*store.ExpiredError)): // compaction overtook it
			t.Fatalf("load: %v", err)
		}
	}
}

func TestLoad(t *testing.T) {
	c := startCluster(t, 1, nil)
	l := open(t, c, nil)
	want := map[string]store.Revision{}
	const objects = 1500 // several pages
	for i := range objects {
		key := fmt.Sprintf("ns/%04d", i)
		want["pods "+key] = propose(t, l, put("pods", key, "text of "+key, 0))
	}
	for _, collection := range []string{"0", "Upper", "zz", "{"} {
		want[collection+" x"] = propose(t, l, put(collection, "x", "text of x", 0))
	}
	head, err := l.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, b := load(t, l)
	if b.Head != head || b.Floor < 1 || b.Floor > 2 || len(all) != len(want) {
		t.Errorf("load: got %d objects, %+v, want %d and head %d, floor 1", len(all), b, len(want), head)
	}
	for place, revision := range want {
		o := all[place]
		_, key, _ := strings.Cut(place, " ")
		if o == nil || o.Created != revision || o.Modified != revision || string(o.Bytes()) != value("text of "+key, revision) {
			t.Fatalf("%s: got %+v, want revision %d", place, o, revision)
		}
	}
}

// follow collects batches until the revision is reached.
func follow(t testing.TB, l *etcdlog.Log, after, upTo store.Revision) []store.Batch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var all []store.Batch
	for b, err := range l.Follow(ctx, after) {
		if err != nil {
			t.Fatalf("follow after %d to %d: %v, got %+v", after, upTo, err, all)
		}
		all = append(all, b)
		if b.Through >= upTo {
			break
		}
	}
	return all
}

func entries(batches []store.Batch) (all []store.Entry) {
	for _, b := range batches {
		all = append(all, b.Entries...)
	}
	return all
}

func text(all []store.Entry) string {
	var b strings.Builder
	for _, e := range all {
		fmt.Fprintf(&b, "%d %s %s", e.Revision, e.Collection, e.Key)
		if e.Before != nil {
			fmt.Fprintf(&b, " was %d %s", e.Before.Modified, e.Before.Bytes())
		}
		if e.Object != nil {
			fmt.Fprintf(&b, " is %d of %d %s", e.Object.Modified, e.Object.Created, e.Object.Bytes())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// TestFollow compares the changes of two logs with the writes of one of them.
func TestFollow(t *testing.T) {
	c := startCluster(t, 1, nil)
	writer, reader := open(t, c, nil), open(t, c, nil)
	_, b := load(t, reader)
	r1 := propose(t, writer, put("pods", "a", "one", 0))
	r2 := propose(t, writer, put("pods", "a", "two", r1), put("nodes", "n", "node", 0))
	r3 := propose(t, writer, del("pods", "a", r2))
	want := fmt.Sprintf(`%[1]d pods a is %[1]d of %[1]d %[4]s
%[2]d pods a is %[2]d of %[1]d %[5]s
%[2]d nodes n is %[2]d of %[2]d %[6]s
%[3]d pods a
`, r1, r2, r3, value("one", r1), value("two", r2), value("node", r2))
	for name, l := range map[string]*etcdlog.Log{"writer": writer, "reader": reader} {
		if got := text(entries(follow(t, l, b.Head, r3))); got != want {
			t.Errorf("%s: got\n%swant\n%s", name, got, want)
		}
		if got := text(entries(follow(t, l, r1, r3))); got != want[strings.Index(want, "\n")+1:] {
			t.Errorf("%s, after %d: got\n%s", name, r1, got)
		}
	}
	t.Run("Changes", func(t *testing.T) {
		var all []store.Entry
		for e, err := range reader.Changes(t.Context(), "pods", b.Head, r3) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		want := fmt.Sprintf(`%[1]d pods a is %[1]d of %[1]d %[4]s
%[2]d pods a was %[1]d %[4]s is %[2]d of %[1]d %[5]s
%[3]d pods a was %[2]d %[5]s
`, r1, r2, r3, value("one", r1), value("two", r2))
		if got := text(all); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
	t.Run("ObjectsAt", func(t *testing.T) {
		at := func(r store.Revision, prefix, after string) (keys []string) {
			for o, err := range reader.ObjectsAt(t.Context(), "pods", r, prefix, after) {
				if err != nil {
					t.Fatal(err)
				}
				keys = append(keys, fmt.Sprint(o.Key, "@", o.Modified))
			}
			return keys
		}
		if got, want := at(r1, "", ""), []string{fmt.Sprint("a@", r1)}; !slices.Equal(got, want) {
			t.Errorf("at %d: got %q, want %q", r1, got, want)
		}
		if got := at(r3, "", ""); got != nil {
			t.Errorf("at %d: got %q, want none", r3, got)
		}
		if got := at(r1, "", "a"); got != nil {
			t.Errorf("behind a: got %q, want none", got)
		}
		if got := at(r1, "b", ""); got != nil {
			t.Errorf("below b: got %q, want none", got)
		}
		for _, err := range reader.ObjectsAt(t.Context(), "pods", r3+100, "", "") {
			if tooLarge := (*store.TooLargeError)(nil); !errors.As(err, &tooLarge) {
				t.Errorf("in the future: got %v", err)
			}
		}
	})
}

// TestConditions has a row for each condition.
func TestConditions(t *testing.T) {
	c := startCluster(t, 1, nil)
	l := open(t, c, nil)
	r := propose(t, l, put("pods", "a", "one", 0))
	claimed, err := l.Propose(t.Context(), &store.Txn{Writes: []store.Write{put("pods", "b", "one", 0)}, Guards: []store.Guard{{Name: "port", Seen: r, Claim: true}}})
	if err != nil || !claimed.Made {
		t.Fatalf("claim: got %+v, %v", claimed, err)
	}
	long := strings.Repeat("long", 100)
	write := []store.Write{put("pods", "c", "one", 0)}
	for _, row := range []struct {
		name string
		txn  store.Txn
		made bool
	}{
		{"exists", store.Txn{Writes: []store.Write{put("pods", "a", "two", 0)}}, false},
		{"conflict", store.Txn{Writes: []store.Write{put("pods", "a", "two", r+1)}}, false},
		{"missing", store.Txn{Writes: []store.Write{del("pods", "x", r)}}, false},
		{"need changed", store.Txn{Writes: write, Needs: []store.Need{{Collection: "pods", Key: "a", Modified: r - 1}}}, false},
		{"need absent", store.Txn{Writes: write, Needs: []store.Need{{Collection: "pods", Key: "a"}}}, false},
		{"claimed since", store.Txn{Writes: write, Guards: []store.Guard{{Name: "port", Seen: claimed.Revision - 1}}}, false},
		{"claimed and seen, and since", store.Txn{Writes: write, Guards: []store.Guard{{Name: "port", Seen: claimed.Revision}, {Name: "port", Seen: r}}}, false},
		{"all hold", store.Txn{Writes: append(write, put("pods", "a", "two", r)), Needs: []store.Need{{Collection: "pods", Key: "b", Modified: claimed.Revision}, {Collection: "pods", Key: "x"}},
			Guards: []store.Guard{{Name: "port", Seen: claimed.Revision}, {Name: long, Seen: claimed.Revision, Claim: true}}}, true},
		{"long claimed since", store.Txn{Writes: []store.Write{put("pods", "d", "one", 0)}, Guards: []store.Guard{{Name: long, Seen: claimed.Revision}}}, false},
		{"two versions in one", store.Txn{Writes: []store.Write{put("pods", "e", "one", 0), {Collection: "pods", Key: "e", Next: true, Value: []byte("{}"), RevisionAt: 1}}}, true},
	} {
		d, err := l.Propose(t.Context(), &row.txn)
		if err != nil || d.Made != row.made || d.Revision < claimed.Revision {
			t.Errorf("%s: got %+v, %v, want made %v", row.name, d, err, row.made)
		}
	}
	all, _ := load(t, l)
	if len(all) != 4 || string(all["pods e"].Unversioned()) != "{}" {
		t.Errorf("got %d objects, want 4: guards are none, and the last version is stored", len(all))
	}
}

// TestUnfit proposes values that etcd does not accept.
func TestUnfit(t *testing.T) {
	c := startCluster(t, 1, nil)
	l := open(t, c, nil)
	for _, size := range []int{2 << 20, 6 << 20} {
		var unfit *store.UnfitError
		_, err := l.Propose(t.Context(), &store.Txn{Writes: []store.Write{put("pods", "a", strings.Repeat("x", size), 0)}})
		if !errors.As(err, &unfit) || !unfit.Size {
			t.Errorf("%d bytes: got %v, want an UnfitError of the size", size, err)
		}
	}
	txn := &store.Txn{Writes: []store.Write{put("pods", "a", "", 0)}}
	for i := range 127 {
		txn.Needs = append(txn.Needs, store.Need{Collection: "pods", Key: fmt.Sprint(i)})
	}
	var unfit *store.UnfitError
	if _, err := l.Propose(t.Context(), txn); !errors.As(err, &unfit) || unfit.Size || !unfit.Parts || !strings.Contains(unfit.Why, "129") {
		t.Errorf("129 conditions: got %v", err)
	}
	txn.Needs = txn.Needs[1:]
	if d, err := l.Propose(t.Context(), txn); err != nil || !d.Made {
		t.Errorf("128 conditions: got %+v, %v", d, err)
	}
}
