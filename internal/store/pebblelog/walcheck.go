package pebblelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble ends the replay of a write-ahead log at the first chunk that does not
// fit its checksum. To tell damage from a torn write it looks for a later chunk
// that promises, in its header, that the log was synced beyond the bad one. But
// it begins to look at the next block of 32 KiB, and small logs are smaller than
// that; and it takes a chunk whose log number is one too high for the end of the
// log, without a look at its checksum.
//
// So the files are read here first, with the same rule and no gap: whatever ends
// a log, be it a bad chunk, zeros or a mark of the end, at offset X, a valid
// chunk anywhere after it that promises more than X proves damage.
//
// Pebble tells of a sync before it notes it for the chunks to come: a chunk that is written
// in between promises one group less. So damage to the last group may look like a torn
// write, seldom that to the last but one, never to one before.
//
//	chunk: checksum 4 | length 2 | type 1 | log number 4 | synced offset 8 | payload
//
// in little-endian order; the checksum is a CRC-32C, rotated and shifted as
// Pebble does it, from the type to the end of the payload. A chunk does not cross
// the end of a block; a block's rest that is too short for a header is zero.

const (
	walBlock     = 32 << 10
	walHeader    = 19
	walFirstType = 9
	walLastType  = 12
	walMark      = 11 // bytes
	walMarkType  = 5
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

// walEnd is where a write-ahead log ends.
type walEnd struct {
	// at is the offset behind the last chunk that is whole.
	at uint64
	// lost reports that a later chunk records that more was synced.
	lost bool
}

// readWAL looks for the end of a write-ahead log.
func readWAL(fs vfs.FS, path string, number uint64) (walEnd, error) {
	f, err := fs.Open(path)
	if err != nil {
		return walEnd{}, err
	}
	end, err := findEnd(f, uint32(number))
	return end, errors.Join(err, f.Close())
}

// findEnd reads a log. The mark that a clean stop writes belongs to it.
func findEnd(r io.Reader, number uint32) (walEnd, error) {
	block := make([]byte, walBlock)
	var end walEnd
	ended := false
	for base := uint64(0); ; base += walBlock {
		n, err := io.ReadFull(r, block)
		if err == io.EOF {
			return end, nil
		}
		if err != nil && err != io.ErrUnexpectedEOF {
			return end, err
		}
		b, from, mark := block[:n], 0, 0
		if !ended {
			from, ended = walkChunks(b, number)
			end.at = base + uint64(from)
			if !ended {
				end.at = base + uint64(n)
				continue
			}
			if isMark(b[from:], number) {
				mark = walMark
			}
		}
		if promised(b[from:], number, end.at) {
			end.lost = true
			return end, nil
		}
		end.at += uint64(mark)
	}
}

// isMark reports whether b begins with the mark of the end: a header of the older
// format, without content, of the next log.
func isMark(b []byte, number uint32) bool {
	if len(b) < walMark {
		return false
	}
	want := le.AppendUint32([]byte{0, 0, 0, 0, 0, 0, walMarkType}, number+1)
	return bytes.Equal(b[:walMark], want)
}

// walkChunks follows the chunks of a block. It returns where they end and whether the log
// ends there, too.
func walkChunks(b []byte, number uint32) (end int, ended bool) {
	for at := 0; ; {
		rest := b[at:]
		if len(rest) < walHeader && len(bytes.TrimLeft(rest, "\x00")) == 0 {
			return at, len(b) < walBlock
		}
		size, _, ok := readChunk(rest, number)
		if !ok {
			return at, true
		}
		at += size
	}
}

// readChunk returns the size of the chunk at the front of b, and up to where it
// promises the log to be synced.
func readChunk(b []byte, number uint32) (size int, synced uint64, ok bool) {
	if len(b) < walHeader || b[6] < walFirstType || b[6] > walLastType || le.Uint32(b[7:]) != number {
		return 0, 0, false
	}
	size = walHeader + int(le.Uint16(b[4:]))
	if size > len(b) {
		return 0, 0, false
	}
	sum := crc32.Checksum(b[6:size], castagnoli)
	if (sum>>15|sum<<17)+0xa282ead8 != le.Uint32(b) {
		return 0, 0, false
	}
	return size, le.Uint64(b[11:]), true
}

// promised reports whether a valid chunk at any offset of b records that the log was synced
// beyond the offset.
func promised(b []byte, number uint32, offset uint64) bool {
	mark := le.AppendUint32(nil, number)
	for at := 0; ; at++ {
		i := bytes.Index(b[at:], mark)
		if i < 0 {
			return false
		}
		at += i
		if at < 7 {
			continue
		}
		if _, synced, ok := readChunk(b[at-7:], number); ok && synced > offset {
			return true
		}
	}
}
