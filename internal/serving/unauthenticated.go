package serving

import (
	"container/heap"
	"container/list"
	"net"
	"net/netip"
	"time"
)

const (
	// firstByteGrace is how long a new connection may send nothing before it can be closed for
	// another one at the limit. Clients begin the handshake at once.
	firstByteGrace = 200 * time.Millisecond
	// authGrace is how long a client may take to authenticate: some round trips across an
	// ocean. It is shorter if the limit is small, so that acceptRate new connections per
	// second are possible.
	authGrace  = time.Second
	acceptRate = 70
)

// unauthenticated holds the open connections that have not authenticated, by address. It
// decides which of them is closed for a new one: of the address with the most
// connections, the oldest one in the earliest stage. So a client with many connections
// replaces its own first. Running requests do not protect a connection: a request that waits
// has authenticated.
//
// An address is an IPv4 address, or an IPv6 network of 64 bits, which one client may own. Its
// share is half of the limit. A new connection beyond the share closes old ones of the same
// address, unless they are within their grace. A new connection beyond what the memory allows for
// all addresses together closes one that is not within its grace, too.
type unauthenticated struct {
	share int                          // of an address
	most  int                          // of all
	all   list.List                    // of *connection, oldest first
	grace [authenticated]time.Duration // by stage, from when the connection was accepted
	peers map[netip.Prefix]*peer
	order byCount
}

// peer is an address that has unauthenticated connections.
type peer struct {
	address netip.Prefix
	stages  [authenticated]list.List // of *connection, by stage, oldest first
	at      int                      // in order
}

func newUnauthenticated(connections, most int) unauthenticated {
	short := min(authGrace, max(firstByteGrace, time.Duration(connections)*time.Second/acceptRate))
	return unauthenticated{
		share: max(1, connections/2),
		most:  most,
		grace: [authenticated]time.Duration{connected: firstByteGrace, handshaking: short, anonymous: short},
		peers: map[netip.Prefix]*peer{},
	}
}

func (p *peer) count() int {
	n := 0
	for i := range p.stages {
		n += p.stages[i].Len()
	}
	return n
}

// victimOf returns the connection of an address to close. If all are within their grace, it
// returns nil and when the first grace ends.
func (u *unauthenticated) victimOf(p *peer, now time.Time) (*connection, time.Duration) {
	again := authGrace
	for i := range p.stages {
		e := p.stages[i].Front()
		if e == nil {
			continue
		}
		c := e.Value.(*connection)
		left := u.grace[i] - now.Sub(c.since)
		if left <= 0 {
			return c, 0
		}
		again = min(again, left)
	}
	return nil, again
}

// surplus returns the connection to close because there are too many; nil if all are within their
// grace. A client with many connections pays first. If all of its connections are new, it does not
// protect the old ones of others.
func (u *unauthenticated) surplus(now time.Time) *connection {
	if victim, _ := u.victim(now); victim != nil {
		return victim
	}
	if e := u.all.Front(); e != nil {
		if c := e.Value.(*connection); now.Sub(c.since) >= u.grace[c.stage.Load()] {
			return c
		}
	}
	return nil
}

// add adds a new connection. It removes and returns the connections beyond the share of the
// address, and beyond the limit of all, except those within their grace. The caller closes them.
func (u *unauthenticated) add(c *connection, now time.Time) (victims []*connection) {
	for u.all.Len() >= u.most {
		victim := u.surplus(now)
		if victim == nil {
			break
		}
		victims = append(victims, victim)
		u.remove(victim)
	}
	address := addressOf(c.RemoteAddr())
	p := u.peers[address]
	if p == nil {
		p = &peer{address: address}
		u.peers[address] = p
		heap.Push(&u.order, p)
	}
	for p.count() >= u.share { // not remove: it would forget p
		victim, _ := u.victimOf(p, now)
		if victim == nil {
			break
		}
		victims = append(victims, victim)
		u.take(victim)
	}
	c.peer = p
	c.age = u.all.PushBack(c)
	c.enqueue(connected)
	heap.Fix(&u.order, p.at)
	return victims
}

// enqueue appends the connection to the list for a stage.
func (c *connection) enqueue(stage int32) {
	c.queue = &c.peer.stages[stage]
	c.place = c.queue.PushBack(c)
}

// dequeue removes the connection from its list. It is a no-op if the connection is in none.
func (c *connection) dequeue() {
	if c.queue != nil {
		c.queue.Remove(c.place)
		c.queue, c.place = nil, nil
	}
}

// take takes the connection out of all lists. It is a no-op if the connection is in none.
func (u *unauthenticated) take(c *connection) {
	c.dequeue()
	if c.age != nil {
		u.all.Remove(c.age)
		c.age = nil
	}
}

// moved moves the connection to the list of its current stage.
func (u *unauthenticated) moved(c *connection) {
	stage := c.stage.Load()
	switch {
	case c.queue == nil: // closed, or about to be
	case stage == authenticated:
		u.remove(c)
	default:
		c.dequeue()
		c.enqueue(stage)
		heap.Fix(&u.order, c.peer.at)
	}
}

// remove removes a connection that has authenticated or is closed.
func (u *unauthenticated) remove(c *connection) {
	p := c.peer
	if p == nil || c.queue == nil {
		return
	}
	u.take(c)
	if p.count() > 0 {
		heap.Fix(&u.order, p.at)
		return
	}
	heap.Remove(&u.order, p.at)
	delete(u.peers, p.address)
}

// victim returns the connection to close for a new one, or nil and when to try again.
func (u *unauthenticated) victim(now time.Time) (*connection, time.Duration) {
	if len(u.order) == 0 {
		return nil, authGrace
	}
	return u.victimOf(u.order[0], now)
}

// addressOf returns the address that a connection counts for.
func addressOf(a net.Addr) netip.Prefix {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := t.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}

// byCount is a heap of peers: those with the most connections first, among equals those
// with a connection of the earliest stage, then those with the oldest one of it.
type byCount []*peer

func (h byCount) Len() int { return len(h) }

func (h byCount) Less(i, j int) bool {
	a, b := h[i], h[j]
	if a.count() != b.count() {
		return a.count() > b.count()
	}
	for i := range a.stages {
		x, y := a.stages[i].Front(), b.stages[i].Front()
		if (x == nil) != (y == nil) {
			return x != nil
		}
		if x != nil {
			return x.Value.(*connection).since.Before(y.Value.(*connection).since)
		}
	}
	return false
}

func (h byCount) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *byCount) Push(x any) {
	p := x.(*peer)
	p.at = len(*h)
	*h = append(*h, p)
}

func (h *byCount) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}
