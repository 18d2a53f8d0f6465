package httpapi

import (
	"fmt"
	"math"
	"runtime/debug"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store/notify"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Watches of one HTTP/2 connection share a notify.Fanout: the goroutine of one of them delivers
// events for all that wait, and flushes once. Events that it cannot deliver (the client takes no
// more, the events are large, the type of the watch has changed) it leaves to the watch's own
// goroutine.

// deliverBytes bounds the events that one watch delivers for another: the connection takes no more
// at a time, and the others wait meanwhile.
const deliverBytes = 64 << 10

// connections has the fanouts of the connections that watches share. The zero value is ready.
type connections struct {
	mu  sync.Mutex
	all map[any]*connection
}

type connection struct {
	fanout  notify.Fanout
	watches int // guarded by connections.mu
}

// join adds a watch to a connection, and returns the connection's fanout.
func (c *connections) join(key any) *notify.Fanout {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.all[key]
	if one == nil {
		if c.all == nil {
			c.all = map[any]*connection{}
		}
		one = new(connection)
		c.all[key] = one
	}
	one.watches++
	return &one.fanout
}

// leave takes a watch out of a connection.
func (c *connections) leave(key any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.all[key]
	if one.watches--; one.watches == 0 {
		delete(c.all, key)
	}
}

// share lets the watches of the connection deliver each other's events, unless making this
// watch's events may wait for a webhook.
func (s *httpStream) share() {
	q := s.q
	if s.response == nil || q.typ.ConvertsByWebhook() || q.shape != nil && q.shape.out.Form == wire.PartialList {
		return
	}
	s.joined = true
	q.watch.Share(q.h.connections.join(s.response.Connection()), s)
}

// leave ends the sharing that share began. The watch is closed.
func (s *httpStream) leave() {
	if s.joined {
		s.joined = false
		s.q.h.connections.leave(s.response.Connection())
	}
}

// undelivered returns the events that Deliver has left to the request, and goes on with its
// panic.
func (s *httpStream) undelivered() []registry.Event {
	if s.broken != nil {
		panic(s.broken)
	}
	events := s.left
	s.left = nil
	return events
}

// Deliver implements notify.Reader. A panic ends this watch, not the watch whose goroutine
// delivers for it.
func (s *httpStream) Deliver() (result notify.Delivery) {
	defer func() {
		if v := recover(); v != nil {
			s.broken, result = fmt.Errorf("%v, delivering events\n%s", v, debug.Stack()), notify.Declined
		}
	}()
	for {
		events, ok := s.q.watch.Recent(s.q.events[:0])
		if !ok {
			return notify.Declined
		}
		if len(events) == 0 {
			return result
		}
		ok, full := s.try(events)
		if !ok {
			s.left = events
			return notify.Declined
		}
		if full {
			result = notify.Full
		}
		clear(events) // a watch that waits keeps no old object
	}
}

// Flush implements notify.Reader. A client that is gone ends its requests by itself.
func (s *httpStream) Flush() { _ = s.flush() }

// try writes all of the events or, if it is not ok, none. It does not wait for the client.
func (s *httpStream) try(events []registry.Event) (ok, full bool) {
	q := s.q
	size := sizeOf(events)
	if size > deliverBytes || len(events) > spareEvents || !q.shows(events) {
		return false, false
	}
	columns := q.shape != nil && q.shape.columns
	room := q.h.buffer(size)
	var spare [spareEvents]int
	buf, ends, err := q.appendEvents((*room)[:0], spare[:0], events, math.MaxInt)
	sent := buf
	if err == nil && s.zipped {
		sent = s.pack(nil, buf)
	}
	if err == nil {
		ok, full = s.response.TryWrite(sent)
	}
	n := len(sent)
	q.h.giveBack(room, buf)
	if !ok {
		if q.shape != nil {
			q.shape.columns = columns // the client did not get them
		}
		return false, false
	}
	q.sent(0, ends)
	q.bytes += int64(n)
	return true, full
}
