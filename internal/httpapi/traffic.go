package httpapi

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/fault"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// traffic is the running requests and watches of a handler.
type traffic struct {
	begun atomic.Uint64 // requests so far
	ended atomic.Uint64 // requests that have ended, and open watches

	mu      sync.Mutex
	watches map[*request]struct{} // open
}

// begin counts a request.
func (t *traffic) begin() { t.begun.Add(1) }

// end ends a request.
func (t *traffic) end() { t.ended.Add(1) }

// active returns how many requests are under way, without open watches. It counts a request that ends
// meanwhile, and misses none.
func (t *traffic) active() uint64 {
	ended := t.ended.Load()
	return t.begun.Load() - ended
}

// open counts a request as an open watch instead of as one that is under way.
func (t *traffic) open(q *request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watches == nil {
		t.watches = map[*request]struct{}{}
	}
	t.watches[q] = struct{}{}
	t.ended.Add(1)
}

// close undoes open. The watch must not have been closed.
func (t *traffic) close(q *request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, open := t.watches[q]; open {
		delete(t.watches, q)
		t.ended.Add(^uint64(0))
	}
}

// Begun is how many requests the handler has begun to serve.
func (h *Handler) Begun() uint64 { return h.traffic.begun.Load() }

// Watches returns the open watches, in no order.
func (h *Handler) Watches() []fault.Request {
	h.traffic.mu.Lock()
	defer h.traffic.mu.Unlock()
	all := make([]fault.Request, 0, len(h.traffic.watches))
	for q := range h.traffic.watches {
		all = append(all, q.faultRequest(q.agent))
	}
	return all
}

// Busy returns what the handler still has to do for a state with the revision; empty: nothing. It has nothing to
// do if no request is under way, each open watch has read the log up to the revision, and the
// clients have taken the events that were sent to them, as far as the connection knows. Busy wakes the watches
// that have not read so far. It does not wait.
func (h *Handler) Busy(r store.Revision) (why string) {
	t := &h.traffic
	if n := t.active(); n > 0 {
		return fmt.Sprintf("requests under way: %d", n)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for q := range t.watches {
		if !q.watch.HasRead(r) {
			q.watch.Wake()
			why = fmt.Sprintf("a watch of %s has not read up to revision %d", q.info.Resource, r)
		} else if c, ok := q.w.(interface{ Unread() int }); ok && c.Unread() > 0 {
			why = fmt.Sprintf("the client of a watch of %s has not taken %d bytes", q.info.Resource, c.Unread())
		}
	}
	return why
}
