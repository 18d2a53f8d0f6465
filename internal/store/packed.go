package store

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
)

// # Packed objects
//
// Some collections have many large objects that are seldom read, such as definitions of
// custom resources. The store holds them compressed, without the digits of their revision.
// The most recently written ones are also held uncompressed, since their writers and
// watchers read them at once.

// leastPacked is the least number of bytes for which packing pays.
const leastPacked = 4 << 10

// isPacked is the bit of Object.mark of packed objects. It is set before the object is
// shared. The offsets in mark are smaller.
const isPacked = 1 << 31

// packs reports whether an object of a collection is packed.
func (o *Options) packs(collection string, size int) bool {
	return size >= leastPacked && o.Packed[collection]
}

// lengthBytes at the beginning of the packed bytes hold the length of the unpacked ones.
const lengthBytes = 4

// packing compresses and decompresses. It is safe for concurrent use.
type packing struct {
	packer   *zstd.Encoder
	unpacker *zstd.Decoder
}

// packers returns the packing of the process. It is made on first use: many servers never need it.
var packers = makePackers()

// makePackers starts the goroutine that makes the packing. A packing has channels. Channels that are made in a bubble of
// testing/synctest end the process when another bubble uses them, so this goroutine starts with the program, outside of all
// bubbles.
func makePackers() func() packing {
	wanted, made := make(chan struct{}), make(chan packing)
	go func() {
		<-wanted
		p := packing{newPacker(), newUnpacker()}
		p.packer.EncodeAll(nil, nil) // the first call makes the channels
		made <- p
	}()
	return sync.OnceValue(func() packing {
		close(wanted)
		return <-made
	})
}

func newPacker() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(packWindow), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	if err != nil { // the options are constants
		panic(err)
	}
	return e
}

func newUnpacker() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderLowmem(true))
	if err != nil { // the options are constants
		panic(err)
	}
	return d
}

// packWindow is how far back repetitions are found, in bytes.
const packWindow = 128 << 10

// pack compresses bytes that do not contain the digits.
func pack(value []byte) []byte {
	room := binary.BigEndian.AppendUint32(make([]byte, 0, len(value)/4), uint32(len(value)))
	room = packers().packer.EncodeAll(value, room)
	return append(make([]byte, 0, len(room)), room...)
}

// packLoaded packs an object that a log replays.
func packLoaded(o *Object) {
	at, n := int(o.RevisionAt), digits(o.Modified)
	value := make([]byte, 0, len(o.Held)-n)
	o.setPacked(pack(append(append(value, o.Held[:at]...), o.Held[at+n:]...)))
}

func (o *Object) setPacked(data []byte) {
	o.Held = data
	o.mark.Store(isPacked)
}

// unpack returns the bytes of a packed object. It panics if the memory was damaged.
func (o *Object) unpack() []byte {
	if value := fresh.get(o); value != nil {
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

// mostFresh bounds the size of an object in fresh, in bytes.
const mostFresh = 256 << 10

// fresh has the bytes of the objects that were packed last. All stores of the process may
// share it: it is a cache by object.
var fresh freshBytes

// freshBytes is a ring. It is safe for concurrent use.
type freshBytes struct {
	next atomic.Uint64
	ring [16]atomic.Pointer[freshObject]
}

type freshObject struct {
	object *Object
	bytes  []byte
}

func (f *freshBytes) add(o *Object, bytes []byte) {
	if len(bytes) > mostFresh {
		return
	}
	f.ring[f.next.Add(1)%uint64(len(f.ring))].Store(&freshObject{o, bytes})
}

func (f *freshBytes) get(o *Object) []byte {
	for i := range f.ring {
		if e := f.ring[i].Load(); e != nil && e.object == o {
			return e.bytes
		}
	}
	return nil
}
