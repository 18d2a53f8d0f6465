package serving

import (
	"cmp"
	"container/list"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// listener limits the number of open connections to all addresses together. A flood of connections must not use up the
// file descriptors that the log needs, and unauthenticated connections must not keep out
// clients with credentials. So at the limit, unauthenticated connections are closed for new
// ones.
type listener struct {
	all    []net.Listener
	free   chan struct{} // holds a value for each open connection
	closed chan struct{}
	once   sync.Once

	// lastWrite is the latest write deadline, in Unix nanoseconds; zero: none.
	lastWrite atomic.Int64

	headers *headerBudget

	mu              sync.Mutex
	open            map[*connection]struct{} // guarded by mu
	unauthenticated unauthenticated          // guarded by mu
}

// connection is an accepted connection. Closing it makes room for another one.
type connection struct {
	net.Conn
	l     *listener
	since time.Time
	once  sync.Once

	stage atomic.Int32  // changes with listener.mu held
	peer  *peer         // of its address; guarded by listener.mu
	queue *list.List    // the list of peer that it is in; nil once authenticated or closed; guarded by listener.mu
	place *list.Element // in queue; guarded by listener.mu
	age   *list.Element // in unauthenticated.all, as long as queue is set; guarded by listener.mu

	headers headers

	writing  sync.Mutex
	corked   bool    // guarded by writing
	gathered []byte  // written since Cork; guarded by writing
	room     *[]byte // the buffer of the pool that gathered began in; guarded by writing
}

// The stages of a connection.
const (
	connected     = iota // the client has sent nothing
	handshaking          // the TLS handshake has not ended
	anonymous            // no request had valid credentials
	authenticated        // a request had valid credentials
)

// listenerLimits are the limits of a listener.
type listenerLimits struct {
	connections     int   // at once
	unauthenticated int   // of them, after their grace; zero: all
	transportBytes  int64 // see Limits
}

func newListener(all []net.Listener, limits listenerLimits) *listener {
	return &listener{
		all:     all,
		free:    make(chan struct{}, limits.connections),
		closed:  make(chan struct{}),
		open:    map[*connection]struct{}{},
		headers: newHeaderBudget(limits.transportBytes),

		unauthenticated: newUnauthenticated(limits.connections, cmp.Or(limits.unauthenticated, math.MaxInt)),
	}
}

// address is one of the addresses of a listener, which share its limit.
type address struct {
	net.Listener
	l *listener
}

// Accept implements net.Listener. At the limit it waits until a connection is closed; clients
// wait in the backlog of the kernel.
func (a address) Accept() (net.Conn, error) {
	l := a.l
	if err := l.reserve(); err != nil {
		return nil, err
	}
	c, err := a.Listener.Accept()
	if err != nil {
		// If no descriptors are left, net/http tries again with increasing delays.
		<-l.free
		return nil, err
	}
	accepted := &connection{Conn: c, l: l, since: time.Now()}
	accepted.headers.reading.Store(true)
	l.mu.Lock()
	l.open[accepted] = struct{}{}
	victims := l.unauthenticated.add(accepted, accepted.since)
	l.mu.Unlock()
	for _, c := range victims {
		c.Close()
	}
	return accepted, nil
}

// reserve waits until the limit allows one more connection.
func (l *listener) reserve() error {
	for {
		select {
		case l.free <- struct{}{}:
			return nil
		case <-l.closed:
			return net.ErrClosed
		default:
		}
		again := time.NewTimer(l.makeRoom())
		select {
		case l.free <- struct{}{}:
			again.Stop()
			return nil
		case <-l.closed:
			again.Stop()
			return net.ErrClosed
		case <-again.C:
		}
	}
}

// makeRoom closes an unauthenticated connection, if one may be closed. It returns when to try
// again.
func (l *listener) makeRoom() time.Duration {
	l.mu.Lock()
	victim, again := l.unauthenticated.victim(time.Now())
	l.mu.Unlock()
	if victim != nil {
		victim.Close()
	}
	return again
}

// Close closes all addresses. It is idempotent.
func (l *listener) Close() {
	l.once.Do(func() { close(l.closed) })
	for _, one := range l.all {
		one.Close()
	}
}

func (l *listener) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// endWrites limits all later write deadlines. Otherwise the close alert of TLS would wait five
// seconds for each client that does not read.
func (l *listener) endWrites(d time.Duration) { l.lastWrite.Store(time.Now().Add(d).UnixNano()) }

// closeConnections closes all connections, including hijacked ones, which http.Server does not
// track.
func (l *listener) closeConnections() {
	l.mu.Lock()
	all := make([]*connection, 0, len(l.open))
	for c := range l.open {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
}

// advance moves the connection to a later stage. It never goes back.
func (c *connection) advance(stage int32) {
	if c.stage.Load() >= stage {
		return
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.stage.Load() >= stage {
		return
	}
	c.stage.Store(stage)
	c.l.unauthenticated.moved(c)
}

// Read implements net.Conn.
func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.advance(handshaking)
		if full := c.headers.read(c.l.headers, n, c.isAuthenticated()); full != nil {
			c.Close()
			return 0, full
		}
	}
	return n, err
}

// shookHands notes that the TLS handshake has ended.
func (c *connection) shookHands() { c.advance(anonymous) }

// authenticate notes that a request had valid credentials.
func (c *connection) authenticate() { c.advance(authenticated) }

// isAuthenticated reports whether a request had valid credentials.
func (c *connection) isAuthenticated() bool { return c.stage.Load() == authenticated }

// Write implements net.Conn.
func (c *connection) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.corked {
		c.gathered = append(c.gathered, b...)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Cork gathers writes until Uncork.
func (c *connection) Cork() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.corked = true
	c.room = gather.Get().(*[]byte)
	c.gathered = (*c.room)[:0]
}

// Uncork writes the gathered bytes with one call.
func (c *connection) Uncork() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	all, room := c.gathered, c.room
	c.corked, c.gathered, c.room = false, nil, nil
	_, err := c.Conn.Write(all)
	if cap(all) <= 1<<20 {
		*room = all
		gather.Put(room)
	}
	return err
}

// gather are buffers for Cork. Servers share them: a buffer is empty when it is taken.
var gather = sync.Pool{New: func() any { return new([]byte) }}

// SetWriteDeadline implements net.Conn.
func (c *connection) SetWriteDeadline(t time.Time) error {
	if last := c.l.lastWrite.Load(); last != 0 && (t.IsZero() || t.UnixNano() > last) {
		t = time.Unix(0, last)
	}
	return c.Conn.SetWriteDeadline(t)
}

// Close implements net.Conn.
func (c *connection) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.headers.close(c.l.headers)
		c.l.mu.Lock()
		c.l.unauthenticated.remove(c)
		delete(c.l.open, c)
		c.l.mu.Unlock()
		<-c.l.free
	})
	return err
}
