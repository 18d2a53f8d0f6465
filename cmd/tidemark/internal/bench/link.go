package bench

import (
	"context"
	"net"

	timerate "golang.org/x/time/rate"
)

// link limits the bytes that several connections receive together, as the network to another
// machine does.
type link struct{ bytes *timerate.Limiter }

// linkBurst is how many bytes arrive at once: a few TLS records.
const linkBurst = 64 << 10

// newLink returns a link of a bandwidth in megabits a second.
func newLink(mbit int) *link {
	return &link{timerate.NewLimiter(timerate.Limit(mbit)*1e6/8, linkBurst)}
}

// dial connects like net.Dialer.
func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &linkConn{c, l}, nil
}

// linkConn is a connection over a link.
type linkConn struct {
	net.Conn
	link *link
}

// Read waits until the link has carried the bytes.
func (c *linkConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), linkBurst)])
	if waitErr := c.link.bytes.WaitN(context.Background(), n); err == nil {
		err = waitErr
	}
	return n, err
}
