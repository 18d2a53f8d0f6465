package etcdlog

import (
	"bytes"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// FuzzBlock: a block of a copy is read or refused, and a block that is read is written again unchanged.
func FuzzBlock(f *testing.F) {
	whole := appendString(nil, "pods")
	for _, o := range []*store.Object{
		{Key: "default/a", Held: []byte(`{"metadata":{"resourceVersion":"12"}}`), Created: 3, Modified: 12, RevisionAt: 32},
		{Key: "", Held: nil, Created: 1, Modified: 1 << 60},
	} {
		whole = appendObject(whole, o, o.Key == "")
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, block []byte) {
		var read []copied
		var of []byte
		if err := eachOf(block, func(collection []byte, c *copied) { of, read = collection, append(read, *c) }); err != nil || len(read) == 0 {
			return
		}
		again := appendString(nil, of)
		for i := range read {
			o := read[i].object()
			if int(o.RevisionAt) > len(o.Held) || o.RevisionAt < 0 {
				t.Fatalf("the revision is at %d of %d bytes", o.RevisionAt, len(o.Held))
			}
			again = appendObject(again, o, read[i].outdated)
		}
		var same []copied
		if err := eachOf(again, func(_ []byte, c *copied) { same = append(same, *c) }); err != nil || len(same) != len(read) {
			t.Fatalf("read again: %v, %d objects of %d", err, len(same), len(read))
		}
		for i := range read {
			a, b := &read[i], &same[i]
			if !bytes.Equal(a.key, b.key) || !bytes.Equal(a.value, b.value) || a.created != b.created || a.modified != b.modified || a.revisionAt != b.revisionAt || a.outdated != b.outdated {
				t.Fatalf("object %d: %+v and %+v", i, a, b)
			}
		}
	})
}
