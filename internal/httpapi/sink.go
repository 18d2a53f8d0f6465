package httpapi

import (
	"net/http"

	"github.com/klauspost/compress/gzip"

	"github.com/tidemark-dev/tidemark/internal/wire"
)

// sink gathers an answer of unknown length and writes it in pieces of
// WriteBatchBytes or more: a write costs an HTTP/2 server a hand-off. What fits
// into one piece goes out with its length; what does not is compressed where the
// client accepts it.
type sink struct {
	q           *request
	contentType []string

	// buf is what waits to be written, or to be compressed.
	buf  []byte
	room *[]byte

	z       *gzip.Writer // nil: not compressed, or put together from fragments
	out     []byte       // compressed bytes that wait to be written
	outRoom *[]byte
}

func newSink(q *request) *sink {
	room := q.h.buffer(q.h.c.Limits.WriteBatchBytes)
	return &sink{q: q, room: room, buf: (*room)[:0]}
}

// full tells that the next thing to do is flush.
func (s *sink) full() bool { return len(s.buf) >= s.q.h.c.Limits.WriteBatchBytes }

// flush passes on what was gathered.
func (s *sink) flush() error {
	if !s.q.wrote {
		zip := len(s.buf) > s.q.h.c.Limits.CompressAbove && s.q.acceptsGzip()
		s.begin(zip)
		if zip {
			s.gzip()
		}
	}
	var err error
	if s.z != nil {
		_, err = s.z.Write(s.buf)
	} else {
		err = s.q.write(s.buf)
	}
	s.buf = s.buf[:0]
	return err
}

// begin writes the header of the answer.
func (s *sink) begin(zipped bool) {
	s.q.header()["Content-Type"] = s.contentType
	if zipped {
		s.q.compressed()
		s.outRoom = s.q.h.buffer(s.q.h.c.Limits.WriteBatchBytes)
		s.out = (*s.outRoom)[:0]
	}
	s.q.writeHeader(http.StatusOK)
}

// gzip has what follows compressed.
func (s *sink) gzip() {
	s.z = wire.NewGzip((*compressedTo)(s))
}

// Write compresses a part of the answer; for one that is compressed alone.
func (s *sink) Write(b []byte) (int, error) { return s.z.Write(b) }

// close writes the rest, and gives back the buffers. It is called once, and not
// after an error: bytes may then still be on their way out.
func (s *sink) close() error {
	q := s.q
	if !q.wrote && len(s.buf) <= q.h.c.Limits.CompressAbove {
		if err := q.send(http.StatusOK, s.contentType, s.buf); err != nil {
			return err
		}
	} else if len(s.buf) > 0 {
		if err := s.flush(); err != nil {
			return err
		}
	}
	if s.z != nil {
		if err := s.z.Close(); err != nil {
			return err
		}
		if err := q.write(s.out); err != nil {
			return err
		}
		wire.ReleaseGzip(s.z)
	}
	q.h.giveBack(s.room, s.buf)
	if s.outRoom != nil {
		q.h.giveBack(s.outRoom, s.out)
	}
	return nil
}

// compressedTo gathers the compressor's output.
type compressedTo sink

// Write implements io.Writer.
func (c *compressedTo) Write(b []byte) (int, error) {
	c.out = append(c.out, b...)
	if len(c.out) < c.q.h.c.Limits.WriteBatchBytes {
		return len(b), nil
	}
	err := c.q.write(c.out)
	c.out = c.out[:0]
	return len(b), err
}
