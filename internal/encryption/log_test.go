package encryption

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestSuite runs the suite of logs on wrapped logs. Its collections are encrypted in different
// ways, and some are not.
func TestSuite(t *testing.T) {
	s := mustSet(t, rules("pods", aesgcmKeys("a"), "identity: {}")+"- resources: [nodes]\n  providers: [{"+aescbcKeys("b")+"}]\n"+
		"- resources: [a, b]\n  providers: [{identity: {}}]\n- resources: ['*.*']\n  providers: [{"+secretboxKeys("c")+"}]\n")
	t.Run("Memory", func(t *testing.T) {
		storetest.Run(t, func(testing.TB) func(testing.TB) store.Log {
			log := memlog.New()
			return func(testing.TB) store.Log { return Wrap(log, NewActive(s)) }
		})
	})
	t.Run("Pebble", func(t *testing.T) {
		storetest.Run(t, func(testing.TB) func(testing.TB) store.Log {
			fs := vfs.NewMem()
			return func(t testing.TB) store.Log {
				return Wrap(mustOpen(t, pebblelog.Options{Dir: "/log", FS: fs}), NewActive(s))
			}
		})
	})
	t.Run("Empty", func(t *testing.T) {
		storetest.Run(t, func(testing.TB) func(testing.TB) store.Log {
			log := memlog.New()
			return func(testing.TB) store.Log { return Wrap(log, NewActive(&Set{})) }
		})
	})
}

func mustOpen(t testing.TB, o pebblelog.Options) *pebblelog.Log {
	t.Helper()
	log, err := pebblelog.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// openStore opens a store over a wrapped log; the caller closes it.
func openStore(t testing.TB, log store.Log, s *Set) (*store.Store, error) {
	l := Wrap(log, NewActive(s))
	l.StandIns = SomeStandIns
	return stores.Open(t.Context(), store.Options{Log: l, Encryption: l, OnFatal: func(err error) { t.Errorf("the log failed: %v", err) }})
}

func mustOpenStore(t testing.TB, log store.Log, s *Set) *store.Store {
	t.Helper()
	st, err := openStore(t, log, s)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// write creates, updates or, with an empty text, deletes an object.
func write(t testing.TB, s *store.Store, collection, key, text string) *store.Object {
	t.Helper()
	w := store.Write{Collection: collection, Key: key}
	if o := s.Any().Get(collection, key); o != nil {
		w.If = o.Modified
	}
	if text != "" {
		head := fmt.Sprintf(`{"text":%q,"rv":"`, text)
		w.Value, w.RevisionAt = []byte(head+`"}`), len(head)
	}
	o, err := s.Commit(t.Context(), w)
	if err != nil {
		t.Fatalf("%s %s: %v", collection, key, err)
	}
	return o
}

// TestMarker writes a marker into encrypted objects, and looks for it in every file.
func TestMarker(t *testing.T) {
	const marker = "a-marker-that-is-nowhere-in-clear"
	dir, writes := t.TempDir(), 100
	if tier.IsFull(t) {
		writes = 300
	}
	for _, provider := range []string{aescbcKeys("k"), aesgcmKeys("k"), secretboxKeys("k")} {
		set := mustSet(t, rules("secrets", provider))
		path := filepath.Join(dir, provider[:6])
		open := func() *store.Store {
			return mustOpenStore(t, mustOpen(t, pebblelog.Options{Dir: path}), set)
		}
		s := open()
		for i := range writes {
			text := strings.Repeat(fmt.Sprintf("%s-%d ", marker, i), 50)
			write(t, s, "secrets", fmt.Sprintf("ns/%d", i%40), text)
			write(t, s, "configmaps", "ns/plain", "a-marker-in-clear")
			if i%50 == 49 {
				write(t, s, "secrets", fmt.Sprintf("ns/%d", i%40), "")
				mustFind(t, path, marker, false)
			}
			if i%100 == 99 {
				storetest.Close(t, s)
				mustFind(t, path, marker, false)
				s = open()
			}
		}
		storetest.Close(t, s)
		mustFind(t, path, marker, false)
		log := mustOpen(t, pebblelog.Options{Dir: path})
		if err := errors.Join(log.Compact(t.Context(), 1<<60), log.Reclaim(t.Context()), log.Check(t.Context()), log.Close()); err != nil {
			t.Fatal(err)
		}
		mustFind(t, path, marker, false)
		mustFind(t, path, "a-marker-in-clear", true)
	}
}

// mustFind reports whether a text is in a file of the directory.
func mustFind(t *testing.T, dir, text string, want bool) {
	t.Helper()
	found, files := false, 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if bytes.Contains(b, []byte(text)) {
			found = true
			if !want {
				t.Errorf("%s has %q", path, text)
			}
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if files == 0 || found != want {
		t.Errorf("%q in one of %d files: %v, want %v", text, files, found, want)
	}
}

// TestWrongKey checks that the error of a start with another key names unreadable objects and the
// missing key.
func TestWrongKey(t *testing.T) {
	log := memlog.New()
	good := mustSet(t, rules("secrets", aescbcKeys("k"), "identity: {}"))
	s := mustOpenStore(t, log, good)
	for i := range 15 {
		write(t, s, "secrets", fmt.Sprintf("ns/%02d", i), "text")
	}
	write(t, s, "configmaps", "ns/a", "plain")
	storetest.Close(t, s)
	for _, c := range []struct {
		name string
		set  *Set
		want []string
	}{
		{"none", &Set{}, []string{"15 stored objects cannot be read without an encryption configuration", `aescbc, key "k" (15)`, "/registry/secrets/ns/00: ", "and 5 more"}},
		{"another name", mustSet(t, rules("secrets", aescbcKeys("l"))), []string{`aescbc, key "k" (15)`, "no matching key was found for the provided AES transformer"}},
		{"another key", mustSet(t, rules("secrets", strings.ReplaceAll(aescbcKeys("k"), secretOf("k"), secretOf("z")))), []string{`aescbc, key "k" (15)`, "config.yaml"}},
		{"no identity", mustSet(t, rules("secrets", aescbcKeys("k"))+"- resources: [configmaps]\n  providers: [{"+aescbcKeys("k")+"}]\n"), []string{"1 stored objects", "identity (1)", "/registry/configmaps/ns/a: no matching prefix found"}},
	} {
		st, err := openStore(t, log, c.set)
		var bad *UnreadableError
		if !errors.As(err, &bad) {
			t.Errorf("%s: got %v", c.name, err)
			if err == nil {
				st.Close()
			}
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v\nwant %s", c.name, err, want)
			}
		}
	}
	s = mustOpenStore(t, log, good)
	if s.Any().Get("secrets", "ns/00") == nil {
		t.Error("the right key does not help any more")
	}
	storetest.Close(t, s)
}

// TestOutdated: a value is outdated until it is written with the first key.
func TestOutdated(t *testing.T) {
	log := memlog.New()
	s := mustOpenStore(t, log, &Set{})
	write(t, s, "secrets", "ns/a", "text")
	if s.Outdated("secrets", "ns/a") {
		t.Error("outdated without a configuration")
	}
	storetest.Close(t, s)
	for _, providers := range [][]string{
		{aescbcKeys("k"), "identity: {}"}, {aescbcKeys("l", "k")}, {aesgcmKeys("l"), aescbcKeys("l")}, {"identity: {}", aesgcmKeys("l")},
	} {
		s = mustOpenStore(t, log, mustSet(t, rules("secrets", providers...)))
		if !s.Outdated("secrets", "ns/a") || s.Outdated("secrets", "ns/absent") || s.Outdated("configmaps", "ns/a") {
			t.Errorf("%s: not outdated", providers)
		}
		write(t, s, "secrets", "ns/a", "text")
		if s.Outdated("secrets", "ns/a") {
			t.Errorf("%s: still outdated", providers)
		}
		storetest.Close(t, s)
	}
}

// TestSwapped: the value of another object, or an older one, is not taken.
func TestSwapped(t *testing.T) {
	for _, provider := range []string{aesgcmKeys("k"), secretboxKeys("k"), aescbcKeys("k")} {
		inner := memlog.New()
		log := Wrap(inner, NewActive(mustSet(t, rules("secrets", provider))))
		if _, err := log.Replay(t.Context(), func(string, *store.Object) error { return nil }); err != nil {
			t.Fatal(err)
		}
		object := func(key, text string, r store.Revision) *store.Object {
			head := fmt.Sprintf(`{"text":%q,"rv":"`, text)
			return &store.Object{Key: key, Held: fmt.Appendf(nil, `%s%d"}`, head, r), Created: r, Modified: r, RevisionAt: int32(len(head))}
		}
		for i, key := range []string{"ns/a", "ns/b"} {
			r := store.Revision(1<<60 + i)
			if err := log.Append(t.Context(), []store.Entry{{Collection: "secrets", Key: key, Revision: r, Object: object(key, key, r)}}, nil); err != nil {
				t.Fatal(err)
			}
		}
		a, _ := inner.Current("secrets", "ns/a")
		b, _ := inner.Current("secrets", "ns/b")
		a.Held = b.Held
		_, err := log.Current("secrets", "ns/a")
		var bad *OpenError
		if !errors.As(err, &bad) || bad.Path != "/registry/secrets/ns/a" {
			t.Errorf("%s: got %v", provider, err)
		}
		if _, err := log.Current("secrets", "ns/b"); err != nil {
			t.Errorf("%s: another object: %v", provider, err)
		}
		_ = log.Close()
	}
}

// TestHistory: history that cannot be decrypted fails by name, and nothing else does.
func TestHistory(t *testing.T) {
	log := memlog.New()
	s := mustOpenStore(t, log, mustSet(t, rules("secrets", aescbcKeys("k"))))
	old := write(t, s, "secrets", "ns/a", "text").Modified
	write(t, s, "configmaps", "ns/a", "text")
	write(t, s, "secrets", "ns/a", "")
	head := write(t, s, "secrets", "ns/b", "text").Modified
	storetest.Close(t, s)

	l := Wrap(log, NewActive(mustSet(t, rules("secrets", aescbcKeys("l"), aescbcKeys("z")))))
	list := func(collection string, at store.Revision) (err error) {
		for _, err = range l.ObjectsAt(t.Context(), collection, at, "", "") {
		}
		return err
	}
	if _, err := l.Replay(t.Context(), func(string, *store.Object) error { return nil }); err == nil {
		t.Error("b was read")
	}
	err := list("secrets", old)
	if err == nil || err.Error() != `unable to transform key "/registry/secrets/ns/a": no matching key was found for the provided AES transformer` {
		t.Errorf("history: %v", err)
	}
	if err := list("configmaps", head); err != nil {
		t.Errorf("another collection: %v", err)
	}
	var bad *OpenError
	for _, err = range l.Changes(context.Background(), "", old-1, head) {
	}
	if !errors.As(err, &bad) {
		t.Errorf("changes: %v", err)
	}
	var all, lost []string
	for e, err := range l.Changes(store.WithStandIns(context.Background()), "", old-1, head) {
		if err != nil {
			t.Fatalf("changes with stand-ins: %v", err)
		}
		all = append(all, e.Collection+" "+e.Key)
		if e.Object.Unreadable() != "" || e.Before.Unreadable() != "" {
			lost = append(lost, e.Collection+" "+e.Key)
		}
	}
	if got, want := fmt.Sprint(all, lost), "[secrets ns/a configmaps ns/a secrets ns/a secrets ns/b] [secrets ns/a secrets ns/a secrets ns/b]"; got != want {
		t.Errorf("changes with stand-ins: %s, want %s", got, want)
	}
	_ = l.Close()
}

// damagedLog has a record that cannot be read.
type damagedLog struct {
	store.Log
	key string
}

var errDamaged = errors.New("checksum mismatch")

func (l damagedLog) Current(collection, key string) (*store.Object, error) {
	if key == l.key {
		return nil, errDamaged
	}
	return l.Log.Current(collection, key)
}

// TestDamagedRecord: a write to an object with a damaged record fails by name, and the log goes on.
func TestDamagedRecord(t *testing.T) {
	s := mustOpenStore(t, damagedLog{memlog.New(), "ns/bad"}, mustSet(t, rules("secrets", aesgcmKeys("k"))))
	defer storetest.Close(t, s)
	bad, good := write(t, s, "secrets", "ns/bad", "text"), write(t, s, "secrets", "ns/good", "text")
	value, at := []byte(`{"rv":""}`), len(`{"rv":"`)
	for name, w := range map[string]store.Write{
		"update": {Collection: "secrets", Key: "ns/bad", Value: value, RevisionAt: at, If: bad.Modified},
		"delete": {Collection: "secrets", Key: "ns/bad", If: bad.Modified},
	} {
		_, err := s.Commit(t.Context(), w)
		var named *OpenError
		if !errors.As(err, &named) || named.Path != "/registry/secrets/ns/bad" || !errors.Is(err, errDamaged) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	_, err := s.Apply(t.Context(), &store.Txn{Writes: []store.Write{
		{Collection: "secrets", Key: "ns/good", Value: value, RevisionAt: at, If: good.Modified},
		{Collection: "secrets", Key: "ns/bad", Value: value, RevisionAt: at, If: bad.Modified},
	}})
	if !errors.Is(err, errDamaged) || s.Any().Get("secrets", "ns/good").Modified != good.Modified {
		t.Errorf("transaction: got %v", err)
	}
	write(t, s, "secrets", "ns/good", "other")
}
