package serving

import (
	"container/heap"
	"container/list"
	"net"
	"net/netip"
	"time"
)

const (
	// firstByteGrace is how long a new connection may send nothing before it can be closed
	// for another one, when all places are taken. Clients begin the handshake with the
	// connection.
	firstByteGrace = 200 * time.Millisecond
	// authGrace is how long a client may take to authenticate: some round trips across an
	// ocean. Where there is room for few, it is as long as acceptRate leaves: new
	// connections a second.
	authGrace  = time.Second
	acceptRate = 70
)

// unauthenticated holds the open connections that have not authenticated, by their
// address. It decides which of them is closed for a new one: of the address that has the
// most, the oldest one that has sent nothing, else the oldest one whose TLS handshake has
// not ended, else the oldest one whose handshake has. A client with many connections evicts
// its own first; other addresses are not affected. Running requests do not protect a
// connection: a request that waits has authenticated.
//
// An address is one of IPv4, or a network of 64 bits of IPv6, which one client may have
// for itself. Its share is half of all places, and what is within its grace: a new
// connection beyond it closes old ones of the same address, so that there is room for
// others.
type unauthenticated struct {
	share int                          // of an address
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

func newUnauthenticated(connections int) unauthenticated {
	short := min(authGrace, max(firstByteGrace, time.Duration(connections)*time.Second/acceptRate))
	return unauthenticated{
		share: max(1, connections/2),
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

// victimOf returns the connection of an address to close. If it is nil, each is within its
// grace, and the duration is when the first will no longer be.
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

// add adds a new connection. It takes those out that are beyond the share of the address
// then, but for those within their grace, and returns them: the caller closes them.
func (u *unauthenticated) add(c *connection, now time.Time) (victims []*connection) {
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
		victim.dequeue()
	}
	c.peer = p
	c.enqueue(connected)
	heap.Fix(&u.order, p.at)
	return victims
}

// enqueue appends the connection to the list for a stage.
func (c *connection) enqueue(stage int32) {
	c.queue = &c.peer.stages[stage]
	c.place = c.queue.PushBack(c)
}

// dequeue takes the connection out of its list; if it is in none, it is a no-op.
func (c *connection) dequeue() {
	if c.queue != nil {
		c.queue.Remove(c.place)
		c.queue, c.place = nil, nil
	}
}

// moved puts the connection into the list for its current stage.
func (u *unauthenticated) moved(c *connection) {
	stage := c.stage.Load()
	switch {
	case c.queue == nil: // it is closed, or will be
	case stage == authenticated:
		u.remove(c)
	default:
		c.dequeue()
		c.enqueue(stage)
		heap.Fix(&u.order, c.peer.at)
	}
}

// remove takes a connection out: it has authenticated, or is closed.
func (u *unauthenticated) remove(c *connection) {
	p := c.peer
	if p == nil || c.queue == nil {
		return
	}
	c.dequeue()
	if p.count() > 0 {
		heap.Fix(&u.order, p.at)
		return
	}
	heap.Remove(&u.order, p.at)
	delete(u.peers, p.address)
}

// victim returns the connection to close for a new one. If it is nil, the duration is when
// to look again.
func (u *unauthenticated) victim(now time.Time) (*connection, time.Duration) {
	if len(u.order) == 0 {
		return nil, authGrace
	}
	return u.victimOf(u.order[0], now)
}

// addressOf returns what connections are counted by.
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
