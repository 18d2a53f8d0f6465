package http2

import (
	"bytes"
	"runtime"
	"slices"
	"sync"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// sender is the sending part of a connection. The connection's lock guards it.
type sender struct {
	c *conn

	out     []byte    // frames that wait to be sent
	room    *[]byte   // of the pool, where out began
	last    int       // the offset in out of the last frame if that is DATA and may grow; or -1
	sending bool      // a goroutine is sending; it also sends bytes that are appended meanwhile
	queue   []*stream // streams that wait to append, in order

	window      int64 // of the connection, for bodies
	firstWindow int64 // of a new stream
	maxFrame    int

	encoder *hpack.Encoder
	block   bytes.Buffer // the header block that is being encoded

	stall stallTimer // of the write to the client
}

// corker is a connection that can gather writes: TLS writes its records one by one.
type corker interface {
	Cork()
	Uncork() error
}

func (s *sender) start(c *conn) {
	s.c, s.last, s.maxFrame = c, -1, firstSize
	s.stall.limit = c.s.WriteTimeout
	s.window, s.firstWindow = firstGrant, firstGrant
	s.encoder = hpack.NewEncoder(&s.block)
}

// buffers are send buffers that are not in use. Servers share them: a buffer is empty when it
// is taken.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// frame appends the head of a frame. The caller appends its bytes.
func (s *sender) frame(t h2.FrameType, flags h2.Flags, id uint32, size int) {
	if s.out == nil {
		s.room = buffers.Get().(*[]byte)
		s.out = (*s.room)[:0]
	}
	s.last = -1
	s.out = append(s.out, byte(size>>16), byte(size>>8), byte(size), byte(t), byte(flags))
	s.uint32(id)
}

func (s *sender) uint32(v uint32) {
	s.out = append(s.out, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

func (s *sender) windowUpdate(id uint32, more int) {
	s.frame(h2.FrameWindowUpdate, 0, id, 4)
	s.uint32(uint32(more))
}

const headBytes = 9 // of a frame

// isLast reports whether the last frame is DATA of a stream.
func (s *sender) isLast(id uint32) bool {
	return s.last >= 0 && s.out[s.last+5] == byte(id>>24) && s.out[s.last+6] == byte(id>>16) &&
		s.out[s.last+7] == byte(id>>8) && s.out[s.last+8] == byte(id)
}

// data appends DATA of a stream. It extends the last frame if that is DATA of the stream.
func (s *sender) data(id uint32, p []byte) {
	for len(p) > 0 {
		if !s.isLast(id) || len(s.out)-s.last-headBytes >= s.maxFrame {
			s.frame(h2.FrameData, 0, id, 0)
			s.last = len(s.out) - headBytes
		}
		n := min(len(p), s.maxFrame-(len(s.out)-s.last-headBytes))
		s.out = append(s.out, p[:n]...)
		p = p[n:]
		size := len(s.out) - s.last - headBytes
		s.out[s.last], s.out[s.last+1], s.out[s.last+2] = byte(size>>16), byte(size>>8), byte(size)
	}
}

// endStream appends the end of a stream's DATA.
func (s *sender) endStream(id uint32) {
	if s.isLast(id) {
		s.out[s.last+4] |= byte(h2.FlagDataEndStream)
		s.last = -1
		return
	}
	s.frame(h2.FrameData, h2.FlagDataEndStream, id, 0)
}

// headers appends the encoded header block as headers of a stream.
func (s *sender) headers(id uint32, end bool) {
	var flags h2.Flags
	if end {
		flags = h2.FlagHeadersEndStream
	}
	kind := h2.FrameHeaders
	for {
		part := s.block.Next(s.maxFrame)
		if s.block.Len() == 0 {
			flags |= h2.FlagHeadersEndHeaders // as of CONTINUATION
		}
		s.frame(kind, flags, id, len(part))
		s.out = append(s.out, part...)
		if s.block.Len() == 0 {
			if s.block.Reset(); s.block.Cap() > keptBytes {
				s.block = bytes.Buffer{}
			}
			return
		}
		kind, flags = h2.FrameContinuation, 0
	}
}

// space returns how many bytes of bodies may be appended.
func (s *sender) space() int {
	most := sendBytes
	switch {
	case s.c.s.overBudget.Load():
		most = overBudgetSendBytes
	case !s.c.isAuthenticated():
		most = unauthenticatedSendBytes
	}
	return int(min(int64(most-len(s.out)), s.window))
}

// turn returns how many of want bytes a stream may append now, and counts them as sent;
// zero: it has to wait. Streams that wait for the connection are served in order.
func (s *sender) turn(st *stream, want int) int {
	place := slices.Index(s.queue, st)
	switch {
	case st.window <= 0: // until a WINDOW_UPDATE
		s.leave(place)
		s.next()
		return 0
	case place > 0 || place < 0 && len(s.queue) > 0 || s.space() <= 0:
		if place < 0 {
			s.queue = append(s.queue, st)
		}
		return 0
	}
	s.leave(place)
	n := min(want, turnBytes, s.space(), int(st.window))
	s.window -= int64(n)
	st.window -= int64(n)
	return n
}

// reserve waits until a stream may append DATA, and returns how many of want bytes; zero:
// the stream keeps them as its rest.
func (s *sender) reserve(st *stream, want int) (int, error) {
	for st.err == nil {
		if n := s.turn(st, want); n > 0 {
			return n, nil
		}
		if !s.sending && len(s.out) > 0 {
			s.flush()
			continue
		}
		if st.mayLeave(want) {
			return 0, nil
		}
		st.stall.begin(&s.c.mu, st)
		holds := 0
		if !s.c.isAuthenticated() { // otherwise its memory is that of a waiting request of its user
			holds = waitingBytes
		}
		s.c.keep(holds)
		st.waiters++
		st.wait(&st.writable)
		st.waiters--
		s.c.keep(-holds)
	}
	s.leave(slices.Index(s.queue, st))
	s.next()
	wake(st.writable) // another goroutine may write to the same stream
	return 0, st.err
}

// leave removes a stream from the queue. A negative place is a no-op.
func (s *sender) leave(place int) {
	if place >= 0 {
		s.queue = slices.Delete(s.queue, place, place+1)
	}
}

// next resumes the first stream of the queue if there is space.
func (s *sender) next() {
	if len(s.queue) > 0 && s.space() > 0 {
		s.resume(s.queue[0])
	}
}

// resume resumes a stream that may append more: it wakes the handler, or appends the rest
// that the handler has left.
func (s *sender) resume(st *stream) {
	if st.rest != nil {
		st.resumeRest()
		return
	}
	wake(st.writable)
}

// flush sends the buffer. If another goroutine is the sender, flush leaves it to that one.
// It releases the lock meanwhile.
func (s *sender) flush() {
	if s.sending || len(s.out) == 0 || s.c.err != nil {
		return
	}
	s.sending = true
	for before, turns := 0, 0; len(s.out) > before && len(s.out) < sendBytes/2 && turns < maxTurns; turns++ {
		before = len(s.out)
		s.c.mu.Unlock()
		runtime.Gosched() // goroutines that are ready append first
		s.c.mu.Lock()
	}
	s.send()
	if len(s.out) > 0 && s.c.err == nil {
		go s.sendRest() // so that the caller can go on
		return
	}
	s.sending = false
	s.c.endIfDone()
}

// flushLater is flush for callers that must not wait for the client.
func (s *sender) flushLater() {
	if !s.sending && len(s.out) > 0 && s.c.err == nil {
		s.sending = true
		go s.sendRest()
	}
}

// sendRest sends until the buffer is empty.
func (s *sender) sendRest() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for len(s.out) > 0 && s.c.err == nil {
		s.send()
	}
	s.sending = false
	s.c.endIfDone()
}

// send writes the buffer to the client. It releases the lock meanwhile.
func (s *sender) send() {
	out, room := s.out, s.room
	s.out, s.room, s.last = nil, nil, -1
	s.next()
	if s.c.flying = len(out); len(out) > corkBytes {
		s.c.flying *= 2
	}
	s.c.account()
	s.stall.begin(&s.c.mu, s)
	s.c.mu.Unlock()
	err := s.write(out)
	if cap(out) <= 2*sendBytes {
		*room = out
		buffers.Put(room)
	}
	s.c.mu.Lock()
	s.stall.end()
	s.c.flying = 0
	s.c.account()
	if err != nil {
		s.c.sendFailed()
	}
}

// stalled closes the connection, because a write has taken too long. A write deadline of the
// connection would cost a call for each write, and could be over when crypto/tls writes by
// itself.
func (s *sender) stalled() {
	s.c.log("a client does not read", nil)
	s.c.sendFailed()
}

// corkBytes is the size of a TLS record. Longer writes are gathered.
const corkBytes = 16 << 10

// write writes to the client with one system call.
func (s *sender) write(out []byte) error {
	k, ok := s.c.tls.NetConn().(corker)
	if !ok || len(out) <= corkBytes {
		_, err := s.c.tls.Write(out)
		return err
	}
	k.Cork()
	_, err := s.c.tls.Write(out)
	if sent := k.Uncork(); err == nil {
		err = sent
	}
	return err
}
