package history_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/tidemark-dev/tidemark/internal/apply"
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
	q, err := history.NewQuery("", selected, nil)
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
