package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// forkOn forks a store on an account of a budget.
func forkOn(t *testing.T, b *store.Budget, s *store.Store) *store.Store {
	t.Helper()
	a, err := b.Open(1 << 30)
	if err != nil {
		t.Fatal(err)
	}
	f, err := stores.Fork(s, s.Any(), store.Options{Log: memlog.From(s.Any()), Account: a})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { storetest.Close(t, f) })
	return f
}

// TestBudget: the objects of all forks together have a bound, which no write of a single object gets around.
func TestBudget(t *testing.T) {
	const limit, size = 1 << 20, 10 << 10
	b := store.NewBudget(limit)
	root := storetest.Open(t, store.Options{Log: memlog.New()})
	storetest.MustCommit(t, root, storetest.Padded("ns/root", 0, size))
	x, y := forkOn(t, b, root), forkOn(t, b, root)
	var full *store.QuotaError
	made := 0
	for ; full == nil && made < 2*limit/size; made++ {
		if _, err := x.Commit(t.Context(), storetest.Padded(fmt.Sprint("ns/x", made), 0, size)); err != nil && !errors.As(err, &full) {
			t.Fatal(err)
		}
	}
	if used := b.Used(); made < limit/size*3/4 || used > limit || used < limit-2*size || full == nil || !full.AllForks || full.Limit != limit {
		t.Errorf("%d objects of %d bytes use %d, then %+v", made, size, used, full)
	}
	if _, err := y.Commit(t.Context(), storetest.Padded("ns/y", 0, size)); !errors.As(err, &full) {
		t.Errorf("another fork: %v", err)
	}
	if _, err := b.Open(1); err != nil {
		t.Errorf("a fork while %d bytes of %d are used: %v", b.Used(), limit, err)
	}
	storetest.MustCommit(t, root, storetest.Padded("ns/y", 0, size))
	o := y.Any().Get("pods", "ns/root")
	storetest.MustCommit(t, y, storetest.Padded("ns/root", o.Modified, 0)) // it is the fork's now, and small
	for i := range 20 {                                                    // the history of the deletions does not take their place
		key := fmt.Sprint("ns/x", i)
		if _, err := x.Commit(t.Context(), store.Write{Collection: "pods", Key: key, If: x.Any().Get("pods", key).Modified}); err != nil {
			t.Fatal(err)
		}
	}
	storetest.MustCommit(t, x, storetest.Padded("ns/again", 0, 5*size))
	storetest.Close(t, x)
	if used := b.Used(); used > 2*size {
		t.Errorf("%d bytes are used after the fork was closed", used)
	}
	storetest.MustCommit(t, y, storetest.Padded("ns/y", 0, size))
	storetest.Close(t, y)
	if used := b.Used(); used != 0 {
		t.Errorf("%d bytes are used without forks", used)
	}
}

// TestBudgetOfShared: forks of a fork keep its objects in memory after it was closed, and they count so long.
func TestBudgetOfShared(t *testing.T) {
	const size = 100 << 10
	b := store.NewBudget(1 << 30)
	root := storetest.Open(t, store.Options{Log: memlog.New()})
	one := forkOn(t, b, root)
	storetest.MustCommit(t, one, storetest.Padded("ns/one", 0, size))
	two := forkOn(t, b, one)
	storetest.MustCommit(t, two, storetest.Padded("ns/two", 0, size))
	three, other := forkOn(t, b, two), forkOn(t, b, two)
	storetest.Close(t, one)
	storetest.Close(t, two)
	storetest.Close(t, other)
	if used := b.Used(); used < 2*size {
		t.Errorf("%d bytes are used, two objects of %d are in memory", used, size)
	}
	storetest.Close(t, three)
	if used := b.Used(); used != 0 {
		t.Errorf("%d bytes are used without forks", used)
	}
}

// TestBudgetOfReplaced: objects that a fork keeps in memory although its parent has replaced or deleted them count, once for all
// forks, until the last fork that keeps it is closed.
func TestBudgetOfReplaced(t *testing.T) {
	const size = 100 << 10
	root := storetest.Open(t, store.Options{Log: memlog.New()})
	replace := func(s *store.Store, key string, bytes int) {
		t.Helper()
		var was store.Revision
		if o := s.Any().Get("pods", key); o != nil {
			was = o.Modified
		}
		storetest.MustCommit(t, s, storetest.Padded(key, was, bytes))
	}
	b := store.NewBudget(1 << 30)
	want := func(when string, objects int) {
		t.Helper()
		if used := b.Used(); used < int64(objects*size) || used > int64(objects*(size+size/8)+2*size/10) {
			t.Errorf("%s, %d bytes are used, want %d objects of %d", when, used, objects, size)
		}
	}
	for i := range 4 {
		replace(root, fmt.Sprint("ns/", i), size)
	}
	before := root.Any()
	one := forkOn(t, b, root)
	want("after a fork", 0)
	replace(root, "ns/0", size)
	want("after a change", 1)
	replace(root, "ns/0", size)
	want("after a second change, of what the fork does not have", 1)
	two := forkOn(t, b, root)
	replace(root, "ns/0", size) // of two alone
	replace(root, "ns/1", size) // of both
	if _, err := root.Commit(t.Context(), store.Write{Collection: "pods", Key: "ns/2", If: root.Any().Get("pods", "ns/2").Modified}); err != nil {
		t.Fatal(err)
	}
	want("with two forks", 4)
	inner := forkOn(t, b, one)
	storetest.Close(t, two)
	want("without the second fork", 3)
	storetest.Close(t, one)
	want("while a fork of the first fork is open", 3)
	storetest.Close(t, inner)
	want("without forks", 0)

	a, err := b.Open(1 << 30)
	if err != nil {
		t.Fatal(err)
	}
	late, err := stores.Fork(root, before, store.Options{Log: memlog.From(before), Account: a})
	if err != nil {
		t.Fatal(err)
	}
	want("with a fork of an older state", 3)
	replace(root, "ns/3", size)
	want("after a change", 4)
	first, last := forkOn(t, b, root), forkOn(t, b, root)
	replace(root, "ns/3", size) // of first and last
	storetest.Close(t, first)
	want("without the first fork", 5)
	storetest.Close(t, late)
	want("without the fork of an older state", 1)
	storetest.Close(t, last)
	want("without forks", 0)

	small := store.NewBudget(2 * size)
	forkOn(t, small, root)
	for i := range 4 {
		replace(root, fmt.Sprint("ns/", i), size)
	}
	var full *store.QuotaError
	if _, err := small.Open(1 << 30); !errors.As(err, &full) || !full.AllForks {
		t.Errorf("a fork when the others keep %d bytes of %d: %v", small.Used(), small.Limit(), err)
	}
}

// TestBudgetOfHistory: updates that grow nothing go on in all forks, whose histories stay within the budget.
func TestBudgetOfHistory(t *testing.T) {
	const limit, size, forks = 1 << 20, 10 << 10, 5
	b := store.NewBudget(limit)
	root := storetest.Open(t, store.Options{Log: memlog.New()})
	chance := testrand.New(t)
	var all []*store.Store
	for range forks {
		f := forkOn(t, b, root)
		storetest.MustCommit(t, f, storetest.Padded("ns/a", 0, size))
		all = append(all, f)
	}
	// Each fork keeps 64 KiB of history whatever the budget is, and the change that it is about to make room for.
	const most = limit + forks*(64<<10+2*size)
	for range 1000 {
		f := all[chance.IntN(forks)]
		storetest.MustCommit(t, f, storetest.Padded("ns/a", f.Any().Get("pods", "ns/a").Modified, size))
		if used := b.Used(); used > most {
			t.Fatalf("%d bytes are used of %d", used, limit)
		}
	}
	for i, f := range all {
		if got := f.Stats().HistoryBytes; got < size {
			t.Errorf("fork %d has %d bytes of history", i, got)
		}
	}
}

// TestBudgetOfCaches: caches get no more memory when the budget is spent.
func TestBudgetOfCaches(t *testing.T) {
	b := store.NewBudget(1000)
	f := forkOn(t, b, storetest.Open(t, store.Options{Log: memlog.New()}))
	if !f.Charge(600) {
		t.Error("600 bytes of 1000 are refused")
	}
	if f.Charge(600) {
		t.Error("1200 bytes of 1000 are allowed")
	}
	if f.Charge(-600); b.Used() != 600 {
		t.Errorf("%d bytes are used", b.Used())
	}
	if !f.Charge(300) {
		t.Error("900 bytes of 1000 are refused")
	}
	f.Charge(-900)
	if b.Used() != 0 {
		t.Errorf("%d bytes are used", b.Used())
	}
}

// TestBudgetConcurrent: whatever forks do at the same time, nothing is used when all of them were closed.
func TestBudgetConcurrent(t *testing.T) {
	b := store.NewBudget(1 << 20)
	root := storetest.Open(t, store.Options{Log: memlog.New()})
	var all sync.WaitGroup
	var children []*store.Store
	for range 4 {
		parent := forkOn(t, b, root)
		child := forkOn(t, b, parent)
		children = append(children, child)
		for _, f := range []*store.Store{parent, child} {
			all.Go(func() {
				for i := range 200 {
					_, err := f.Commit(t.Context(), storetest.Padded(fmt.Sprint("ns/", i), 0, 2000))
					if err != nil && !errors.As(err, new(*store.QuotaError)) && !errors.Is(err, store.ErrClosed) {
						t.Error(err)
					}
				}
			})
			all.Go(func() {
				for range 200 {
					f.Charge(100)
					f.Charge(-100)
				}
			})
		}
		all.Go(func() {
			if err := parent.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if b.Used() == 0 {
		t.Error("the objects of the forks of closed forks do not count")
	}
	for _, f := range children {
		storetest.Close(t, f)
	}
	if used := b.Used(); used != 0 {
		t.Errorf("%d bytes are used without forks", used)
	}
}

// TestBudgetOfInherited: the history that a fork begins with counts, and is refused if it does not fit.
func TestBudgetOfInherited(t *testing.T) {
	const size = 10 << 10
	s := storetest.Open(t, store.Options{Log: memlog.New()})
	since, last := s.Any().Revision(), store.Revision(0)
	for range 10 {
		last = storetest.MustCommit(t, s, storetest.Padded("ns/a", last, size)).Modified
	}
	b := store.NewBudget(20 * size)
	begin := func() (*store.Store, error) {
		a, err := b.Open(0)
		if err != nil {
			return nil, err
		}
		changes, err := s.History(t.Context(), since, s.Any(), 1<<30, a)
		if err != nil {
			a.Close()
			return nil, err
		}
		return stores.Fork(s, s.Any(), store.Options{Log: memlog.FromHistory(s.Any(), since, changes), Account: a})
	}
	f, err := begin()
	if err != nil {
		t.Fatal(err)
	}
	used := b.Used()
	if used < 9*size || used != f.Stats().HistoryBytes {
		t.Errorf("a fork with the history of 10 objects of %d bytes uses %d", size, used)
	}
	two, err := begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := begin(); !errors.As(err, new(*store.QuotaError)) {
		t.Errorf("a third fork: %v", err)
	}
	if got := b.Used(); got != 2*used {
		t.Errorf("two forks use %d bytes, one %d", got, used)
	}
	storetest.Close(t, f)
	storetest.Close(t, two)
	if used := b.Used(); used != 0 {
		t.Errorf("%d bytes are used without forks", used)
	}
}
