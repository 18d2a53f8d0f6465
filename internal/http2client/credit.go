package http2client

import (
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"
)

// A server may send frames without end that carry nothing, such as empty DATA or CONTINUATION frames. Reading one costs up
// to a system call. So each frame takes one from the credit of its connection. Requests add to the credit, for the frames of
// their responses and windows, and so do the bytes of DATA and header frames. A connection without credit ends.
const (
	firstCredit = 10_000
	maxCredit   = 100_000
	// requestCredit is added for a request, and one more for each sentPerCredit bytes of its body.
	requestCredit, sentPerCredit = 100, 256
	// readPerCredit is the number of bytes of a DATA or header frame that add one.
	readPerCredit = 16
)

var errFlood = errors.New("http2: the server sends too many frames without content")

// credited reads frames for a framer, and charges the credit for them. It parses the heads of frames itself, because the
// framer does not return CONTINUATION frames.
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
		if add(c.credit, gain-1) < 0 {
			return 0, errFlood
		}
	}
	return n, err
}

// add adds n, which may be negative, to the credit up to maxCredit, and returns the credit.
func add(credit *atomic.Int64, n int) int64 {
	for {
		now := credit.Load()
		next := min(now+int64(n), maxCredit)
		if credit.CompareAndSwap(now, next) {
			return next
		}
	}
}
