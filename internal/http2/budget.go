package http2

import (
	"cmp"
	"slices"
	"time"
)

// The memory that waits for clients is charged to one budget of the server: send buffers and
// writes under way, bodies that handlers have not read, incomplete header blocks, headers of
// running requests, handlers that wait for clients without credentials, and the ends of responses
// whose handlers have returned. Each connection
// counts its own memory under its lock and charges the server in steps, so that a small response
// does not touch shared state.
//
// Over the budget, no connection gets more upload window, and send buffers shrink. Then the
// largest connections are closed: unauthenticated ones first, authenticated ones only if
// they have not read for 1 s.

const (
	// DefaultTransportBytes is the default of Server.TransportBytes. It is twice the memory of
	// 400 responses that are sent at once, each with 128 KiB in the write, as much encrypted,
	// and as much in the buffer. It is also enough for 1,000 connections whose clients never read.
	DefaultTransportBytes = 256 << 20
	// DefaultHeaderTimeout is the default of Server.HeaderTimeout: kube-apiserver's timeout
	// for the headers of HTTP/1.1.
	DefaultHeaderTimeout = 32 * time.Second

	// stepBytes is the step in which a connection charges the budget.
	stepBytes = 16 << 10
	// unauthenticatedSendBytes is sendBytes of a client that has not authenticated.
	unauthenticatedSendBytes = 32 << 10
	// unauthenticatedRestBytes bounds the ends of responses that streams keep for such a client: enough
	// for 100 responses with 401 or 403.
	unauthenticatedRestBytes = 64 << 10
	// unauthenticatedHeaderBytes bounds the headers of all running requests of such a client: enough
	// for 100 requests with a token of some KiB.
	unauthenticatedHeaderBytes = 2 << 20
	// fieldBytes is the memory of a header field beyond its name, its value and 32 bytes: the map and the slices of
	// http.Header. A field can be one byte on the wire.
	fieldBytes = 96
	// waitingBytes is the memory of a handler that waits for such a client: its stack, its request and its buffers.
	waitingBytes = 48 << 10
	// overBudgetSendBytes is sendBytes while the server is over its budget.
	overBudgetSendBytes = 16 << 10
	// waits is how long an authenticated client may let the server wait before its connection
	// may be closed for the budget.
	waits = time.Second
	// shedInterval is how often connections are closed while the server is over its budget.
	shedInterval = 50 * time.Millisecond
)

// isAuthenticated reports whether the client has authenticated.
func (c *conn) isAuthenticated() bool {
	return c.s.Authenticated == nil || c.s.Authenticated(c.tls.NetConn())
}

// hasRoom reports whether the headers of one more request fit. The lock is held.
func (c *conn) hasRoom(headerBytes int) bool {
	if c.s.overBudget.Load() && headerBytes > stepBytes {
		return false
	}
	return c.kept+headerBytes <= unauthenticatedHeaderBytes || c.isAuthenticated()
}

// keep adds n, which may be negative, to the bytes that are kept for the client outside the
// send buffer. The lock is held.
func (c *conn) keep(n int) {
	c.kept += n
	c.account()
}

// account charges the memory of the connection to the budget. The lock is held.
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

// discharge removes the charge of the connection. The lock is held.
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

// TransportUsed returns the bytes that wait for clients, in steps of 16 KiB for each
// connection.
func (s *Server) TransportUsed() int64 { return s.used.Load() }

// shed closes connections until the others fit into the budget. It runs again until an eighth
// of the budget is free, and then resumes all connections. It runs once at a time, while
// overBudget is set.
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

// checkBudget starts shed if the budget is exceeded.
func (s *Server) checkBudget() {
	if s.used.Load() > s.transportBytes() && s.overBudget.CompareAndSwap(false, true) {
		time.AfterFunc(0, s.shed) // the lock of a connection may be held
	}
}

// endVictims closes connections until the others fit into the budget, or no other connection
// may be closed.
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

// ended counts connections that were closed for the budget since the last log line. Only shed
// uses it.
type ended struct {
	connections, bytes int
	logged             time.Time
}

// logShed logs the connections that were closed, if the last line is long enough ago.
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

// victim is a connection that may be closed.
type victim struct {
	conn          *conn
	charged       int
	authenticated bool
}

// victims returns the connections that may be closed, unauthenticated ones first, the largest
// first. It locks each connection once, because there may be 100,000.
func (s *Server) victims() []victim {
	var all []victim
	for _, c := range s.all() {
		c.mu.Lock()
		if c.mayEnd() {
			all = append(all, victim{c, c.charged, c.isAuthenticated()})
		}
		c.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b victim) int {
		if a.authenticated != b.authenticated {
			if b.authenticated {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.charged, a.charged)
	})
	return all
}

// mayEnd reports whether the connection may be closed for the budget. The lock is held.
func (c *conn) mayEnd() bool {
	return c.err == nil && c.charged > 0 && (!c.isAuthenticated() || c.waitsLong())
}

// waitsLong reports whether the client lets the server wait: with a write, with the end of a
// response, or for the rest of a header block. The lock is held.
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

// giveUp closes a connection for the budget, unless its client has begun to read since. It
// returns how many bytes that has freed.
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
