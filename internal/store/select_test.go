package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestSelect: whatever changes, all objects that may be wanted are yielded, and no
// others once all digests are set.
func TestSelect(t *testing.T) {
	rng := testrand.New(t)
	s := open(t)
	key := func() string { return fmt.Sprintf("ns-%d/o-%03d", rng.IntN(3), rng.IntN(300)) }
	for range 60 {
		for range rng.IntN(100) {
			w := store.Write{Collection: "pods", Key: key()}
			if o := s.Any().Get("pods", w.Key); o != nil {
				w.If = o.Modified
			}
			if w.If == 0 || rng.IntN(3) > 0 {
				w = storetest.Padded(w.Key, w.If, 10)
			}
			storetest.MustCommit(t, s, w)
		}
		wanted := rng.Uint64N(4)
		may := func(digest uint64) bool { return digest == 0 || digest%4 == wanted }
		var prefix, after string
		if rng.IntN(2) == 0 {
			prefix = key()[:5]
		}
		if rng.IntN(2) == 0 {
			after = key()
		}
		v := s.Hold(t.Context(), "pods")
		var want, got []string
		complete := true
		for o := range v.Scan("", "") {
			if o.Digest() == 0 && rng.IntN(10) > 0 {
				o.SetDigest(rng.Uint64() | 1<<63)
			}
			complete = complete && o.Digest() != 0
		}
		for o := range v.Scan(prefix, after) {
			if may(o.Digest()) {
				want = append(want, o.Key)
			}
		}
		for o := range v.Select(prefix, after, may) {
			if complete || may(o.Digest()) {
				got = append(got, o.Key)
			}
		}
		if v.Close(); !slices.Equal(got, want) {
			t.Fatalf("after %q in %q: got %v, want %v", after, prefix, got, want)
		}
	}
}

// BenchmarkSelect scans objects with a filter that keeps 1 % of them.
func BenchmarkSelect(b *testing.B) {
	s := filled(b, benchObjects, 100)
	i := uint64(0)
	for o := range s.Any().Snapshot("pods").Scan("", "") {
		o.SetDigest(1<<63 | i%100)
		i++
	}
	may := func(digest uint64) bool { return digest%128 == 7 }
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		v := s.Hold(b.Context(), "pods")
		for range v.Select("", "", may) {
			n++
		}
		if v.Close(); n != benchObjects/100 {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchObjects, "ns/object")
}
