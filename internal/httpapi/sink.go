package httpapi

import (
	"net/http"

	"github.com/tidemark-dev/tidemark/internal/deflate"
)

// sink gathers an answer of unknown length and writes it in pieces of WriteBatchBytes or
// more. An answer that fits into one piece is sent with its length. A longer one is
// compressed if the client accepts gzip.
type sink struct {
	q           *request
	contentType []string

	// buf are the bytes that wait to be written or compressed.
	buf  []byte
	room *[]byte

	// zipped: each piece is compressed by itself. So a list for a slow client holds no
	// compressor, which would be its largest part.
	zipped  bool
	member  deflate.Member
	out     []byte // compressed bytes that wait to be written
	outRoom *[]byte
}

func newSink(q *request) *sink {
	room := q.h.buffer(q.h.c.Limits.WriteBatchBytes)
	s := &sink{q: q, room: room, buf: (*room)[:0]}
	*room = nil // it may be outgrown
	return s
}

// full reports that the sink has to be flushed.
func (s *sink) full() bool { return len(s.buf) >= s.q.h.c.Limits.WriteBatchBytes }

// flush writes or compresses the bytes that were gathered.
func (s *sink) flush() error {
	if !s.q.wrote {
		zip := len(s.buf) > s.q.h.c.Limits.CompressAbove && s.q.acceptsGzip()
		s.begin(zip)
		if s.zipped = zip; zip {
			s.out = s.member.Begin(s.out)
		}
	}
	if !s.zipped {
		err := s.q.write(s.buf)
		s.buf = s.buf[:0]
		return err
	}
	s.out = s.member.Add(s.out, deflate.Compress(s.buf))
	s.buf = s.buf[:0]
	if len(s.out) < s.q.h.c.Limits.WriteBatchBytes {
		return nil
	}
	err := s.q.write(s.out)
	s.out = s.out[:0]
	return err
}

// begin writes the header of the answer.
func (s *sink) begin(zipped bool) {
	s.q.header()["Content-Type"] = s.contentType
	if zipped {
		s.q.compressed()
		s.outRoom = s.q.h.buffer(s.q.h.c.Limits.WriteBatchBytes)
		s.out = (*s.outRoom)[:0]
		*s.outRoom = nil
	}
	s.q.writeHeader(http.StatusOK)
}

// close writes the rest, and gives back the buffers. It is called once, and not after an
// error: the connection may then still use the buffers.
func (s *sink) close() error {
	q := s.q
	if !q.wrote && len(s.buf) <= q.h.c.Limits.CompressAbove {
		if err := q.send(http.StatusOK, s.contentType, s.buf); err != nil {
			return err
		}
	} else if err := s.end(); err != nil {
		return err
	}
	q.h.giveBack(s.room, s.buf)
	if s.outRoom != nil {
		q.h.giveBack(s.outRoom, s.out)
	}
	return nil
}

// end writes the last piece.
func (s *sink) end() error {
	if s.q.wrote && !s.zipped {
		return s.q.writeLast(s.buf)
	}
	if len(s.buf) > 0 {
		if err := s.flush(); err != nil {
			return err
		}
	}
	if !s.zipped {
		return nil
	}
	s.out = s.member.End(s.out)
	return s.q.writeLast(s.out)
}
