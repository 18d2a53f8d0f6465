package upgrade

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// ErrFull is the error of a connection that a Limit does not allow.
var ErrFull = errors.New("too many connections to other servers are open, please try again later")

// Limit bounds how many connections are open that the server has dialled, so that files are left for those of its clients.
// All methods are safe for concurrent use.
type Limit struct {
	// Most is how many connections there may be; zero: there is no limit.
	Most int64
	// Relieve closes connections that are not in use, before a further one is refused; nil: there are none.
	Relieve func()

	open atomic.Int64
}

// Dial returns a function that dials within the limit. Its error is ErrFull if there are too many connections.
func (l *Limit) Dial(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if !l.take() {
			if l.Relieve != nil {
				l.Relieve()
			}
			if !l.take() {
				return nil, ErrFull
			}
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			l.open.Add(-1)
			return nil, err
		}
		return &limitedConn{Conn: conn, of: l}, nil
	}
}

func (l *Limit) take() bool {
	if l.open.Add(1) <= l.Most || l.Most == 0 {
		return true
	}
	l.open.Add(-1)
	return false
}

// limitedConn is a connection that counts.
type limitedConn struct {
	net.Conn
	of     *Limit
	closed sync.Once
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.closed.Do(func() { c.of.open.Add(-1) })
	return c.Conn.Close()
}
