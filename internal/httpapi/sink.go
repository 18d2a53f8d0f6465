package httpapi

import (
	"net/http"

	"github.com/tidemark-dev/tidemark/internal/deflate"
)

// sink gathers a response of unknown length and writes it in pieces of WriteBatchBytes or
// more. A response that fits into one piece is sent with its length. A longer one is
// compressed if the client accepts gzip.
type sink struct {
	q           *request
	contentType []string
	begun       bool // whether the response is compressed is decided
	// holds is how many bytes are gathered before the first of them is written: until then, the response to an error is
	// a Status. held is how many of them count as memory of a waiting request.
	holds, held int

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
func (s *sink) full() bool {
	if s.begun {
		return len(s.buf) >= s.q.h.c.Limits.WriteBatchBytes
	}
	return s.due(len(s.buf))
}

// due reports whether the n bytes that were gathered have to be written.
func (s *sink) due(n int) bool {
	step := s.q.h.c.Limits.WriteBatchBytes
	if n < step {
		return false
	}
	if s.q.wrote || n >= s.holds {
		return true
	}
	for ; s.held < n && s.q.seat != nil; s.held += step {
		if !s.q.seat.Hold(int64(step)) {
			s.holds = 0
			return true
		}
	}
	return false
}

// flush writes or compresses the bytes that were gathered.
func (s *sink) flush() error {
	if !s.begun {
		if s.zipped = len(s.buf) > s.q.h.c.Limits.CompressAbove && s.q.acceptsGzip(); s.zipped {
			s.beginZip()
			s.out = s.member.Begin(s.out)
		}
		s.begun = true
	}
	if !s.zipped {
		err := s.write(s.buf)
		s.buf = s.buf[:0]
		return err
	}
	s.out = s.member.Add(s.out, deflate.Compress(s.buf))
	s.buf = s.buf[:0]
	if !s.due(len(s.out)) {
		return nil
	}
	err := s.write(s.out)
	s.out = s.out[:0]
	return err
}

// beginZip begins a compressed response.
func (s *sink) beginZip() {
	s.begun = true
	s.outRoom = s.q.h.buffer(s.q.h.c.Limits.WriteBatchBytes)
	s.out = (*s.outRoom)[:0]
	*s.outRoom = nil
}

// write writes bytes, before them the header.
func (s *sink) write(b []byte) error {
	s.writeHeader()
	return s.q.write(b)
}

// writeLast writes the end of the response.
func (s *sink) writeLast(b []byte) error {
	s.writeHeader()
	return s.q.writeLast(b)
}

func (s *sink) writeHeader() {
	if s.q.wrote {
		return
	}
	s.q.header()["Content-Type"] = s.contentType
	if s.outRoom != nil {
		s.q.compressed()
	}
	s.q.writeHeader(http.StatusOK)
}

// close writes the rest, and gives back the buffers. It is called once, and not after an
// error: the connection may then still use the buffers.
func (s *sink) close() error {
	q := s.q
	if !s.begun && len(s.buf) <= q.h.c.Limits.CompressAbove {
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
	if s.begun && !s.zipped {
		return s.writeLast(s.buf)
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
	return s.writeLast(s.out)
}
