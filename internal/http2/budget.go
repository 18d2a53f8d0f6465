package http2

import (
	"cmp"
	"slices"
	"time"
)

// What waits on clients is charged to one budget of the server: what is being sent and
// what waits to be, bodies that handlers have not read, header blocks that are not
// complete, headers of requests that run, the ends of answers whose handlers have
// returned. Each connection counts its own, under its lock, and charges the server in steps,
// so that a small answer touches nothing that connections share.
//
// Over the budget, no connection gets more upload window, and send buffers shrink. Then the
// largest connections are closed: unauthenticated ones first, authenticated ones only if
// they have not read for 1 s.

const (
	// DefaultTransportBytes is for Server.TransportBytes: twice what 400 answers hold
	// that are sent at once, each with 128 KiB on its way, as much encrypted, and as much
	// behind it. It is 1,000 connections whose clients do not read at all.
	DefaultTransportBytes = 256 << 20
	// DefaultHeaderTimeout is for Server.HeaderTimeout: kube-apiserver's time for the
	// headers of HTTP/1.1.
	DefaultHeaderTimeout = 32 * time.Second

	// stepBytes is how much a connection holds without the server knowing.
	stepBytes = 16 << 10
	// strangerSendBytes is sendBytes of a client that has not authenticated.
	strangerSendBytes = 32 << 10
	// strangerRestBytes bounds the ends of all answers of such a client that their handlers
	// did not wait for: 100 that say 401 or 403 fit.
	strangerRestBytes = 64 << 10
	// strangerHeaderBytes bounds headers of all requests of such a client together: 100
	// first requests, each with a token of some KiB.
	strangerHeaderBytes = 2 << 20
	// overBudgetSendBytes is sendBytes while the server is over its budget.
	overBudgetSendBytes = 16 << 10
	// waits is how long a client that has authenticated may let the server wait before
	// its connection may be ended for the budget.
	waits = time.Second
	// shedInterval is how often connections are ended while the server is over its budget.
	shedInterval = 50 * time.Millisecond
)

// isKnown reports whether the client has authenticated.
func (c *conn) isKnown() bool {
	return c.s.Authenticated == nil || c.s.Authenticated(c.tls.NetConn())
}

// hasRoom reports whether the headers of one more request fit. The lock is held.
func (c *conn) hasRoom(headerBytes int) bool {
	if c.s.overBudget.Load() && headerBytes > stepBytes {
		return false
	}
	return c.kept+headerBytes <= strangerHeaderBytes || c.isKnown()
}

// keep counts n bytes more that are kept for the client beside what waits to be sent; a
// negative n: less. The lock is held.
func (c *conn) keep(n int) {
	c.kept += n
	c.account()
}

// account charges what the connection holds. The lock is held.
func (c *conn) account() {
	if c.err != nil {
		return
	}
	holds := c.flying + len(c.out) + c.kept
	if more := holds - c.charged; more >= stepBytes || more <= -stepBytes {
		more -= more % stepBytes
		c.charged += more
		c.s.charge(int64(more))
	}
}

// discharge gives back what the connection was charged. The lock is held.
func (c *conn) discharge() {
	c.s.charge(-int64(c.charged))
	c.charged = 0
}

// charge charges n bytes to the budget.
func (s *Server) charge(n int64) {
	if n == 0 {
		return
	}
	if s.used.Add(n); n > 0 {
		s.checkBudget()
	}
}

func (s *Server) transportBytes() int64 { return cmp.Or(s.TransportBytes, DefaultTransportBytes) }

func (s *Server) headerTimeout() time.Duration { return cmp.Or(s.HeaderTimeout, DefaultHeaderTimeout) }

// TransportUsed returns the bytes that wait on clients, in steps of 16 KiB for each
// connection.
func (s *Server) TransportUsed() int64 { return s.used.Load() }

// shed ends connections until the others fit into the budget. It runs again until they
// leave some room, and then lets all go on. It runs once at a time: while overBudget is set.
func (s *Server) shed() {
	s.endVictims()
	if s.used.Load() > s.transportBytes()/8*7 {
		s.logShed(time.Second)
		time.AfterFunc(shedInterval, s.shed)
		return
	}
	s.logShed(0)
	s.overBudget.Store(false)
	s.checkBudget() // a charge since then may have found overBudget set
	for _, c := range s.all() {
		c.mu.Lock()
		if c.err == nil {
			c.grant(0)
			c.next()
			c.flushLater()
		}
		c.mu.Unlock()
	}
}

// checkBudget has connections ended if the others do not fit into the budget.
func (s *Server) checkBudget() {
	if s.used.Load() > s.transportBytes() && s.overBudget.CompareAndSwap(false, true) {
		time.AfterFunc(0, s.shed) // the lock of a connection may be held
	}
}

// endVictims ends connections until the others fit, or none of them lets the server wait.
func (s *Server) endVictims() {
	if s.used.Load() <= s.transportBytes() {
		return
	}
	for _, v := range s.victims() {
		if s.used.Load() <= s.transportBytes() {
			return
		}
		if freed := v.conn.giveUp(); freed > 0 {
			s.ended.connections++
			s.ended.bytes += freed
		}
	}
}

// ended counts connections that were ended for the budget, until that is logged. shed uses
// it alone.
type ended struct {
	connections, bytes int
	logged             time.Time
}

// logShed logs what was ended if the last time is long enough ago.
func (s *Server) logShed(after time.Duration) {
	now := time.Now()
	if s.ended.connections == 0 || now.Sub(s.ended.logged) < after {
		return
	}
	s.Log.Warn("http2: connections were ended: too much waited on clients that do not read",
		"connections", s.ended.connections, "freed_bytes", s.ended.bytes, "limit_bytes", s.transportBytes())
	s.ended = ended{logged: now}
}

// all returns the connections.
func (s *Server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

// victim is a connection that may be ended.
type victim struct {
	conn    *conn
	charged int
	known   bool
}

// victims returns the connections to end, in order: unauthenticated ones first, and those
// first that hold the most. It looks at each connection once: there may be 100,000.
func (s *Server) victims() []victim {
	var all []victim
	for _, c := range s.all() {
		c.mu.Lock()
		if c.mayEnd() {
			all = append(all, victim{c, c.charged, c.isKnown()})
		}
		c.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b victim) int {
		if a.known != b.known {
			if b.known {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.charged, a.charged)
	})
	return all
}

// mayEnd reports whether the connection may be ended for the budget. The lock is held.
func (c *conn) mayEnd() bool {
	return c.err == nil && c.charged > 0 && (!c.isKnown() || c.waitsLong())
}

// waitsLong reports whether the client lets the server wait: for room for what is being
// sent, for the end of an answer, or for that of a header block. The lock is held.
func (c *conn) waitsLong() bool {
	now := time.Now()
	if !c.stall.since.IsZero() && now.Sub(c.stall.since) > waits || !c.blockUntil.IsZero() && c.blockUntil.Sub(now) < c.s.headerTimeout()-waits {
		return true
	}
	for _, s := range c.streams {
		if s.rest != nil && now.Sub(s.stall.since) > waits {
			return true
		}
	}
	return false
}

// giveUp ends a connection whose client holds too much, unless its client has begun to
// read since. It returns how many bytes that has freed.
func (c *conn) giveUp() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mayEnd() {
		return 0
	}
	freed := c.charged
	c.log("too much waits on clients", nil)
	c.sendFailed()
	return freed
}
