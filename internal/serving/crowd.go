package serving

import (
	"container/heap"
	"container/list"
	"net"
	"net/netip"
	"time"
)

const (
	// haste is how long a new connection may say nothing before it has to make room for
	// another one, when there are as many as there may be. Clients begin the handshake
	// with the connection.
	haste = 200 * time.Millisecond
	// patience is how long it may take to show who its client is: some times across an
	// ocean and back. Where there is room for few, it is as long as 70 new ones a second
	// leave.
	patience = time.Second
	rate     = 70
)

// crowd is the open connections of strangers, by their address: those that have not
// authenticated. It decides which of them makes room for a new one: of the address that
// has the most, one that has said nothing, else one whose TLS handshake has not ended,
// else one whose handshake has, and the oldest of those. So a client that opens many
// crowds out itself: an administrator behind another address is not affected, and one behind the same
// address has the time in which all places are taken once more. Requests that run make no
// difference: one that waits for anything has authenticated.
//
// An address is one of IPv4, or a network of 64 bits of IPv6, which one client may have
// for itself. Its share is half of all places: beyond it a new connection takes the place
// of an old one of the same address, so that there is room for others.
type crowd struct {
	share    int                  // of an address
	patience [known]time.Duration // by what a connection has come to
	peers    map[netip.Prefix]*peer
	order    byCount
}

// peer is an address that has connections in the crowd.
type peer struct {
	address netip.Prefix
	stages  [known]list.List // of *connection, by what they have come to, oldest first
	at      int              // in order
}

func newCrowd(connections int) crowd {
	short := min(patience, max(haste, time.Duration(connections)*time.Second/rate))
	return crowd{
		share:    max(1, connections/2),
		patience: [known]time.Duration{mute: haste, silent: short, stranger: short},
		peers:    map[netip.Prefix]*peer{},
	}
}

func (p *peer) count() int {
	return p.stages[mute].Len() + p.stages[silent].Len() + p.stages[stranger].Len()
}

// out returns the connection of an address that has to make room, or when there will be
// one.
func (w *crowd) out(p *peer, now time.Time) (*connection, time.Duration) {
	again := patience
	for i := range p.stages {
		e := p.stages[i].Front()
		if e == nil {
			continue
		}
		c := e.Value.(*connection)
		left := w.patience[i] - now.Sub(c.since)
		if left <= 0 {
			return c, 0
		}
		again = min(again, left)
	}
	return nil, again
}

// add adds a new connection. It returns one to close, if the address has more than its
// share.
func (w *crowd) add(c *connection, now time.Time) *connection {
	address := addressOf(c.RemoteAddr())
	p := w.peers[address]
	if p == nil {
		p = &peer{address: address}
		w.peers[address] = p
		heap.Push(&w.order, p)
	}
	var out *connection
	if p.count() >= w.share {
		out, _ = w.out(p, now)
	}
	c.peer, c.place = p, p.stages[mute].PushBack(c)
	heap.Fix(&w.order, p.at)
	return out
}

// moved has a connection where its stage says.
func (w *crowd) moved(c *connection) {
	p, stage := c.peer, c.stage.Load()
	if p == nil {
		return
	}
	if stage == known {
		w.remove(c)
		return
	}
	for i := range p.stages {
		p.stages[i].Remove(c.place) // of the list that has it
	}
	c.place = p.stages[stage].PushBack(c)
	heap.Fix(&w.order, p.at)
}

// remove takes a connection out: it is known, or closed.
func (w *crowd) remove(c *connection) {
	p := c.peer
	if p == nil {
		return
	}
	for i := range p.stages {
		p.stages[i].Remove(c.place) // of the list that has it
	}
	c.peer, c.place = nil, nil
	if p.count() > 0 {
		heap.Fix(&w.order, p.at)
		return
	}
	heap.Remove(&w.order, p.at)
	delete(w.peers, p.address)
}

// worst returns the connection to close for a new one; nil: there is none, and when to
// look again.
func (w *crowd) worst(now time.Time) (*connection, time.Duration) {
	if len(w.order) == 0 {
		return nil, patience
	}
	return w.out(w.order[0], now)
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
// with one that has come to less, and then to an older one.
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
