// Package fairness decides when a request executes, and how much memory requests may hold
// while they wait. It implements the published algorithm of API Priority and Fairness
// (KEP-1040): priority levels with seats of their own, fair queues within a level, and
// levels that lend each other seats.
//
//	Acquire ── works ── Suspend ── waits ── Resume ── works ── Release
//	   │                   │                   │
//	   ├ queues            └ no memory left:   └ queues for a seat, ahead of the
//	   └ refused             refused             new requests of its queue
//
// A request holds its seats while it executes. It gives them back while it waits: for the
// rest of its body, for a client that does not read, for a webhook, for a revision that does
// not exist yet. So neither slow clients nor slow webhooks block other requests. The memory
// of requests that wait counts against a budget, which users and levels share.
//
// # Fair queuing
//
// Each flow of a level has a hand of queues, and a request joins the queue of its hand with
// the least work. A queue has a virtual start time S, in seat-seconds. The level has a
// virtual clock R, which advances by the seats that each active queue would get if they
// shared evenly:
//
//	dR/dt = min(limit, seats in use and wanted) / active queues
//
//	arrival at an idle queue   S = R or, if that is less, where the next request would end,
//	                           or what the queue has used if that is more
//	next request               of the queue with the least S + work of its oldest request
//	dispatch                   S += work: width x 3 ms, and the final width x extra time
//	end after d seconds        S -= width x (3 ms - d)
//	always                     S >= R at the arrival of the oldest waiting request
//
// A queue that uses more seat-seconds than others has a later S, and waits. The last rule
// keeps a queue from saving up time in which it had nothing to send.
//
// # Large requests
//
// Seats bound how many requests execute, and there are many more seats than processors. Requests that
// return or send much would keep all processors busy, and each small request would wait for dozens of them.
// So of the large requests of a level, only Config.Large execute at once. Small requests go ahead of
// large ones that wait for others to end, not of those that wait for seats.
//
// # Locks
//
// Gate.mu orders changes of the configuration. level.mu guards one level, and is the only
// lock of a request with a seat. Gate.mu is taken before level.mu. Exempt levels and the
// budgets count with atomics.
package fairness

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// The errors of Acquire. A client gets 429.
var (
	// ErrQueueFull: the request's queue is full, or no memory is left for waiting requests.
	ErrQueueFull = errors.New("the queue of the request is full")
	// ErrConcurrencyLimit: the level has no free seat, and no queues.
	ErrConcurrencyLimit = errors.New("all seats of the priority level are taken")
	// ErrTimeout: the request has waited in its queue for as long as it may.
	ErrTimeout = errors.New("the request has waited in its queue for too long")
	// ErrWatches: the server, or the user, has as many watches as it may have.
	ErrWatches = errors.New("too many watches are open")
)

// CatchAll is the name of the level of requests whose level does not exist.
const CatchAll = "catch-all"

// adjustPeriod is the time between two adjustments of the limits of all levels.
const adjustPeriod = 10 * time.Second

// Level configures a priority level.
type Level struct {
	Name, UID string
	// Exempt: requests never wait and are never refused.
	Exempt bool
	// Shares are the level's part of all seats, in proportion to the shares of the others.
	Shares int
	// LendablePercent of the level's seats can be used by other levels while it does
	// not need them.
	LendablePercent int
	// BorrowingLimitPercent bounds how many seats the level borrows, in percent of its own
	// ones. Nil means no bound.
	BorrowingLimitPercent *int
	// Queues is the number of queues. Zero means that requests without a free seat are
	// refused.
	Queues int
	// HandSize is how many queues each flow is spread over, between 1 and Queues.
	HandSize int
	// QueueLength is how many requests wait in one queue.
	QueueLength int
}

// Config are the limits of a gate that levels share.
type Config struct {
	// Bytes bounds the memory of requests that wait.
	Bytes int64
	// Watches is how many watches can be open.
	Watches int
	// Connections is how many connections to other servers requests can hold (Seat.Connect).
	Connections int
	// Large is how many large requests execute at once in a level with queues. Zero means that only
	// the seats bound them.
	Large int
}

// Gate hands out seats. All methods are safe for concurrent use.
type Gate struct {
	began       time.Time // the origin of the levels' clocks
	bytes       budget
	watches     budget
	connections budget // without reserves of levels: connections have no level of their own
	large       int    // Config.Large
	users       users

	levels atomic.Pointer[map[string]*level] // immutable

	// startAtR has idle queues begin at R, as in kube-apiserver. Tests set it to compare the
	// rest of the algorithm; see level.activate.
	startAtR bool

	mu           sync.Mutex
	all          []*level // in order of names; those that drain are among them
	total        int
	nominalSum   int
	fairFraction float64
}

// New returns a gate without levels, which refuses requests until Configure is called.
func New(c Config) *Gate {
	g := &Gate{began: time.Now(), large: c.Large}
	g.bytes.limit, g.watches.limit, g.connections.limit = c.Bytes, int64(c.Watches), int64(c.Connections)
	g.levels.Store(&map[string]*level{})
	return g
}

// Static returns the levels of a server without priority and fairness, and their seats in
// total: at most so many reads and writes execute at once, and others are refused. Zero means
// no limit. Members of system:masters and watches belong to the level "exempt".
func Static(reads, writes int) (levels []Level, totalSeats int) {
	none := 0
	limited := func(name string, seats int) Level {
		return Level{Name: name, Exempt: seats == 0, Shares: seats, BorrowingLimitPercent: &none}
	}
	return []Level{{Name: "exempt", Exempt: true}, limited("readOnly", reads), limited("mutating", writes)}, reads + writes
}

// now returns the time since the gate was made. It does not jump.
func (g *Gate) now() time.Duration { return time.Since(g.began) }

// level returns the level with the name, or else the catch-all level, or nil.
func (g *Gate) level(name string) *level {
	levels := *g.levels.Load()
	if l := levels[name]; l != nil {
		return l
	}
	return levels[CatchAll]
}

// Run adjusts the limits of the levels to their demand, until the context is done.
func (g *Gate) Run(ctx context.Context) {
	t := time.NewTicker(adjustPeriod)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			g.Adjust()
		case <-ctx.Done():
			return
		}
	}
}
