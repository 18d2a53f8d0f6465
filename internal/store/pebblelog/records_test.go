package pebblelog

import (
	"bytes"
	"cmp"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// FuzzKeys: encoded keys are distinct, can be decoded, and sort by collection, key and revision.
func FuzzKeys(f *testing.F) {
	f.Add("pods", "a/b", uint64(1), "pods", "a/b-1", uint64(2))
	f.Add("pod", "s", uint64(math.MaxUint64), "pods", "", uint64(0))
	f.Add("a", "a\x01", uint64(7), "a", "a", uint64(7))
	f.Fuzz(func(t *testing.T, c1, k1 string, r1 uint64, c2, k2 string, r2 uint64) {
		if checkPlace(c1, k1) != nil || checkPlace(c2, k2) != nil {
			return
		}
		order := cmp.Or(strings.Compare(c1, c2), strings.Compare(k1, k2))
		a, b := appendCurrentKey(nil, c1, k1), appendCurrentKey(nil, c2, k2)
		if got := bytes.Compare(a, b); got != order {
			t.Errorf("current keys of %q %q and %q %q: order %d, want %d", c1, k1, c2, k2, got, order)
		}
		if order != 0 && (bytes.HasPrefix(a, b) || bytes.HasPrefix(b, a)) {
			t.Errorf("one of %q and %q is a prefix of the other", a, b)
		}
		a = appendReplacedKey(nil, c1, k1, store.Revision(r1))
		b = appendReplacedKey(nil, c2, k2, store.Revision(r2))
		if got, want := bytes.Compare(a, b), cmp.Or(order, cmp.Compare(r1, r2)); got != want {
			t.Errorf("replaced keys of %q %q %d and %q %q %d: order %d, want %d", c1, k1, r1, c2, k2, r2, got, want)
		}
		place, r, ok := cutReplacedKey(a)
		c, k, rest, ok2 := cutPlace(place)
		if !ok || !ok2 || uint64(r) != r1 || string(c) != c1 || string(k) != k1 || len(rest) > 0 {
			t.Errorf("%q %q %d came back as %q %q %d", c1, k1, r1, c, k, r)
		}
	})
}

// FuzzScanBounds: exactly the keys that are asked for lie within the bounds.
func FuzzScanBounds(f *testing.F) {
	f.Add("pods", "ns/", "ns/a", "pods", "ns/b", uint64(9))
	f.Add("pods", "", "a\x00b", "pods", "a\x01", uint64(1)<<63)
	f.Add("pods", "\xff", "\xff\xff", "pods", "\xff\xff\xff", uint64(0))
	f.Add("pods", "a", "b", "pods", "ab", uint64(0))
	f.Fuzz(func(t *testing.T, collection, prefix, after, c, k string, r uint64) {
		if checkPlace(c, k) != nil || checkPlace(collection, "k") != nil {
			return
		}
		want := c == collection && strings.HasPrefix(k, prefix) && k > after
		for space, key := range map[byte][]byte{
			spaceCurrent:  appendCurrentKey(nil, c, k),
			spaceReplaced: appendReplacedKey(nil, c, k, store.Revision(r)),
		} {
			lower, upper, ok := scanBounds(space, collection, prefix, after)
			got := ok && bytes.Compare(lower, key) <= 0 && bytes.Compare(key, upper) < 0
			if got != want {
				t.Errorf("%q %q with prefix %q after %q: within the bounds: %v, want %v", c, k, prefix, after, got, want)
			}
		}
	})
}

// flipped returns b with one bit changed.
func flipped(b []byte, at uint) []byte {
	c := bytes.Clone(b)
	c[at/8%uint(len(c))] ^= 1 << (at % 8)
	return c
}

// FuzzVersions: versions come back as they were, and no changed bit is overlooked.
func FuzzVersions(f *testing.F) {
	f.Add([]byte(`{"a":"12"}`), uint64(3), uint64(12), uint64(15), 6, uint(77))
	f.Fuzz(func(t *testing.T, value []byte, created, modified, until uint64, at int, flip uint) {
		if at < 0 || at > len(value) {
			return
		}
		var h hasher
		place := appendPlace(nil, "pods", "ns/a")
		o := &store.Object{Held: value, Created: store.Revision(created), Modified: store.Revision(modified), RevisionAt: int32(at)}
		sum := h.version(place, o)

		b := make([]byte, currentFixed+len(value))
		putCurrent(b, sum, o)
		var got store.Object
		if s, err := readCurrent(&h, place, b, &got); err != nil || s != sum || !equal(&got, o) {
			t.Errorf("current: %v, %+v", err, &got)
		}
		if _, err := readCurrent(&h, place, flipped(b, flip), &got); err == nil {
			t.Errorf("current: bit %d is not checked", flip)
		}

		b = make([]byte, replacedFixed+len(value))
		putReplaced(b, h.checksum(sum, store.Revision(until)), store.Revision(until), o)
		if u, err := readReplaced(&h, place, o.Modified, b, &got); err != nil || uint64(u) != until || !equal(&got, o) {
			t.Errorf("replaced: %v, %+v", err, &got)
		}
		if _, err := readReplaced(&h, place, o.Modified, flipped(b, flip), &got); err == nil {
			t.Errorf("replaced: bit %d is not checked", flip)
		}
		if _, err := readReplaced(&h, place, o.Modified+1, b, &got); err == nil {
			t.Error("replaced: the revision in the key is not checked")
		}
	})
}

func equal(a, b *store.Object) bool {
	return bytes.Equal(a.Bytes(), b.Bytes()) && a.Created == b.Created && a.Modified == b.Modified && a.RevisionAt == b.RevisionAt
}

// FuzzDecoders: no decoder panics, or accepts bytes that its encoder would not write.
func FuzzDecoders(f *testing.F) {
	var hs hasher
	h := head{sequence: 9, revision: 7, chain: 1, floor: 5, cut: 5, cutChain: 2, objects: 3, sum: 4, historyBytes: 5}
	f.Add(h.append(nil))
	f.Add(h.append([]byte(headMagic)))
	f.Add(appendHeader(nil, header{kind: kindCreated, place: appendPlace(nil, "c", "k"), origin: appendOrigin(nil, origin{time: 1, audit: store.NewAuditID("x")})}))
	f.Add(appendOrigin(nil, origin{time: -1, verb: store.VerbApply, distance: noActor, audit: store.AuditUUID([16]byte{1})}))
	f.Add(appendActor(nil, &hs, 1, &store.Actor{User: "u", Loop: "l"}))
	f.Add(appendHeader(nil, header{kind: kindCreated, place: appendPlace(nil, "c", "k")}))
	f.Add(appendMark(nil, &hs, store.Mark{Revision: 1, Running: time.Second}))
	f.Add(make([]byte, 200))
	f.Fuzz(func(t *testing.T, b []byte) {
		var hs hasher
		if h, err := readHead(b); err == nil && len(b) == headSize && !bytes.Equal(h.append(nil), b) {
			t.Errorf("head %x was written as %x", b, h.append(nil))
		}
		if w, err := parseHeadFile(b); err == nil && bytes.HasPrefix(b, []byte(headMagic)) && !bytes.Equal(w.append(nil), b) {
			t.Errorf("HEAD %x was written as %x", b, w.append(nil))
		}
		if h, err := parseHeader(b); err == nil && !bytes.Equal(appendHeader(nil, h), b) {
			t.Errorf("header %x was written as %x", b, appendHeader(nil, h))
		}
		if m, err := readMark(&hs, 1, b); err == nil && !bytes.Equal(appendMark(nil, &hs, m), b) {
			t.Errorf("mark %x was written as %x", b, appendMark(nil, &hs, m))
		}
		if o, err := readOrigin(b); err == nil && !bytes.Equal(appendOrigin(nil, o), b) {
			t.Errorf("origin %x was written as %x", b, appendOrigin(nil, o))
		}
		if a, err := readActor(&hs, 1, b); err == nil && !bytes.Equal(appendActor(nil, &hs, 1, a), b) {
			t.Errorf("actor %x was written as %x", b, appendActor(nil, &hs, 1, a))
		}
		var o store.Object
		_, _ = readCurrent(&hs, []byte("c\x00k\x00"), b, &o)
		_, _ = readReplaced(&hs, []byte("c\x00k\x00"), 1, b, &o)
		_, _ = currentModified(b)
		_, _ = replacedUntil(b)
		_, _, _ = cutReplacedKey(b)
		_, _ = cutRevisionKey(spaceHeader, b)
		_, _, _, _ = cutPlace(b)
	})
}

// FuzzFindEnd: the reader of write-ahead logs takes any bytes.
func FuzzFindEnd(f *testing.F) {
	f.Add([]byte{}, uint32(2))
	f.Add(make([]byte, walBlock+100), uint32(0))
	rng := rand.New(rand.NewPCG(1, 2))
	chunk := make([]byte, 3*walBlock)
	for i := range chunk {
		chunk[i] = byte(rng.Uint32())
	}
	f.Add(chunk, uint32(7))
	f.Fuzz(func(t *testing.T, b []byte, number uint32) {
		end, err := findEnd(bytes.NewReader(b), number)
		if err != nil || end.at > uint64(len(b)) {
			t.Errorf("offset %d of %d bytes, %v", end.at, len(b), err)
		}
	})
}

// TestChain: a header follows from one other header alone.
func TestChain(t *testing.T) {
	var hs hasher
	h := header{kind: kindUpdated, before: 3, beforeBytes: 100, sum: 9, place: appendPlace(nil, "pods", "ns/a")}
	h.origin = appendOrigin(nil, origin{time: 77, verb: store.VerbUpdate, distance: 3, audit: store.AuditUUID([16]byte{9})})
	b := appendHeader(nil, h)
	be.PutUint64(b, hs.chain(42, 5, b[8:]))
	if _, err := readHeader(&hs, 42, 5, b); err != nil {
		t.Fatal(err)
	}
	if _, err := readHeader(&hs, 43, 5, b); err == nil {
		t.Error("the chain value before it is not checked")
	}
	if _, err := readHeader(&hs, 42, 6, b); err == nil {
		t.Error("the revision is not checked")
	}
	for bit := range uint(8 * len(b)) {
		if _, err := readHeader(&hs, 42, 5, flipped(b, bit)); err == nil {
			t.Errorf("bit %d is not checked", bit)
		}
	}
}
