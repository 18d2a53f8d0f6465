package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// testTransactions: a transaction is made as a whole or not at all, and the error names the condition that
// is in its way.
func testTransactions(t *testing.T, medium Medium) {
	s := Open(t, store.Options{Log: medium(t)(t)})
	a := mustCommit(t, s, put("pods", "ns/a", "one", 0))
	b := mustCommit(t, s, put("pods", "ns/b", "one", 0))
	next := put("pods", "ns/n", "two", 0)
	next.Next = true
	large := put("pods", "ns/n", "", 0)
	large.Value, large.Next = append(large.Value, make([]byte, store.MaxValue)...), true
	need := func(key string, at store.Revision) []store.Need {
		return []store.Need{{Collection: "pods", Key: key, Modified: at}}
	}
	var unfit *store.UnfitError
	for _, c := range []struct {
		what string
		t    store.Txn
		at   int   // the write that fails, -1: none
		want error // nil: it is a mistake or no log can keep it
	}{
		{"the first write", store.Txn{Writes: []store.Write{put("pods", "ns/a", "", 0), put("pods", "ns/n", "", 0)}}, 0, store.ErrExists},
		{"the last write", store.Txn{Writes: []store.Write{put("pods", "ns/n", "", 0), del("pods", "ns/a", a.Modified), put("pods", "ns/b", "", a.Modified)}}, 2, store.ErrConflict},
		{"a write of another collection", store.Txn{Writes: []store.Write{put("pods", "ns/n", "", 0), del("nodes", "n", 1)}}, 1, store.ErrNotFound},
		{"a need that changed", store.Txn{Writes: []store.Write{put("pods", "ns/n", "", 0)}, Needs: need("ns/b", a.Modified)}, -1, store.ErrStale},
		{"a need that is not there", store.Txn{Writes: []store.Write{put("pods", "ns/n", "", 0)}, Needs: need("ns/c", a.Modified)}, -1, store.ErrStale},
		{"a need that is there", store.Txn{Writes: []store.Write{put("pods", "ns/n", "", 0)}, Needs: need("ns/b", 0)}, -1, store.ErrStale},
		{"an object twice", store.Txn{Writes: []store.Write{put("pods", "ns/n", "", 0), put("nodes", "ns/n", "", 0), put("pods", "ns/n", "", 0)}}, 2, store.ErrStale},
		{"no writes", store.Txn{}, -1, nil},
		{"too many writes", store.Txn{Writes: make([]store.Write, store.MaxTxnWrites+1)}, -1, nil},
		{"nothing to be next of", store.Txn{Writes: []store.Write{next}}, -1, nil},
		{"next of another object", store.Txn{Writes: []store.Write{put("pods", "ns/m", "", 0), next}}, -1, nil},
		{"next of a deletion", store.Txn{Writes: []store.Write{del("pods", "ns/n", 1), next}}, -1, nil},
		{"a large next", store.Txn{Writes: []store.Write{put("pods", "ns/n", "", 0), large}}, -1, nil},
	} {
		_, err := s.Apply(t.Context(), &c.t)
		at := -1
		var failed *store.TxnError
		if errors.As(err, &failed) && failed.Part == store.WritePart {
			at = failed.Index
		}
		if err == nil || c.want != nil && !errors.Is(err, c.want) || at != c.at || errors.As(err, &unfit) != (c.what == "a large next" || c.what == "too many writes") {
			t.Errorf("%s: write %d, %v", c.what, at, err)
		}
	}
	if now := s.Any().Revision(); now != b.Modified {
		t.Errorf("refused transactions moved the revision to %d", now)
	}
	made, err := s.Apply(t.Context(), &store.Txn{
		Writes: []store.Write{del("pods", "ns/a", a.Modified), put("nodes", "n", "", 0), put("pods", "ns/n", "one", 0), next},
		Needs:  append(need("ns/b", b.Modified), need("ns/c", 0)...),
	})
	if err != nil || len(made) != 4 {
		t.Fatalf("%d objects, %v", len(made), err)
	}
	for i, o := range made {
		if want := b.Modified + 1 + store.Revision(i); o.Modified != want {
			t.Errorf("write %d has the revision %d, want %d", i, o.Modified, want)
		}
	}
	if o := s.Any().Get("pods", "ns/n"); o != made[3] || o.Created != made[2].Modified || string(o.Bytes()) != value("two", o.Modified) {
		t.Errorf("stored %s", o.Bytes())
	}
	if s.Any().Get("pods", "ns/a") != nil || s.Any().Get("nodes", "n") != made[1] {
		t.Error("a part of the transaction is missing")
	}
}

// testClaims: of transactions that claim a name at the same state one is made; the others
// succeed by the state that it led to.
func testClaims(t *testing.T, medium Medium) {
	s := Open(t, store.Options{Log: medium(t)(t)})
	const writers, names = 64, 4
	var wg sync.WaitGroup
	var mu sync.Mutex
	owners := map[string][]store.Revision{} // the claims of a name, by the state that each was decided by
	for i := range writers {
		wg.Go(func() {
			name := fmt.Sprint("name-", i%names)
			for {
				seen := s.Any().Revision()
				made, err := s.Apply(t.Context(), &store.Txn{
					Writes: []store.Write{put("claims", fmt.Sprint(name, "/", i), "", 0)},
					Guards: []store.Guard{{Name: name, Seen: seen, Claim: true}, {Name: "never", Seen: 0}},
				})
				if errors.Is(err, store.ErrStale) {
					if s.Any().Revision() == seen {
						t.Error("stale, and there is no newer state")
						return
					}
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for _, other := range owners[name] {
					if other > seen && other < made[0].Modified {
						t.Errorf("%s was claimed at %d and again by a state of %d", name, other, seen)
					}
				}
				owners[name] = append(owners[name], made[0].Modified)
				return
			}
		})
	}
	wg.Wait()
	seen := s.Any().Revision()
	for i := range 20_000 { // more names than are kept in memory
		w := put("claims", "many", "", 0)
		if o := s.Any().Get("claims", "many"); o != nil {
			w.If = o.Modified
		}
		if i%100 == 0 || i > 19_900 {
			guards := make([]store.Guard, 100)
			for j := range guards {
				guards[j] = store.Guard{Name: fmt.Sprint("many-", i, "-", j), Seen: s.Any().Revision(), Claim: true}
			}
			if _, err := s.Apply(t.Context(), &store.Txn{Writes: []store.Write{w}, Guards: guards}); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err := s.Apply(t.Context(), &store.Txn{Writes: []store.Write{put("claims", "late", "", 0)}, Guards: []store.Guard{{Name: "many-0-0", Seen: seen}}})
	if !errors.Is(err, store.ErrStale) {
		t.Errorf("a claim of long ago is forgotten: %v", err)
	}
}

// testTogether: readers and watches see all writes of a transaction or none, and each
// transfer between two counters keeps their sum.
func testTogether(t *testing.T, medium Medium) {
	open := medium(t)
	s := Open(t, store.Options{Log: open(t)})
	const accounts, writers, transfers = 6, 8, 60
	for i := range accounts {
		mustCommit(t, s, put("accounts", fmt.Sprint(i), "100", 0))
	}
	balance := func(state *store.State, i int) (n int, at store.Revision) {
		o := state.Get("accounts", fmt.Sprint(i))
		if _, err := fmt.Sscanf(string(o.Bytes()), `{"text":"%d"`, &n); err != nil {
			t.Error(err)
		}
		return n, o.Modified
	}
	sum := func(state *store.State) (sum int) {
		for i := range accounts {
			n, _ := balance(state, i)
			sum += n
		}
		return sum
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range transfers {
				from, to := (w+n)%accounts, (w+2*n+1)%accounts
				for from != to {
					state := s.Any()
					if got := sum(state); got != accounts*100 {
						t.Errorf("the sum is %d", got)
					}
					a, aAt := balance(state, from)
					b, bAt := balance(state, to)
					_, err := s.Apply(t.Context(), &store.Txn{Writes: []store.Write{
						put("accounts", fmt.Sprint(from), fmt.Sprint(a-1), aAt), put("accounts", fmt.Sprint(to), fmt.Sprint(b+1), bAt),
					}})
					if err == nil {
						break
					}
					if !errors.Is(err, store.ErrConflict) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	Close(t, s)
	again := Open(t, store.Options{Log: open(t)})
	if got := sum(again.Any()); got != accounts*100 {
		t.Errorf("after a restart the sum is %d", got)
	}
}
