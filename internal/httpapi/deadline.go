package httpapi

import (
	"net/http"
	"sync"
	"time"
)

// watchdog breaks off what a client makes the server wait for: the end of a body
// that never comes, room for an answer that is never read. It is one timer that is
// kept from request to request; a deadline on the connection for each of them would
// cost an HTTP/2 server a hand-off to the connection's goroutine. The timer is not
// stopped when the wait is over, nor set again when the next one ends later: it looks
// for itself, when it fires, whether there is something to break off.
//
// The zero value is ready. One goroutine uses it, besides the timer's own.
type watchdog struct {
	mu    sync.Mutex
	timer *time.Timer
	w     http.ResponseWriter // nil: nothing is waited for
	at    time.Time           // when to break off
	read  bool                // the wait is for the client to write
	set   time.Time           // what the timer is set to; zero: it is not
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// guard breaks the reads of the request, or the writes of the answer, off at a
// time. It replaces an earlier guard.
func (d *watchdog) guard(w http.ResponseWriter, at time.Time, read bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.w, d.at, d.read = w, at, read
	switch {
	case d.timer == nil:
		d.timer = time.AfterFunc(time.Until(at), d.bite)
	case d.set.IsZero() || at.Before(d.set):
		d.timer.Reset(time.Until(at))
	default:
		return
	}
	d.set = at
}

// release ends the guard. After it returns the answer is not touched any more.
func (d *watchdog) release() {
	d.mu.Lock()
	d.w = nil
	d.mu.Unlock()
}

func (d *watchdog) bite() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set = time.Time{}
	if d.w == nil {
		return
	}
	if left := time.Until(d.at); left > 0 { // it guards something else by now
		d.timer.Reset(left)
		d.set = d.at
		return
	}
	c := http.NewResponseController(d.w)
	// A writer without deadlines is one of a test: there is no client to wait for.
	if d.read {
		_ = c.SetReadDeadline(past)
	} else {
		_ = c.SetWriteDeadline(past)
	}
}
