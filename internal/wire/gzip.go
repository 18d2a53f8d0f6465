package wire

import (
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// A compressor is some hundred KiB, so the few that work at once are shared.
var gzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return w
}}

// NewGzip returns a compressor that writes to w. ReleaseGzip takes it back; one
// that is not released is garbage.
func NewGzip(w io.Writer) *gzip.Writer {
	z := gzipWriters.Get().(*gzip.Writer)
	z.Reset(w)
	return z
}

// ReleaseGzip takes back a compressor that nobody uses any more.
func ReleaseGzip(z *gzip.Writer) {
	z.Reset(io.Discard)
	gzipWriters.Put(z)
}
