package store

import (
	"encoding/binary"
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

// mostFresh bounds the size of an object in fresh, in bytes.
const mostFresh = 256 << 10

// fresh has the unpacked bytes of the objects that were packed last. All stores of the process may
// share it: it is a cache by the address of the packed bytes.
var fresh freshBytes

// freshBytes is a ring. It is safe for concurrent use.
type freshBytes struct {
	next atomic.Uint64
	ring [16]atomic.Pointer[freshObject]
}

type freshObject struct {
	packed *byte
	bytes  []byte
}

func (f *freshBytes) add(packed, bytes []byte) {
	if len(bytes) > mostFresh {
		return
	}
	f.ring[f.next.Add(1)%uint64(len(f.ring))].Store(&freshObject{&packed[0], bytes})
}

func (f *freshBytes) get(packed []byte) []byte {
	for i := range f.ring {
		if e := f.ring[i].Load(); e != nil && e.packed == &packed[0] {
			return e.bytes
		}
	}
	return nil
}
