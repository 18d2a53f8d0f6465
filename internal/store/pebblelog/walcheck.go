package pebblelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

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
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

// checkWALs refuses a directory whose write-ahead logs lost what was synced.
func checkWALs(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		digits, isLog := strings.CutSuffix(fs.PathBase(name), ".log")
		number, err := strconv.ParseUint(digits, 10, 64)
		if !isLog || err != nil {
			continue
		}
		path := fs.PathJoin(dir, name)
		f, err := fs.Open(path)
		if err != nil {
			return err
		}
		at, err := findLost(f, uint32(number))
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		if at >= 0 {
			return &DamageError{
				File:  path,
				Place: fmt.Sprintf("offset %d", at),
				Err:   errors.New("what was synced there does not fit its checksum"),
			}
		}
	}
	return nil
}

// findLost returns the offset at which a log ends although more of it was
// synced, -1 when there is none.
func findLost(r io.Reader, number uint32) (int64, error) {
	block := make([]byte, walBlock)
	end := int64(-1) // where the log ends, once that is known
	for base := int64(0); ; base += walBlock {
		n, err := io.ReadFull(r, block)
		if err == io.EOF {
			return -1, nil
		}
		if err != nil && err != io.ErrUnexpectedEOF {
			return -1, err
		}
		b, from := block[:n], 0
		if end < 0 {
			var ended bool
			if from, ended = walkChunks(b, number); !ended {
				continue
			}
			end = base + int64(from)
		}
		if promised(b[from:], number, uint64(end)) {
			return end, nil
		}
	}
}

// walkChunks follows the chunks of a block, and says where they end and whether
// the log ends there, too.
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

// promised says whether a valid chunk, at any offset of b, promises that the log
// was synced beyond the offset.
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
