package openapi

import (
	"bytes"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
)

// member is a path or a model of a document, in one rendering. It is immutable and compressed:
// a server keeps all of them, and reads one when it makes a page.
type member struct {
	packed []byte
	size   int
	// split is where the kinds of a model belong (x-kubernetes-group-version-kind): they depend on the catalog.
	split  int
	models []string // the models that it refers to
}

// packers compress and expand members. They are scratch memory: each use begins with Reset.
var packers = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.DefaultCompression)
	if err != nil { // the level is valid
		panic(err)
	}
	return &packer{w: w, r: flate.NewReader(nil)}
}}

type packer struct {
	w *flate.Writer
	r io.ReadCloser
}

// pack returns a member with a text in two parts.
func pack(before, after []byte, models []string) *member {
	p := packers.Get().(*packer)
	defer packers.Put(p)
	var packed bytes.Buffer
	p.w.Reset(&packed)
	p.w.Write(before) // into memory: no error
	p.w.Write(after)
	p.w.Close()
	return &member{packed: bytes.Clone(packed.Bytes()), size: len(before) + len(after), split: len(before), models: models}
}

// unpack returns the two parts of the text. They are valid until the next call with the same buffer.
func (m *member) unpack(buffer *bytes.Buffer) (before, after []byte, err error) {
	p := packers.Get().(*packer)
	defer packers.Put(p)
	if err := p.r.(flate.Resetter).Reset(bytes.NewReader(m.packed), nil); err != nil {
		return nil, nil, err
	}
	buffer.Reset()
	buffer.Grow(m.size + bytes.MinRead)
	if _, err := buffer.ReadFrom(p.r); err != nil {
		return nil, nil, err
	}
	text := buffer.Bytes()
	return text[:m.split], text[m.split:], nil
}
