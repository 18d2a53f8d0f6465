package httpapi

import (
	"fmt"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// derivedObject is a stored ConfigMap of about a kilobyte.
func derivedObject(i int) *store.Object {
	value := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c%d","resourceVersion":"%d"},"data":{"a":"%01000d"}}`, i, i, i)
	return &store.Object{Key: fmt.Sprint("c", i), Held: []byte(value), Created: 1, Modified: store.Revision(i)}
}

// TestDerivedLargeList: of a list that is larger than the budget, and that is read
// again and again, as much is found as there is room for; what somebody asks for by
// itself has a place nevertheless, and the budget holds.
func TestDerivedLargeList(t *testing.T) {
	const objects, budget = 1000, 700 << 10 // for about half of them
	typ := builtin.Catalog().Lookup("", "v1", "configmaps")
	charged, most := int64(0), int64(budget)
	d := newDerived(func() int64 { return most }, func(n int64) { charged += n })
	message := derivation{medium: wire.Output{Media: wire.Protobuf}.Binary()}
	found := func(o *store.Object) bool {
		s := &d.shards[uint64(o.Modified)%derivedShards]
		return s.forms[derivedKeyOf(typ, o, message)] != nil
	}
	hits := 0
	for round := range 4 {
		hits = 0
		for i := 1; i <= objects; i++ {
			o := derivedObject(i)
			if found(o) {
				hits++
			}
			if raw, ok, err := d.ofListed(t.Context(), typ, o, message); err != nil || ok && len(raw) == 0 {
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
		o := derivedObject(i)
		if _, err := d.of(t.Context(), typ, o, message); err != nil || !found(o) {
			t.Errorf("%v, found: %v", err, found(o))
		}
	}
	most = 1 << 10 // something else needs the room
	d.shrink()
	if charged > most {
		t.Errorf("%d bytes are kept of %d", charged, most)
	}
}
