package inprocess

import (
	"io"
	"os"
	"sync"
	"time"
)

// keptBytes is the size of a buffer that an idle pipe keeps. Thousands of watches may be idle.
const keptBytes = 1 << 10

// pipe is a bounded buffer between a writer and a reader. One goroutine may read and one may write
// at a time; the other methods are safe for concurrent use. newPipe makes one.
type pipe struct {
	mu      sync.Mutex
	changed sync.Cond // broadcast after each change that a reader or a writer may wait for
	buf     []byte    // written and not read, after off
	off     int
	end     error // error of reads after buf; nil: more data may follow
	closed  error // error of writes; nil: the reader may read more

	readUntil, writeUntil deadline
	limit                 time.Duration // how long a write may wait; zero: until its deadline
}

func newPipe() *pipe {
	p := new(pipe)
	p.changed.L = &p.mu
	return p
}

// read returns available bytes, and waits for them if there are none.
func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.readUntil.passed():
			return 0, os.ErrDeadlineExceeded
		case p.off < len(p.buf):
			n := copy(b, p.buf[p.off:])
			if p.off += n; p.off == len(p.buf) {
				p.empty()
			}
			p.changed.Broadcast()
			return n, nil
		case p.end != nil:
			return 0, p.end
		case len(b) == 0:
			return 0, nil
		}
		p.wait(&p.readUntil)
	}
}

// empty reuses a small buffer, and frees a large one. The lock is held.
func (p *pipe) empty() {
	p.off = 0
	if p.buf = p.buf[:0]; cap(p.buf) > keptBytes {
		p.buf = nil
	}
}

// write writes all of b. It waits for the reader when the buffer is full.
func (p *pipe) write(b []byte) (written int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	limited := false
	for {
		switch {
		case p.closed != nil:
			err = p.closed
		case p.end != nil:
			err = io.ErrClosedPipe
		case p.writeUntil.passed():
			err = os.ErrDeadlineExceeded
		default:
			n := min(len(b)-written, p.room())
			p.put(b[written : written+n])
			written += n
		}
		if err != nil || written == len(b) {
			if limited {
				p.writeUntil.set(time.Time{})
			}
			return written, err
		}
		if p.limit > 0 && !limited {
			limited = true
			p.writeUntil.set(time.Now().Add(p.limit))
		}
		p.wait(&p.writeUntil)
	}
}

// tryWrite writes all of b if there is room for it, otherwise nothing.
func (p *pipe) tryWrite(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil || p.end != nil || len(b) > p.room() {
		return false
	}
	p.put(b)
	return true
}

// room is how many bytes the buffer takes. The lock is held.
func (p *pipe) room() int { return bufferBytes - (len(p.buf) - p.off) }

// unread is how many bytes wait for the reader.
func (p *pipe) unread() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.buf) - p.off
}

// put appends to the buffer. The lock is held.
func (p *pipe) put(b []byte) {
	if len(b) == 0 {
		return
	}
	if p.off > 0 && len(p.buf)+len(b) > cap(p.buf) {
		p.buf = p.buf[:copy(p.buf, p.buf[p.off:])]
		p.off = 0
	}
	p.buf = append(p.buf, b...)
	p.changed.Broadcast()
}

// wait waits for a change, or for a deadline. The lock is held.
func (p *pipe) wait(d *deadline) {
	if !d.at.IsZero() && d.timer == nil {
		var mine *time.Timer
		mine = time.AfterFunc(time.Until(d.at), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if d.timer == mine {
				d.timer = nil
				p.changed.Broadcast()
			}
		})
		d.timer = mine
	}
	p.changed.Wait()
}

// setDeadline sets one of the deadlines; zero: none.
func (p *pipe) setDeadline(d *deadline, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d.set(at)
	p.changed.Broadcast()
}

// setLimit sets how long each write may wait for the reader.
func (p *pipe) setLimit(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = d
}

// finish makes reads return err after the written bytes. Only the first call has an effect.
func (p *pipe) finish(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		p.end = err
		p.changed.Broadcast()
	}
}

// cut drops the bytes that were not read. From now on, reads return readErr and writes return
// writeErr. A pipe that was read to its end still returns the error of its end.
func (p *pipe) cut(readErr, writeErr error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil || p.off < len(p.buf) {
		p.end = readErr
	}
	if p.closed == nil {
		p.closed = writeErr
	}
	p.buf, p.off = nil, 0
	p.readUntil.set(time.Time{})
	p.writeUntil.set(time.Time{})
	p.changed.Broadcast()
}

// failed returns the error of writes, nil if the reader still reads.
func (p *pipe) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// deadline is a point in time, and the timer that wakes the goroutine that waits until then.
type deadline struct {
	at    time.Time   // zero: none
	timer *time.Timer // nil: no goroutine has waited
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) set(at time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
}
