package httpapi

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// # Turns of large events
//
// An event of a megabyte takes a millisecond of CPU to encrypt and to copy, for each of its watchers. Hundreds of
// goroutines that do this at once fill the scheduler's queues, and a small request, which passes through several
// goroutines, waits in each of them. So watches send large events in turns: half of the processors send, and
// the other watches wait without a buffer. The turns go round among users.
//
// A turn ends after turnTime, whether or not the events are sent: a client that does not read delays others for
// that long, and its goroutine then waits for the client alone.

const (
	// largeEvents is the size in bytes from which on events are sent in turns.
	largeEvents = deliverBytes
	// turnTime bounds a turn.
	turnTime = 20 * time.Millisecond
)

// turns are given to watches. It is safe for concurrent use.
type turns struct {
	mu     sync.Mutex
	free   int
	users  []*turnUser // those who wait, in the order of their next turns
	byName map[string]*turnUser
}

// turnUser has the watches of a user that wait, in order.
type turnUser struct {
	name    string
	waiting []chan struct{}
}

func newTurns(n int) *turns { return &turns{free: n, byName: map[string]*turnUser{}} }

// sendTurns is how many watches send large events at once.
func sendTurns() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// take waits for a turn of a user, or until the context is done. The caller calls end when it has sent its events.
func (t *turns) take(ctx context.Context, user string) (end func()) {
	t.mu.Lock()
	if t.free > 0 { // so that nobody waits
		t.free--
		t.mu.Unlock()
		return t.begin()
	}
	u := t.byName[user]
	if u == nil {
		u = &turnUser{name: user}
		t.byName[user] = u
		t.users = append(t.users, u)
	}
	turn := make(chan struct{})
	u.waiting = append(u.waiting, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return t.begin()
	case <-ctx.Done():
		go func() { // passes the turn on when it comes
			<-turn
			t.give()
		}()
		return func() {}
	}
}

// begin starts a turn.
func (t *turns) begin() (end func()) {
	limit := time.AfterFunc(turnTime, t.give)
	return func() {
		if limit.Stop() {
			t.give()
		}
	}
}

// give gives a turn to the next user.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.users) == 0 {
		t.free++
		return
	}
	u := t.users[0]
	t.users = t.users[1:]
	close(u.waiting[0])
	if u.waiting = u.waiting[1:]; len(u.waiting) > 0 {
		t.users = append(t.users, u)
	} else {
		delete(t.byName, u.name)
	}
}
