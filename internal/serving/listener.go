package serving

import (
	"container/list"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how long a new connection may say nothing before it has to make
// room for another one, when there are as many as there may be.
const patience = time.Second

// listener accepts up to a number of connections at once, and knows those that
// are open. A flood of connections must not use up the file descriptors that the
// log needs for its files; and connections that say nothing must not keep those
// out that do.
type listener struct {
	net.Listener
	free   chan struct{} // a value for each connection that is open
	closed chan struct{}
	once   sync.Once

	// lastWrite is when writing has to end, in Unix nanoseconds; zero: no bound.
	lastWrite atomic.Int64

	mu     sync.Mutex
	open   map[*connection]struct{}
	silent list.List // of *connection: those that have said nothing, oldest first
}

// connection is an accepted connection; closing it makes room for another.
type connection struct {
	net.Conn
	l     *listener
	since time.Time
	spoke atomic.Bool
	once  sync.Once
	place *list.Element // in silent; guarded by listener.mu, nil outside of it

	writing  sync.Mutex
	corked   bool    // guarded by writing
	gathered []byte  // what was written since; guarded by writing
	room     *[]byte // of the pool, where gathered began; guarded by writing
}

func newListener(l net.Listener, connections int) *listener {
	return &listener{
		Listener: l,
		free:     make(chan struct{}, connections),
		closed:   make(chan struct{}),
		open:     map[*connection]struct{}{},
	}
}

// Accept implements net.Listener. At the bound it waits until a connection ends;
// clients wait in the backlog of the kernel meanwhile.
func (l *listener) Accept() (net.Conn, error) {
	if err := l.reserve(); err != nil {
		return nil, err
	}
	c, err := l.Listener.Accept()
	if err != nil {
		// net/http tries again, a little later each time, when no descriptors are left.
		<-l.free
		return nil, err
	}
	accepted := &connection{Conn: c, l: l, since: time.Now()}
	l.mu.Lock()
	l.open[accepted] = struct{}{}
	accepted.place = l.silent.PushBack(accepted)
	l.mu.Unlock()
	return accepted, nil
}

// reserve waits until there may be one more connection.
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

// makeRoom closes the oldest connection that has said nothing for as long as
// patience lasts. It returns when to look again.
func (l *listener) makeRoom() time.Duration {
	l.mu.Lock()
	oldest := l.silent.Front()
	l.mu.Unlock()
	if oldest == nil {
		return patience
	}
	c := oldest.Value.(*connection)
	if left := patience - time.Since(c.since); left > 0 {
		return left
	}
	c.Close()
	return 0
}

// Close implements net.Listener. It is idempotent.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func (l *listener) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// endWrites bounds all writes from now on, whatever deadline they set: the
// farewell of TLS alone would wait five seconds for each client that does not
// read.
func (l *listener) endWrites(d time.Duration) { l.lastWrite.Store(time.Now().Add(d).UnixNano()) }

// closeConnections closes what is open: also connections that were hijacked,
// which http.Server does not know any more.
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

// notSilent takes a connection off the list.
func (l *listener) notSilent(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.place != nil {
		l.silent.Remove(c.place)
		c.place = nil
	}
}

// Read implements net.Conn.
func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.spoke.Load() {
		c.spoke.Store(true)
		c.l.notSilent(c)
	}
	return n, err
}

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

// Cork has what is written gathered until Uncork.
func (c *connection) Cork() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.corked = true
	c.room = gather.Get().(*[]byte)
	c.gathered = (*c.room)[:0]
}

// Uncork writes what was gathered, in one go.
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

// gather is room for what connections gather.
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
		c.l.notSilent(c)
		c.l.mu.Lock()
		delete(c.l.open, c)
		c.l.mu.Unlock()
		<-c.l.free
	})
	return err
}
