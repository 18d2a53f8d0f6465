package store_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

func open(tb testing.TB) *store.Store {
	return storetest.Open(tb, store.Options{Log: memlog.New()})
}

const benchObjects = 100_000

func benchKey(i int) string { return fmt.Sprintf("namespace-%03d/pod-%06d", i/250, i) }

// filled is a store with many objects of a size.
func filled(tb testing.TB, n, size int) *store.Store {
	s := open(tb)
	for i := range n {
		if _, err := s.Commit(tb.Context(), storetest.Padded(benchKey(i), 0, size)); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := filled(b, 10_000, 2000)
			value := storetest.Padded("", 0, 2000)
			b.ReportAllocs()
			b.ResetTimer()
			var next atomic.Int64
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					last := map[string]store.Revision{}
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						change := value
						change.Origin = &store.Origin{Verb: store.VerbUpdate, AuditID: store.AuditUUID([16]byte{1, byte(i)}),
							Actor: &store.Actor{User: "system:node:n1", UserAgent: "kubelet/v1.36.0 (linux/amd64)", FieldManager: "kubelet", Subresource: "status"}}
						change.Key = benchKey(int(i)*64%9984 + w)
						if change.If = last[change.Key]; change.If == 0 {
							change.If = s.Any().Get("pods", change.Key).Modified
						}
						o, err := s.Commit(b.Context(), change)
						if err != nil {
							b.Error(err)
							return
						}
						last[change.Key] = o.Modified
					}
				})
			}
			wg.Wait()
		})
	}
}

func BenchmarkGet(b *testing.B) {
	s := filled(b, benchObjects, 100)
	keys := make([]string, benchObjects)
	for i := range keys {
		keys[i] = benchKey(i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if s.Any().Get("pods", keys[i*7919%benchObjects]) == nil {
			b.Fatal("not there")
		}
	}
}

func BenchmarkScan(b *testing.B) {
	s := filled(b, benchObjects, 100)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for range s.Any().Snapshot("pods").Scan("", "") {
			n++
		}
		if n != benchObjects {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchObjects, "ns/object")
}

func BenchmarkScanHeld(b *testing.B) {
	s := filled(b, benchObjects, 100)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		v := s.Hold(b.Context(), "pods")
		for range v.Scan("", "") {
			n++
		}
		if v.Close(); n != benchObjects {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchObjects, "ns/object")
}

func BenchmarkCount(b *testing.B) {
	s := filled(b, benchObjects, 100).Any().Snapshot("pods")
	b.ReportAllocs()
	for b.Loop() {
		s.Count("", "namespace-200/")
	}
}

// BenchmarkExact opens a view of an old revision: one that is asked for again, as
// the pages of a list do; and new ones, near and far.
func BenchmarkExact(b *testing.B) {
	s := filled(b, 20_000, 100)
	for i := range 20_000 {
		o := s.Any().Get("pods", benchKey(i*7919%20_000))
		if _, err := s.Commit(b.Context(), storetest.Padded(o.Key, o.Modified, 100)); err != nil {
			b.Fatal(err)
		}
	}
	head := s.Any().Revision()
	for _, c := range []struct {
		name     string
		distance func(i int) store.Revision
	}{
		{"again", func(int) store.Revision { return 1000 }},
		{"near", func(i int) store.Revision { return 100 + store.Revision(i%40) }},
		{"far", func(i int) store.Revision { return 1000 + store.Revision(i)*4001%19_000 }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				v, err := s.Exact(b.Context(), "pods", head-c.distance(i), 0)
				if err != nil {
					b.Fatal(err)
				}
				v.Close()
			}
		})
	}
}

// BenchmarkWatch is one write that cursors see, each with a goroutine of its own.
func BenchmarkWatch(b *testing.B) {
	for _, cursors := range []int{1, 1000} {
		b.Run(fmt.Sprintf("cursors=%d", cursors), func(b *testing.B) {
			s := filled(b, 1000, 1000)
			var wg, ready sync.WaitGroup
			for range cursors {
				wg.Add(1)
				ready.Add(1)
				go func() {
					defer wg.Done()
					c, err := s.Watch("pods", "", s.Any().Revision())
					if err != nil {
						b.Error(err)
					}
					defer c.Close()
					ready.Done()
					buf := make([]*store.Change, 16)
					for n := 0; n < b.N; {
						got, err := storetest.Next(b.Context(), c, buf)
						if err != nil {
							b.Error(err)
							return
						}
						n += got
					}
				}()
			}
			ready.Wait()
			o := s.Any().Get("pods", benchKey(0))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				var err error
				if o, err = s.Commit(b.Context(), storetest.Padded(o.Key, o.Modified, 1000)); err != nil {
					b.Fatal(err)
				}
			}
			wg.Wait()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(cursors), "ns/event")
		})
	}
}

// BenchmarkIdleCursors measures a write with many cursors that do not select its key.
func BenchmarkIdleCursors(b *testing.B) {
	for _, cursors := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("cursors=%d", cursors), func(b *testing.B) {
			s := filled(b, 1000, 100)
			for i := range cursors {
				c, err := s.Watch("pods", fmt.Sprintf("other-%d/", i%500), s.Any().Revision())
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
			}
			o := s.Any().Get("pods", benchKey(0))
			b.ResetTimer()
			for range b.N {
				var err error
				if o, err = s.Commit(b.Context(), storetest.Padded(o.Key, o.Modified, 100)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// scanned is how much of the heap the collector follows pointers in, in words.
func scanned() uint64 {
	sample := []metrics.Sample{{Name: "/gc/scan/heap:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64() / 8
}

func heap() (bytes, objects uint64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.HeapObjects
}

// forgetful is a log that keeps nothing, so that a benchmark measures the store alone.
type forgetful struct{ *memlog.Log }

func (forgetful) Append(context.Context, []store.Entry, *store.Mark) error { return nil }

func (f forgetful) Replay(ctx context.Context, load func(string, *store.Object) error) (store.Bounds, error) {
	b, err := f.Log.Replay(ctx, load)
	b.InMemory = false
	return b, err
}

// BenchmarkMemory reports the memory of an object in addition to its value, with its key and
// its share of the tree, and the memory of an idle cursor. The history is kept minimal.
func BenchmarkMemory(b *testing.B) {
	for _, size := range []int{200, 2000, 4600} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			const n = 20_000
			for b.Loop() {
				bytes, objects := heap()
				words := scanned()
				s, err := stores.Open(b.Context(), store.Options{Log: forgetful{memlog.New()}, MaxMemory: 1 << 10})
				if err != nil {
					b.Fatal(err)
				}
				for i := range n {
					if _, err := s.Commit(b.Context(), storetest.Padded(benchKey(i), 0, size-9-16)); err != nil {
						b.Fatal(err)
					}
				}
				moreBytes, moreObjects := heap()
				moreWords := scanned()
				b.ReportMetric(float64(moreBytes-bytes)/n-float64(size), "B/object-overhead")
				b.ReportMetric(float64(moreObjects-objects)/n, "allocations/object")
				b.ReportMetric(float64(moreWords-words)/n, "scanned-words/object")
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, topics := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("cursors/topics=%d", topics), func(b *testing.B) {
			const n = 10_000
			s := open(b)
			for b.Loop() {
				prefixes := make([]string, n)
				for i := range prefixes {
					prefixes[i] = fmt.Sprintf("namespace-%d/", i%topics)
				}
				cursors := make([]*store.Cursor, n)
				bytes, _ := heap()
				for i := range cursors {
					c, err := s.Watch("pods", prefixes[i], s.Any().Revision())
					if err != nil {
						b.Fatal(err)
					}
					cursors[i] = c
				}
				more, _ := heap()
				b.ReportMetric(float64(more-bytes)/n, "B/cursor")
				for _, c := range cursors {
					c.Close()
				}
			}
		})
	}
}

// TestAllocations holds the budgets of the read path.
func TestAllocations(t *testing.T) {
	s := filled(t, 5000, 10)
	key, buf := benchKey(77), make([]*store.Change, 1)
	c, err := s.Watch("pods", "other/", s.Any().Revision())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var last string
	for _, budget := range []struct {
		what string
		most float64
		f    func()
	}{
		{"get", 0, func() { s.Any().Get("pods", key) }},
		{"a scan of 5,000 objects", 2, func() {
			for o := range s.Any().Snapshot("pods").Scan("", "") {
				last = o.Key
			}
		}},
		{"a scan of a namespace", 2, func() {
			for o := range s.Any().Snapshot("pods").Scan("namespace-003/", key) {
				last = o.Key
			}
		}},
		{"count", 1, func() { s.Any().Snapshot("pods").Count("namespace-003/", key) }},
		{"a cursor with nothing to read", 0, func() { c.TryNext(context.Background(), buf); c.Revision() }},
	} {
		if got := testing.AllocsPerRun(100, budget.f); got > budget.most {
			t.Errorf("%s: %v allocations, want at most %v", budget.what, got, budget.most)
		}
	}
	_ = strings.Clone(last)
}
