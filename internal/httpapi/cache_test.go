package httpapi

import (
	"fmt"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// cachedObject is a stored ConfigMap of about a kilobyte.
func cachedObject(i int) *store.Object {
	value := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c%d","resourceVersion":"%d"},"data":{"a":"%01000d"}}`, i, i, i)
	return &store.Object{Key: fmt.Sprint("c", i), Held: []byte(value), Created: 1, Modified: store.Revision(i)}
}

// TestCacheLargeList: repeated reads of a list that is larger than the budget find as many
// objects in the cache as it has room for. A single object that is read gets into the cache
// all the same, and the cache stays within its budget.
func TestCacheLargeList(t *testing.T) {
	const objects, budget = 1000, 700 << 10 // for about half of them
	typ := builtin.Catalog().Lookup("", "v1", "configmaps")
	charged := int64(0)
	c := newCache(budget, func(n int64) bool { charged += n; return true })
	message := derivation{medium: wire.Output{Media: wire.Protobuf}.Binary()}
	found := func(o *store.Object) bool {
		key := formKey(typ, o, message)
		return c.shard(key).entries[key] != nil
	}
	hits := 0
	for round := range 4 {
		hits = 0
		for i := 1; i <= objects; i++ {
			o := cachedObject(i)
			if found(o) {
				hits++
			}
			if raw, ok, err := c.ofListed(t.Context(), typ, o, message); err != nil || ok && len(raw) == 0 {
				t.Fatal(err)
			}
			if charged > budget {
				t.Fatalf("round %d: %d bytes are kept of %d", round, charged, budget)
			}
		}
	}
	if hits < objects*4/10 {
		t.Errorf("%d of %d objects are found", hits, objects)
	}
	for i := objects + 1; i <= objects+50; i++ {
		o := cachedObject(i)
		if _, err := c.of(t.Context(), typ, o, message); err != nil || !found(o) {
			t.Errorf("%v, found: %v", err, found(o))
		}
	}
	if charged > budget {
		t.Errorf("%d bytes are kept of %d", charged, budget)
	}
}

// TestCacheRuns: compressed runs get at most a third of the budget, whatever forms of
// objects leave of it, and replace the least recently used runs.
func TestCacheRuns(t *testing.T) {
	const budget = 600 << 10
	typ := builtin.Catalog().Lookup("", "v1", "configmaps")
	charged := int64(0)
	c := newCache(budget, func(n int64) bool { charged += n; return true })
	message := derivation{medium: wire.Output{Media: wire.Protobuf}.Binary()}
	text := make([]byte, 2<<10)
	rng := testrand.New(t)
	for i := 1; i <= 1000; i++ {
		if i%2 == 0 {
			if _, err := c.of(t.Context(), typ, cachedObject(i), message); err != nil {
				t.Fatal(err)
			}
		}
		for j := range text {
			text[j] = byte(rng.Uint32())
		}
		made := 0
		for range 2 {
			r := &run{typ: typ, hash: rng.Uint64()>>8<<8 | uint64(i)}
			r.objects = []*store.Object{cachedObject(i)}
			for range 2 {
				got, err := c.ofRun(t.Context(), r, func() ([]byte, error) { made++; return text, nil })
				if err != nil || got.Size() != len(text) {
					t.Fatal(got, err)
				}
			}
		}
		if made != 2 {
			t.Fatalf("two runs were made %d times", made)
		}
		if charged > budget {
			t.Fatalf("%d bytes are kept of %d", charged, budget)
		}
	}
	var runs int64
	for i := range c.shards {
		runs += c.shards[i].runs.bytes
	}
	if runs > budget/3 || runs < budget/6 {
		t.Errorf("runs keep %d bytes of %d", runs, budget)
	}
}

// TestCacheSameHash: a run with the hash of another one is compressed by itself.
func TestCacheSameHash(t *testing.T) {
	typ := builtin.Catalog().Lookup("", "v1", "configmaps")
	c := newCache(1<<20, func(int64) bool { return true })
	for _, size := range []int{1000, 2000, 1000} {
		r := &run{typ: typ, hash: 7, objects: []*store.Object{cachedObject(size)}}
		got, err := c.ofRun(t.Context(), r, func() ([]byte, error) { return make([]byte, size), nil })
		if err != nil || got.Size() != size {
			t.Errorf("%d bytes are compressed as %d: %v", size, got.Size(), err)
		}
	}
}

// TestCacheSharedRevision: objects that were written or deleted at one revision have forms of
// their own.
func TestCacheSharedRevision(t *testing.T) {
	typ := builtin.Catalog().Lookup("", "v1", "configmaps")
	c := newCache(1<<20, func(int64) bool { return true })
	message := derivation{medium: wire.Output{Media: wire.Protobuf}.Binary()}
	forms := map[string]bool{}
	for i := 1; i <= 4; i++ {
		o := cachedObject(i)
		o.Modified = 7
		f, err := c.of(t.Context(), typ, o, message)
		if err != nil {
			t.Fatal(err)
		}
		forms[string(f.raw)] = true
	}
	if len(forms) != 4 {
		t.Errorf("4 objects of one revision have %d forms", len(forms))
	}
}
