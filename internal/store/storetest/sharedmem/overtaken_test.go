package sharedmem_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/store/storetest/sharedmem"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// reflector keeps a copy of a collection by a list and a watch, as a client does.
type reflector struct {
	store      *store.Store
	collection string
	objects    map[string]store.Revision
	cursor     *store.Cursor
	lists      int
}

func (r *reflector) list(t *testing.T) {
	if r.cursor != nil {
		r.cursor.Close()
	}
	r.lists++
	state := r.store.Any()
	r.objects = map[string]store.Revision{}
	for o := range state.Snapshot(r.collection).Scan("", "") {
		r.objects[o.Key] = o.Modified
	}
	var err error
	if r.cursor, err = r.store.Watch(r.collection, "", state.Revision()); err != nil {
		t.Error(err)
	}
}

// follow applies changes until the context ends, and then the rest.
func (r *reflector) follow(ctx context.Context, t *testing.T, size int) {
	r.list(t)
	defer func() { r.cursor.Close() }()
	buf, last := make([]*store.Change, size), store.Revision(0)
	for {
		n, err := storetest.Next(ctx, r.cursor, buf)
		expired := (*store.ExpiredError)(nil)
		switch {
		case errors.As(err, &expired):
			r.list(t)
		case err != nil && ctx.Err() != nil:
			if n, err = r.cursor.TryNext(t.Context(), buf); n == 0 && err == nil && !r.cursor.Ready() {
				return
			}
		case err != nil:
			t.Error(err)
			return
		}
		for _, ch := range buf[:n] {
			before := store.Revision(0)
			if ch.Before != nil {
				before = ch.Before.Modified
			}
			if had := r.objects[ch.Key()]; had != before || ch.Revision < last {
				t.Errorf("the change of %s at %d replaces the version of %d, and the copy has that of %d; the last change was at %d", ch.Key(), ch.Revision, before, had, last)
			}
			if last = ch.Revision; ch.After != nil {
				r.objects[ch.Key()] = ch.Revision
			} else {
				delete(r.objects, ch.Key())
			}
		}
	}
}

// TestOvertakenModel compacts everything again and again while stores write that are slow to read the changes:
// acknowledged writes stay, all stores end with the state of the log, and so do the copies of clients.
func TestOvertakenModel(t *testing.T) {
	for range 3 {
		t.Run("", func(t *testing.T) {
			synctest.Test(t, overtakenModel)
		})
	}
}

func overtakenModel(t *testing.T) {
	chance := testrand.New(t)
	log := sharedmem.New(chance, 95, sharedmem.Faults{Delay: 20 * time.Millisecond, Foreign: 0.1})
	var loaded atomic.Int64
	var stores []*store.Store
	for _, memory := range []int64{0, 1, 10 << 10} {
		stores = append(stores, storetest.Open(t, store.Options{Shared: log.Open(), MaxMemory: memory, Note: func(bool, string, ...any) { loaded.Add(1) }}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writers, others sync.WaitGroup
	var reflectors []*reflector
	for i, s := range stores {
		for j, collection := range []string{"pods", "nodes"} {
			r := &reflector{store: s, collection: collection}
			reflectors = append(reflectors, r)
			others.Go(func() { r.follow(ctx, t, 1+i+2*j) })
		}
	}
	others.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(15 * time.Millisecond)
			log.Compact(log.Head())
		}
	})
	for i := range 6 {
		of := rand.New(rand.NewPCG(chance.Uint64(), 1))
		writers.Go(func() {
			s, collection := stores[i%3], []string{"pods", "nodes"}[i/3]
			var last *store.Object
			for n := range 100 { // an own key: each write must find the one before
				one := write(collection, fmt.Sprint("ns/", i), fmt.Sprint(n), 0)
				if last != nil {
					one.If = last.Modified
				}
				if last != nil && of.IntN(4) == 0 {
					one.Value = nil
				}
				o, err := s.Commit(t.Context(), one)
				if err != nil {
					t.Errorf("write %d of %s: %v", n, one.Key, err)
					return
				}
				if last = o; one.Value == nil {
					last = nil
				}
				if of.IntN(10) == 0 {
					s = stores[of.IntN(3)]
					time.Sleep(100 * time.Millisecond) // so that a collection has quiet moments
				}
			}
		})
	}
	writers.Wait()
	var first map[string]store.Revision
	for i, s := range stores {
		state, err := s.MostRecent(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]store.Revision{}
		for collection, o := range state.All() {
			all[collection+" "+o.Key] = o.Modified
		}
		if i == 0 {
			first = all
		} else if !maps.Equal(all, first) {
			t.Errorf("store %d has %v, store 0 %v", i, all, first)
		}
	}
	cancel()
	others.Wait()
	lists := 0
	for i, r := range reflectors {
		want := map[string]store.Revision{}
		for o := range r.store.Any().Snapshot(r.collection).Scan("", "") {
			want[o.Key] = o.Modified
		}
		if !maps.Equal(r.objects, want) {
			t.Errorf("client %d has %v of %s, want %v", i, r.objects, r.collection, want)
		}
		lists += r.lists
	}
	if loaded.Load() == 0 {
		t.Error("no follower was overtaken")
	}
	t.Logf("%d loads, %d lists by %d clients", loaded.Load(), lists, len(reflectors))
}
