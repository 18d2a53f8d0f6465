package http2

import (
	"cmp"
	"time"
)

// What waits on clients is charged to one budget of the server: what is being sent and
// what waits to be, bodies that handlers have not read, header blocks that are not
// complete, headers of requests that run, the ends of answers whose handlers have
// returned. Each connection counts its own, under its lock, and tells the server in steps,
// so that a small answer touches nothing that connections share.
//
// Over the budget the server is tight: connections get no more room for bodies and little
// for answers, so what they hold cannot grow, and those that hold the most are ended until
// the rest fits, strangers before clients that have authenticated. Of the latter only
// those that let the server wait.

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
	// strangerHeaderBytes bounds headers of all requests of such a client together: 100
	// first requests, each with a token of some KiB.
	strangerHeaderBytes = 2 << 20
	// tightSendBytes is sendBytes while the server is over its budget.
	tightSendBytes = 16 << 10
	// waits is how long a client that has authenticated may let the server wait before
	// its connection may be ended for the budget.
	waits = time.Second
	// relief is how often the server looks again while it is over its budget.
	relief = 50 * time.Millisecond
)

// isKnown reports whether the client has authenticated. The lock is held.
func (c *conn) isKnown() bool {
	if !c.known && (c.s.Authenticated == nil || c.s.Authenticated(c.tls.NetConn())) {
		c.known = true
	}
	return c.known
}

// hasRoom reports whether the headers of one more request fit. The lock is held.
func (c *conn) hasRoom(headerBytes int) bool {
	if c.s.tight.Load() && headerBytes > stepBytes {
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
	if used := s.used.Add(n); n > 0 && used > s.transportBytes() && s.tight.CompareAndSwap(false, true) {
		time.AfterFunc(0, s.relieve) // the lock of a connection is held
	}
}

func (s *Server) transportBytes() int64 { return cmp.Or(s.TransportBytes, DefaultTransportBytes) }

func (s *Server) headerTimeout() time.Duration { return cmp.Or(s.HeaderTimeout, DefaultHeaderTimeout) }

// TransportUsed returns the bytes that wait on clients, in steps of 16 KiB for each
// connection.
func (s *Server) TransportUsed() int64 { return s.used.Load() }

// relieve ends connections until the others fit into the budget. It looks again until
// they leave some room, and then lets all go on.
func (s *Server) relieve() {
	ended := 0
	for s.used.Load() > s.transportBytes() {
		c := s.worst()
		if c == nil {
			break
		}
		c.giveUp()
		ended++
	}
	if ended > 0 {
		s.Log.Warn("http2: connections were ended: too much waited on clients that do not read", "connections", ended, "bytes", s.transportBytes())
	}
	if s.used.Load() > s.transportBytes()/8*7 {
		time.AfterFunc(relief, s.relieve)
		return
	}
	s.tight.Store(false)
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

// worst returns the connection to end: of those that hold the most, a stranger's first;
// nil: there is none that lets the server wait.
func (s *Server) worst() *conn {
	var worst *conn
	most, known := 0, true
	for _, c := range s.all() {
		c.mu.Lock()
		k := c.isKnown()
		candidate := c.err == nil && c.charged > 0 && (!k || c.waitsLong())
		if candidate && (worst == nil || known && !k || known == k && c.charged > most) {
			worst, most, known = c, c.charged, k
		}
		c.mu.Unlock()
	}
	return worst
}

// waitsLong reports whether the client lets the server wait: for room for what is being
// sent, for the end of an answer, or for that of a header block. The lock is held.
func (c *conn) waitsLong() bool {
	now := time.Now()
	if !c.since.IsZero() && now.Sub(c.since) > waits || !c.blockUntil.IsZero() && c.blockUntil.Sub(now) < c.s.headerTimeout()-waits {
		return true
	}
	for _, s := range c.streams {
		if s.rest != nil && now.Sub(s.waiting) > waits {
			return true
		}
	}
	return false
}

// giveUp ends a connection whose client holds too much.
func (c *conn) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.log("too much waits on clients", nil)
		c.sendFailed()
	}
}
