// Package deflate assembles gzip members from fragments, which are compressed once and used
// many times. A list is the text of its objects: the part that has not changed since the
// last list is compressed already.
//
//	member    header | block ... | end | CRC-32, size          (RFC 1952)
//	block     a fragment: DEFLATE blocks that end at a byte boundary (a sync flush)
//	          and refer to nothing before them                   (RFC 1951)
//	          or a stored block: the text itself
//
// The member's CRC-32 is combined from those of the fragments: over GF(2), the CRC of the
// concatenation of a and b is CRC(a)·x^(8·len(b)) + CRC(b), modulo the polynomial. So each
// fragment carries x^(8·len), and adding a fragment costs about a hundred nanoseconds and a
// copy.
package deflate

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/flate"
)

// Fragment is a compressed text. It is immutable.
type Fragment struct {
	blocks []byte
	size   uint32 // bytes of the text
	crc    uint32 // of the text
	shift  uint32 // x^(8·size)
}

// Len is the length of the fragment in a member, in bytes.
func (f *Fragment) Len() int { return len(f.blocks) }

// Size is the length of the text, in bytes.
func (f *Fragment) Size() int { return int(f.size) }

// A compressor takes several hundred KiB, so compressors are pooled.
var compressors = sync.Pool{New: func() any {
	c := new(compressor)
	c.w, _ = flate.NewWriter(&c.out, flate.BestSpeed)
	return c
}}

type compressor struct {
	out bytes.Buffer
	w   *flate.Writer
}

// Compress returns the fragment of a text of less than 4 GiB, at level 1, as kube-apiserver
// compresses.
func Compress(text []byte) *Fragment {
	c := compressors.Get().(*compressor)
	defer compressors.Put(c)
	c.out.Reset()
	c.w.Reset(&c.out)
	c.w.Write(text) // into memory: no error
	c.w.Flush()
	return &Fragment{
		blocks: bytes.Clone(c.out.Bytes()),
		size:   uint32(len(text)),
		crc:    crc32.ChecksumIEEE(text),
		shift:  shift(len(text)),
	}
}

// Member is a gzip member that is being assembled. The zero value has no header yet: call
// Begin first, End last.
type Member struct {
	crc  uint32
	size uint32 // modulo 2^32, as in the trailer
}

// Begin appends the header.
func (m *Member) Begin(to []byte) []byte {
	*m = Member{}
	return append(to, 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4 /* fastest */, 255 /* unknown system */)
}

// Add appends a fragment.
func (m *Member) Add(to []byte, f *Fragment) []byte {
	m.crc = multiply(m.crc, f.shift) ^ f.crc
	m.size += f.size
	return append(to, f.blocks...)
}

// MaxStored is the largest text of a stored block, in bytes.
const MaxStored = 1<<16 - 1

// AddStored appends a text without compression, for short texts between fragments.
func (m *Member) AddStored(to, text []byte) []byte {
	for len(text) > 0 {
		n := min(len(text), MaxStored)
		to = append(m.StoredHead(to, text[:n]), text[:n]...)
		text = text[n:]
	}
	return to
}

// StoredHead appends the head of a stored block. The caller writes the text, of at most MaxStored
// bytes, after it.
func (m *Member) StoredHead(to, text []byte) []byte {
	m.crc = crc32.Update(m.crc, crc32.IEEETable, text)
	m.size += uint32(len(text))
	to = append(to, 0)
	to = binary.LittleEndian.AppendUint16(to, uint16(len(text)))
	return binary.LittleEndian.AppendUint16(to, ^uint16(len(text)))
}

// Sync appends an empty block that is not the last, so that readers return the text before it: some
// read the header of the next member first. A fragment ends with such a block.
func (m *Member) Sync(to []byte) []byte { return append(to, 0, 0, 0, 0xff, 0xff) }

// End appends the last block, which is empty, and the trailer.
func (m *Member) End(to []byte) []byte {
	to = append(to, 1, 0, 0, 0xff, 0xff)
	to = binary.LittleEndian.AppendUint32(to, m.crc)
	return binary.LittleEndian.AppendUint32(to, m.size)
}

// Polynomials over GF(2) of degree below 32 are represented as in CRC-32: the highest bit
// is the coefficient of x^0.
const one = 1 << 31

// multiply multiplies two polynomials modulo the polynomial of CRC-32.
func multiply(a, b uint32) uint32 {
	var product uint32
	for ; a != 0; a <<= 1 {
		if a&one != 0 {
			product ^= b
		}
		b = b>>1 ^ crc32.IEEE&-(b&1)
	}
	return product
}

// squares are x^(2^i).
var squares = func() (t [32]uint32) {
	t[0] = one >> 1
	for i := 1; i < len(t); i++ {
		t[i] = multiply(t[i-1], t[i-1])
	}
	return t
}()

// shift is x^(8·size).
func shift(size int) uint32 {
	p := uint32(one)
	for i, bits := 0, uint64(size)*8; bits > 0; i, bits = i+1, bits>>1 {
		if bits&1 != 0 {
			p = multiply(p, squares[i%len(squares)])
		}
	}
	return p
}
