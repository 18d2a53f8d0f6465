package history_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/changes"
	"github.com/tidemark-dev/tidemark/internal/history"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// filled returns a store with a number of changes of one ConfigMap.
func filled(t testing.TB, n int) *store.Store {
	t.Helper()
	s := storetest.Open(t, store.Options{Log: &memlog.Log{}})
	at := store.Revision(0)
	for i := range n {
		const head = `{"apiVersion":"v1","metadata":{"uid":"u","resourceVersion":"`
		w := store.Write{
			Collection: "configmaps", Key: "shop/a", RevisionAt: len(head), Value: fmt.Appendf(nil, `%s"},"data":{"x":"%d"}}`, head, i), If: at,
			Origin: &store.Origin{Verb: store.VerbUpdate, Actor: &store.Actor{User: "alice"}},
		}
		o, err := s.Commit(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		at = o.Modified
	}
	return s
}

func reader(s *store.Store) *history.Reader {
	return &history.Reader{
		Store: s, Now: time.Now, May: func(string) (bool, error) { return true, nil },
		Schema: func(string, string, store.Revision) *apply.Schema { return nil },
	}
}

func query(t testing.TB, terms string) *history.Query {
	t.Helper()
	selected, err := fields.ParseSelector(terms)
	if err != nil {
		t.Fatal(err)
	}
	q, err := history.NewQuery("", selected)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestPagesEnd: a query that selects nothing reads a bounded number of changes for each page, in either order.
func TestPagesEnd(t *testing.T) {
	const changes = 150_000
	s := filled(t, changes)
	for _, terms := range []string{"user=bob", "user=bob,order=oldest", "uid=other", "field=data.y"} {
		q, pages := query(t, terms), 0
		var from *history.Position
		for {
			page, err := reader(s).Page(t.Context(), q, 500, from)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Items) != 0 {
				t.Fatalf("%s: %d changes on page %d", terms, len(page.Items), pages)
			}
			pages++
			if from = page.Next; from == nil {
				break
			}
		}
		if least := changes / (1 << 16); pages <= least {
			t.Errorf("%s: %d pages, want more than %d", terms, pages, least)
		}
	}
}

// deep is a store with a number of objects of a few KB whose fields have long paths.
func deep(t testing.TB, n int) *store.Store {
	t.Helper()
	var leaves strings.Builder
	for i := range 100 {
		fmt.Fprintf(&leaves, `,"k%d":0`, i)
	}
	value := `{` + leaves.String()[1:] + `}`
	for range 4 {
		value = `{"` + strings.Repeat("d", 200) + `":` + value + `}`
	}
	s := storetest.Open(t, store.Options{Log: &memlog.Log{}})
	for i := range n {
		const head = `{"apiVersion":"v1","metadata":{"uid":"u","resourceVersion":"`
		w := store.Write{
			Collection: "widgets.example.com", Key: fmt.Sprintf("shop/w%d", i), RevisionAt: len(head), Value: []byte(head + `"},"spec":` + value + `}`),
			Origin: &store.Origin{Verb: store.VerbCreate, Actor: &store.Actor{User: "alice"}},
		}
		if _, err := s.Commit(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// pathBytes returns the length of all paths of changes.
func pathBytes(all []changes.Change) (n int) {
	for i := range all {
		for _, f := range all[i].Fields {
			n += len(f.Path)
		}
	}
	return n
}

// TestLongPaths: the length of the paths counts. In deep objects, the paths are much longer than the objects. A page ends
// early, its memory is held before it is complete, and a watch gets a few changes at a time.
func TestLongPaths(t *testing.T) {
	const objects, most = 150, 9 << 20
	s := deep(t, objects)
	q := query(t, "resource=widgets.example.com")
	q.Collection, q.Namespaced = q.Resource, true
	seen, pages := 0, 0
	var from *history.Position
	for {
		held := int64(0)
		r := reader(s)
		r.Hold = func(n int64) error { held += n; return nil }
		page, err := r.Page(t.Context(), q, 5000, from)
		if err != nil {
			t.Fatal(err)
		}
		n := pathBytes(page.Items)
		if n > most || n-int(held) > 1<<20 {
			t.Errorf("a page has paths of %d bytes, %d are held", n, held)
		}
		seen += len(page.Items)
		pages++
		if from = page.Next; from == nil {
			break
		}
	}
	if seen != objects || pages < 2 {
		t.Errorf("%d changes on %d pages", seen, pages)
	}
	full := errors.New("full")
	r := reader(s)
	r.Hold = func(int64) error { return full }
	if _, err := r.Page(t.Context(), q, 5000, nil); err != full {
		t.Errorf("without memory: %v", err)
	}

	first, _ := s.Bounds()
	f, err := reader(s).Follow(t.Context(), q, max(first, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for seen = 0; seen < objects-1; { // without the creation at the first revision, or with it
		f.Wait(t.Context())
		all, at, err := f.Next(t.Context())
		if err != nil || len(all) == 0 {
			t.Fatalf("after %d changes: %d, %v", seen, len(all), err)
		}
		if n := pathBytes(all); n > 2<<20 {
			t.Errorf("a watch gets paths of %d bytes at a time", n)
		}
		if last := all[len(all)-1].Revision; last != fmt.Sprint(at) {
			t.Errorf("the changes up to %d end with %s", at, last)
		}
		seen += len(all)
	}
}

// TestShared: readers that follow the changes share their comparisons, up to a limit, and get what one that shares nothing
// gets.
func TestShared(t *testing.T) {
	s := deep(t, 150)
	q := query(t, "resource=widgets.example.com")
	q.Collection, q.Namespaced = q.Resource, true
	first, _ := s.Bounds()
	begin := max(first, 1)
	follow := func(shared *history.Shared, after store.Revision) (all []changes.Change) {
		r := reader(s)
		r.Shared = shared
		f, err := r.Follow(t.Context(), q, after)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for {
			some, _, err := f.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(some) == 0 {
				return all
			}
			all = append(all, some...)
		}
	}
	want, shared := follow(nil, begin), new(history.Shared)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if got := follow(shared, begin); !reflect.DeepEqual(got, want) {
				t.Errorf("%d changes, want %d", len(got), len(want))
			}
		})
	}
	group.Wait()
	if one, again := follow(shared, begin), follow(shared, begin); &one[0].Fields[0] == &again[0].Fields[0] {
		t.Error("all comparisons are kept")
	}
	newest := s.Any().Revision() - 1
	if one, again := follow(shared, newest), follow(shared, newest); &one[0].Fields[0] != &again[0].Fields[0] {
		t.Error("the last comparison is not shared")
	}
}

// TestPositions: the token of a full page does not depend on changes in other namespaces.
func TestPositions(t *testing.T) {
	for _, order := range []string{"newest", "oldest"} {
		for _, changes := range [][]string{{"shown", "hidden", "shown", "hidden", "shown"}, {"shown", "hidden"}, {"hidden", "shown"}} {
			tokens := map[string]bool{}
			for _, hidden := range []string{"configmaps other/", "nodes "} {
				s := storetest.Open(t, store.Options{Log: &memlog.Log{}})
				for i, which := range changes {
					const head = `{"metadata":{"resourceVersion":"`
					at := "configmaps shop/"
					if which == "hidden" {
						at = hidden
					}
					collection, key, _ := strings.Cut(at, " ")
					w := store.Write{Collection: collection, Key: fmt.Sprint(key, i), RevisionAt: len(head), Value: []byte(head + `"}}`)}
					if _, err := s.Commit(t.Context(), w); err != nil {
						t.Fatal(err)
					}
				}
				q := query(t, "metadata.namespace=shop,resource=configmaps,order="+order)
				q.Collection, q.Namespaced = q.Resource, true
				page, err := reader(s).Page(t.Context(), q, 1, nil)
				if err != nil || len(page.Items) != 1 || page.Next == nil {
					t.Fatal(page, err)
				}
				tokens[fmt.Sprint(page.Head-page.Next.At, page.Next.Head-page.Next.At, page.Next.Skip)] = true
			}
			if len(tokens) != 1 {
				t.Errorf("%s first, %v: the tokens %v depend on what is hidden", order, changes, tokens)
			}
		}
	}
}

// BenchmarkPage reads a page of the newest changes.
func BenchmarkPage(b *testing.B) {
	s := filled(b, 100_000)
	q := query(b, "user=alice")
	b.ReportAllocs()
	for b.Loop() {
		page, err := reader(s).Page(b.Context(), q, 100, nil)
		if err != nil || len(page.Items) != 100 {
			b.Fatal(err)
		}
	}
}
