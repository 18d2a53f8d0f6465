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
// goroutines, waits in each of them. So watches send large events in turns: as many watches as half of the processors
// send at once, and the others wait without a buffer. Users take turns, however many watches each of them has.
//
// A turn ends after turnTime, whether or not the events are sent. So a client that does not read delays other watches
// for that long at most.

const (
	// largeEvents is the size in bytes from which on events are sent in turns.
	largeEvents = deliverBytes
	// turnTime bounds a turn.
	turnTime = 20 * time.Millisecond
)

// turns are given to watches. All methods are safe for concurrent use.
type turns struct {
	mu     sync.Mutex // guards the following, and the users
	free   int        // turns that no watch has
	users  []*turnUser
	byName map[string]*turnUser
}

// turnUser is a user whose watches wait. The users of turns are in the order of their next turns.
type turnUser struct {
	name    string
	waiting []*turn // in order
}

// turn is the turn for which a watch waits.
type turn struct {
	begun chan struct{} // closed when the watch has the turn
	left  bool          // the watch does not wait any more
}

func newTurns(n int) *turns { return &turns{free: n, byName: map[string]*turnUser{}} }

// sendTurns is how many watches send large events at once.
func sendTurns() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// take waits for a turn of a user, or until the context is done. The caller calls end when it has sent its events.
func (t *turns) take(ctx context.Context, user string) (end func()) {
	own := t.enter(user)
	select {
	case <-own.begun:
	case <-ctx.Done():
		if t.leave(own) {
			return func() {}
		}
	}
	limit := time.AfterFunc(turnTime, t.give)
	return func() {
		if limit.Stop() {
			t.give()
		}
	}
}

// enter returns the turn of a watch, which begins at once if one is free.
func (t *turns) enter(user string) *turn {
	own := &turn{begun: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 { // then no watch waits
		t.free--
		close(own.begun)
		return own
	}
	u := t.byName[user]
	if u == nil {
		u = &turnUser{name: user}
		t.byName[user] = u
		t.users = append(t.users, u)
	}
	u.waiting = append(u.waiting, own)
	return own
}

// leave ends the wait for a turn. It reports false if the turn has begun at the same time.
func (t *turns) leave(own *turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-own.begun:
	default:
		own.left = true
	}
	return own.left
}

// give gives a turn that has ended to the next user.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.users) > 0 {
		u := t.users[0]
		next := u.waiting[0]
		u.waiting = u.waiting[1:]
		if next.left && len(u.waiting) > 0 {
			continue // the user keeps its place
		}
		if t.users = t.users[1:]; len(u.waiting) > 0 {
			t.users = append(t.users, u)
		} else {
			delete(t.byName, u.name)
		}
		if !next.left {
			close(next.begun)
			return
		}
	}
	t.free++
}
