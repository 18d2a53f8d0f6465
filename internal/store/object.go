package store

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"sync/atomic"
)

// An Object is one version of a stored object. It is immutable, apart from its
// memo, and safe for use by any number of readers.
type Object struct {
	// Pointers come first: the garbage collector scans only up to the last pointer.
	memo atomic.Pointer[any]

	// Key is the name in the collection, see the package comment.
	Key string

	// Held are the bytes that Bytes returns or, of a packed object, unpacks. They must not
	// be changed.
	Held []byte

	// Created is the revision that created the object, Modified the one that made
	// this version. With a Shared, several objects can have the same Modified, but no two
	// versions of one object; see IsGone.
	Created, Modified Revision

	// RevisionAt is the offset of the digits of Modified in the bytes. A log that encrypts
	// hands the log below it encrypted bytes, with the complement (^) of the offset in the
	// plain ones, which is negative.
	RevisionAt int32

	// mark holds the offset of SetMark and the bits isPacked, isGone and isUnreadable.
	mark atomic.Uint32

	digest atomic.Uint64
}

// Bytes is the object as clients get it, with the decimal digits of Modified at
// RevisionAt. The bytes must not be changed. A packed object is unpacked by each call, which
// takes some tens of microseconds for 40 KB, unless it was written just now.
func (o *Object) Bytes() []byte {
	if o.mark.Load()&isPacked == 0 {
		return o.Held
	}
	return o.unpack()
}

// Len is the length of Bytes. It does not unpack them.
func (o *Object) Len() int {
	if o.mark.Load()&isPacked == 0 {
		return len(o.Held)
	}
	return o.unpackedLen()
}

// Unversioned returns a copy of the bytes without the digits of Modified, as a Write has them.
func (o *Object) Unversioned() []byte {
	all, at := o.Bytes(), int(o.RevisionAt)
	value := make([]byte, 0, len(all))
	return append(append(value, all[:at]...), all[at+digits(o.Modified):]...)
}

// Memo returns the value of SetMemo, or nil.
func (o *Object) Memo() any {
	if p := o.memo.Load(); p != nil {
		return *p
	}
	return nil
}

// SetMemo keeps a value that a reader derived from the bytes, such as labels, so that it
// is computed about once for each version and shared. If two calls race, one value
// stays; both must be equivalent.
func (o *Object) SetMemo(v any) { o.memo.Store(&v) }

// Digest returns the value of SetDigest, or zero.
func (o *Object) Digest() uint64 { return o.digest.Load() }

// SetDigest keeps a small Bloom filter of the memo's contents. It lies in the object itself,
// so a scan that selects a few of a million objects reads one cache line of each
// instead of the six that lead to the memo.
func (o *Object) SetDigest(bits uint64) { o.digest.Store(bits) }

// Mark returns the offset of SetMark, or zero.
func (o *Object) Mark() int { return int(o.mark.Load() &^ (isPacked | isGone | isUnreadable)) }

// SetMark keeps an offset in the bytes that a reader searched for, so that it is searched
// for about once. Calls that race must keep the same offset. It costs no memory.
func (o *Object) SetMark(at int) { o.mark.Or(uint32(at)) }

// isGone is the bit of Object.mark of the objects that Change.Gone returns. It is set before the object
// is shared.
const isGone = 1 << 30

// IsGone reports whether Change.Gone made the object: the content before a change, with the
// revision of the change. The object after the change may have the same revision, so a cache
// by key and revision also needs IsGone in its key.
func (o *Object) IsGone() bool { return o.mark.Load()&isGone != 0 }

// At returns the same content with another revision. A deletion reports the last state
// with the revision of the deletion.
func (o *Object) At(r Revision) *Object {
	old := digits(o.Modified)
	was := o.Bytes()
	value := make([]byte, 0, len(was)+digits(r)-old)
	value = append(value, was[:o.RevisionAt]...)
	value = strconv.AppendUint(value, uint64(r), 10)
	value = append(value, was[int(o.RevisionAt)+old:]...)
	n := &Object{Key: o.Key, Held: value, Created: o.Created, Modified: r, RevisionAt: o.RevisionAt}
	n.memo.Store(o.memo.Load())
	n.digest.Store(o.digest.Load())
	n.mark.Store(isGone | o.mark.Load()&isUnreadable)
	return n
}

// Digits is the length of Modified in decimal, as Bytes has it.
func (o *Object) Digits() int { return digits(o.Modified) }

func (o *Object) setPacked(data []byte) {
	o.Held = data
	o.mark.Store(isPacked)
}

// unpack returns the bytes of a packed object. It panics if the memory was damaged.
func (o *Object) unpack() []byte {
	if value := fresh.get(o.Held); value != nil {
		return value
	}
	n, at := digits(o.Modified), int(o.RevisionAt)
	out := make([]byte, o.unpackedLen())
	value, err := packers().unpacker.DecodeAll(o.Held[lengthBytes:], out[n:n])
	if err != nil || len(value) != len(out)-n {
		panic(fmt.Sprintf("store: a packed object is damaged: %d bytes of %d: %v", len(value), len(out)-n, err))
	}
	copy(out, value[:at])
	strconv.AppendUint(out[at:at], uint64(o.Modified), 10)
	return out
}

func (o *Object) unpackedLen() int {
	return int(binary.BigEndian.Uint32(o.Held)) + digits(o.Modified)
}

// packLoaded packs an object that a log replays.
func packLoaded(o *Object) {
	at, n := int(o.RevisionAt), digits(o.Modified)
	value := make([]byte, 0, len(o.Held)-n)
	o.setPacked(pack(append(append(value, o.Held[:at]...), o.Held[at+n:]...)))
}

// isPacked is the bit of Object.mark of packed objects. It is set before the object is
// shared. The offsets in mark are smaller.
const isPacked = 1 << 31

// isUnreadable is the bit of Object.mark of a stand-in. It is set before the object is shared.
const isUnreadable = 1 << 29
