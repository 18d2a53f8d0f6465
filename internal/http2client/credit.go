package http2client

import (
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"
)

// Frames that bring nothing, such as empty DATA or CONTINUATION frames, cost the reader a system call or less each, and
// the server may send them without end. So each frame costs one of the connection's credit, and what is useful adds to
// it: requests, for the frames that their responses and windows need, and the bytes of frames.
const (
	firstCredit = 10_000
	maxCredit   = 100_000
	// requestCredit is for a request, with one for each sentPerCredit bytes of its body.
	requestCredit, sentPerCredit = 100, 256
	// readPerCredit is how many bytes of DATA or header frames add one. Others add nothing.
	readPerCredit = 16
)

var errFlood = errors.New("http2: the server sends too many frames that bring nothing")

// credited is what the framer reads from. It looks at the heads of frames: the framer itself shows no CONTINUATION.
type credited struct {
	r      io.Reader
	credit *atomic.Int64

	head [frameHead]byte
	n    int // bytes of head that were read
	left int // bytes of the frame's payload that were not read
}

const frameHead = 9

// Read implements io.Reader.
func (c *credited) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		if c.left > 0 {
			skip := min(c.left, len(rest))
			c.left, rest = c.left-skip, rest[skip:]
			continue
		}
		part := copy(c.head[c.n:], rest)
		c.n, rest = c.n+part, rest[part:]
		if c.n < frameHead {
			continue
		}
		c.n, c.left = 0, int(binary.BigEndian.Uint32(c.head[:4])>>8)
		gain := 0
		switch c.head[3] {
		case 0, 1, 9: // DATA, HEADERS, CONTINUATION
			gain = c.left / readPerCredit
		}
		if spend(c.credit, gain-1) < 0 {
			return 0, errFlood
		}
	}
	return n, err
}

// spend adds n to the credit, which has an upper limit, and returns it.
func spend(credit *atomic.Int64, n int) int64 {
	for {
		now := credit.Load()
		next := min(now+int64(n), maxCredit)
		if credit.CompareAndSwap(now, next) {
			return next
		}
	}
}
