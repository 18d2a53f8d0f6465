package pebblelog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// All integers in keys and records are big-endian and of fixed size. Checksums
// are XXH64.

var be = binary.BigEndian

// errChecksum: the bytes are not those that were written.
var errChecksum = errors.New("the checksum does not fit")

// errShort: a record ends too early, or does not end where it should.
var errShort = errors.New("the record has the wrong length")

// Sizes of the fixed parts, in bytes.
const (
	currentFixed  = 8 + 8 + 8 + 4
	replacedFixed = 8 + 8 + 8 + 4
	headerFixed   = 8 + 8 + 8 + 4 + 1
	markSize      = 8 + 8
	headSize      = 11 * 8
	oldHeadSize   = 10 * 8
)

// hasher computes checksums, and keeps a buffer for it. One goroutine uses it.
type hasher struct{ buf []byte }

// version is the checksum of one version of an object: over its place, its
// revisions and its bytes. It is the same for as long as the version lives, in c/
// as in h/.
func (h *hasher) version(place []byte, o *store.Object) uint64 {
	b := append(h.buf[:0], place...)
	b = be.AppendUint64(b, uint64(o.Created))
	b = be.AppendUint64(b, uint64(o.Modified))
	b = be.AppendUint32(b, uint32(o.RevisionAt))
	b = be.AppendUint64(b, xxhash.Sum64(o.Bytes()))
	h.buf = b
	return xxhash.Sum64(b)
}

// checksum is the checksum of a replaced version: over that of the version, and the
// revision until which it was current.
func (h *hasher) checksum(version uint64, until store.Revision) uint64 {
	b := be.AppendUint64(h.buf[:0], version)
	b = be.AppendUint64(b, uint64(until))
	h.buf = b
	return xxhash.Sum64(b)
}

// chain is the chain value of a header: over the chain value before it, its
// revision and its content, which is the record without its first eight bytes.
func (h *hasher) chain(before uint64, r store.Revision, content []byte) uint64 {
	b := be.AppendUint64(h.buf[:0], before)
	b = be.AppendUint64(b, uint64(r))
	b = append(b, content...)
	h.buf = b
	return xxhash.Sum64(b)
}

// A current version: sum, created, modified, revisionAt, value.

func putCurrent(b []byte, sum uint64, o *store.Object) {
	be.PutUint64(b[0:], sum)
	be.PutUint64(b[8:], uint64(o.Created))
	be.PutUint64(b[16:], uint64(o.Modified))
	be.PutUint32(b[24:], uint32(o.RevisionAt))
	copy(b[currentFixed:], o.Bytes())
}

// currentModified reads the revision of a current version without looking at the
// rest.
func currentModified(b []byte) (store.Revision, error) {
	if len(b) < currentFixed {
		return 0, errShort
	}
	return store.Revision(be.Uint64(b[16:])), nil
}

// readCurrent reads a current version and checks it. The object's value is part
// of b, and its key is left to the caller.
func readCurrent(h *hasher, place, b []byte, o *store.Object) (sum uint64, err error) {
	if len(b) < currentFixed {
		return 0, errShort
	}
	sum = be.Uint64(b)
	o.Created = store.Revision(be.Uint64(b[8:]))
	o.Modified = store.Revision(be.Uint64(b[16:]))
	o.RevisionAt = int32(be.Uint32(b[24:]))
	o.Held = b[currentFixed:]
	if h.version(place, o) != sum {
		return 0, errChecksum
	}
	return sum, checkRevisionAt(o)
}

// A replaced version: checksum, until, created, revisionAt, value. The revision that
// made it is in the key.

func putReplaced(b []byte, checksum uint64, until store.Revision, o *store.Object) {
	be.PutUint64(b[0:], checksum)
	be.PutUint64(b[8:], uint64(until))
	be.PutUint64(b[16:], uint64(o.Created))
	be.PutUint32(b[24:], uint32(o.RevisionAt))
	copy(b[replacedFixed:], o.Bytes())
}

// replacedUntil reads until without looking at the rest.
func replacedUntil(b []byte) (store.Revision, error) {
	if len(b) < replacedFixed {
		return 0, errShort
	}
	return store.Revision(be.Uint64(b[8:])), nil
}

// readReplaced is readCurrent for a replaced version.
func readReplaced(h *hasher, place []byte, modified store.Revision, b []byte, o *store.Object) (until store.Revision, err error) {
	if len(b) < replacedFixed {
		return 0, errShort
	}
	until = store.Revision(be.Uint64(b[8:]))
	o.Created = store.Revision(be.Uint64(b[16:]))
	o.Modified = modified
	o.RevisionAt = int32(be.Uint32(b[24:]))
	o.Held = b[replacedFixed:]
	if h.checksum(h.version(place, o), until) != be.Uint64(b) {
		return 0, errChecksum
	}
	return until, checkRevisionAt(o)
}

// checkRevisionAt checks the offset of the revision. Encrypted values have its complement; they
// are longer than the plain text.
func checkRevisionAt(o *store.Object) error {
	at := o.RevisionAt
	if at < 0 {
		at = ^at
	}
	if int(at) > o.Len() {
		return fmt.Errorf("the revision is at %d, beyond the %d bytes of the value", at, o.Len())
	}
	return nil
}

// kind is the kind of a change.
type kind byte

const (
	kindCreated kind = 1 + iota
	kindUpdated
	kindDeleted

	// originBit is set in the kind of a header that has an origin.
	originBit = 0x80
)

// header is the record of a change: chain, sum, before, beforeBytes, kind, place, origin.
type header struct {
	chain uint64
	// sum is the checksum of the version that the change made; zero of a deletion.
	sum uint64
	// before is the revision of the version that the change replaced; zero when it
	// created the object.
	before store.Revision
	// beforeBytes is the size of that version in h/: key and record.
	beforeBytes uint32
	kind        kind
	place       []byte
	// origin is the record of the origin; nil: none is known, as in format 1.
	origin []byte
}

// size is the size of the header on the disk, with its key.
func (h *header) size() uint64 { return uint64(9 + headerFixed + len(h.place) + len(h.origin)) }

func appendHeader(b []byte, h header) []byte {
	b = be.AppendUint64(b, h.chain)
	b = be.AppendUint64(b, h.sum)
	b = be.AppendUint64(b, uint64(h.before))
	b = be.AppendUint32(b, h.beforeBytes)
	if h.origin == nil {
		b = append(b, byte(h.kind))
	} else {
		b = append(b, byte(h.kind)|originBit)
	}
	return append(append(b, h.place...), h.origin...)
}

// readHeader reads a header, and checks that its chain value follows from the
// one before it. The header's place and origin are parts of b.
func readHeader(hs *hasher, before uint64, r store.Revision, b []byte) (header, error) {
	h, err := parseHeader(b)
	if err != nil {
		return header{}, err
	}
	if hs.chain(before, r, b[8:]) != h.chain {
		return header{}, errors.New("the chain is broken: this header does not follow from the one before it")
	}
	return h, nil
}

// parseHeader reads a header without its chain.
func parseHeader(b []byte) (header, error) {
	if len(b) < headerFixed {
		return header{}, errShort
	}
	h := header{
		chain:       be.Uint64(b),
		sum:         be.Uint64(b[8:]),
		before:      store.Revision(be.Uint64(b[16:])),
		beforeBytes: be.Uint32(b[24:]),
		kind:        kind(b[28] &^ originBit),
	}
	if h.kind < kindCreated || h.kind > kindDeleted {
		return header{}, fmt.Errorf("unknown kind of change %d", h.kind)
	}
	if (h.kind == kindCreated) != (h.before == 0) {
		return header{}, fmt.Errorf("kind of change %d with the version before at %d", h.kind, h.before)
	}
	_, _, rest, ok := cutPlace(b[headerFixed:])
	if !ok || len(rest) != 0 && b[28]&originBit == 0 {
		return header{}, errors.New("no collection and key")
	}
	h.place = b[headerFixed : len(b)-len(rest)]
	if b[28]&originBit != 0 {
		h.origin = rest
		if _, err := readOrigin(rest); err != nil {
			return header{}, fmt.Errorf("the origin: %w", err)
		}
	}
	return h, nil
}

// A mark: running time in nanoseconds, checksum over the revision and the time.

func appendMark(b []byte, h *hasher, m store.Mark) []byte {
	b = be.AppendUint64(b, uint64(m.Running))
	return be.AppendUint64(b, h.checksum(uint64(m.Running), m.Revision))
}

func readMark(h *hasher, r store.Revision, b []byte) (store.Mark, error) {
	if len(b) != markSize {
		return store.Mark{}, errShort
	}
	n := be.Uint64(b)
	if h.checksum(n, r) != be.Uint64(b[8:]) {
		return store.Mark{}, errChecksum
	}
	if n > math.MaxInt64 {
		return store.Mark{}, fmt.Errorf("a running time of %d ns", n)
	}
	return store.Mark{Revision: r, Running: time.Duration(n)}, nil
}

// head is the state of the log.
type head struct {
	// sequence counts the batches that were ever written.
	sequence uint64
	// revision is that of the newest change, chain the chain value of its header.
	revision store.Revision
	chain    uint64
	// floor is the oldest revision that can be read back.
	floor store.Revision
	// cut is the last revision whose header was removed, cutChain the chain value
	// of that header. It follows floor, and reaches it when a compaction is through.
	cut      store.Revision
	cutChain uint64
	// objects is the number of current versions, sum adds up their checksums.
	objects, sum uint64
	// historyBytes is the size of all headers, of the actors that they define and of all replaced
	// versions, keys included.
	historyBytes uint64
	// time is that of the newest change that had one, in microseconds since 1970; zero: none had.
	// A head of format 1 lacks it.
	time int64
}

func (h *head) append(b []byte) []byte {
	start := len(b)
	for _, n := range [...]uint64{
		h.sequence, uint64(h.revision), h.chain, uint64(h.floor), uint64(h.cut), h.cutChain,
		h.objects, h.sum, h.historyBytes, uint64(h.time),
	} {
		b = be.AppendUint64(b, n)
	}
	return be.AppendUint64(b, xxhash.Sum64(b[start:]))
}

func readHead(b []byte) (head, error) {
	if len(b) != headSize && len(b) != oldHeadSize {
		return head{}, errShort
	}
	if xxhash.Sum64(b[:len(b)-8]) != be.Uint64(b[len(b)-8:]) {
		return head{}, errChecksum
	}
	at := func(i int) uint64 { return be.Uint64(b[8*i:]) }
	h := head{
		sequence: at(0), revision: store.Revision(at(1)), chain: at(2), floor: store.Revision(at(3)),
		cut: store.Revision(at(4)), cutChain: at(5), objects: at(6), sum: at(7), historyBytes: at(8),
	}
	if len(b) == headSize {
		h.time = int64(at(9))
	}
	if h.cut > h.floor || h.floor > h.revision {
		return head{}, fmt.Errorf("the cut %d, the floor %d and the head %d are out of order", h.cut, h.floor, h.revision)
	}
	return h, nil
}
