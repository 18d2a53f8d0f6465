package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/deflate"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// watchBatch is how many events are asked for at once while there are many; an
// idle watch keeps room for a few.
const watchBatch = 256

// spareEvents is that few.
const spareEvents = 4

// eventBytes is about the size of an event without its object, or of a bookmark.
const eventBytes = 200

// openWatch starts a watch and returns. pull then sends the events. It is called from as
// high up the stack as possible, because each waiting watch keeps its stack in memory.
func (q *request) openWatch(t registry.Target, out wire.Output) error {
	o, err := q.listOptions()
	if err != nil {
		return err
	}
	if q.info.watch {
		// The prefix asks for a watch whatever the parameter says, and has no defaults
		// of its own.
		o.Watch = false
	}
	until, err := q.until()
	if err != nil {
		return err
	}
	q.ctx, q.cancel = q.watchContext()
	if q.watch, err = q.h.c.Registry.Watch(q.ctx, t, o); err != nil {
		return err
	}
	q.watch.Until = until
	if q.expired {
		q.watch.Expire()
	}
	if q.typ.Custom != nil {
		q.watch.Over = q.watchOver
	}
	contentType := jsonType
	if out.Form != wire.Whole || out.Media != wire.JSON || out.Unmanaged {
		if q.shape, err = q.newShape(t.Type, out); err != nil {
			return err
		}
		if b := q.shape.binary; b != nil {
			contentType = b.StreamType
		}
	}
	q.route = q.h.metrics.longRunning(q)
	q.uninterested = q.h.interest.add(q)
	q.values, q.agent = nil, q.r.UserAgent()
	q.h.traffic.open(q)
	if authn.IsWebSocket(q.r) {
		return q.watchWebSocket()
	}
	q.header()["Content-Type"] = contentType
	if q.lines.zipped = !q.h.c.PlainStreams && streamsList(o) && listsGzip(q.r.Header.Get("Accept-Encoding")); q.lines.zipped {
		q.compressed()
	}
	q.lines.open(q)
	q.to = &q.lines
	if q.dropAfter == 0 && until == 0 { // otherwise the events are counted, or the last one is sought
		q.lines.share()
	}
	q.writeHeader(http.StatusOK)
	q.letGo()
	return nil
}

// streamsList reports whether a watch begins with the present objects, as a list that is streamed. The options have their
// defaults.
func streamsList(o *metainternal.ListOptions) bool {
	return o.SendInitialEvents != nil && *o.SendInitialEvents && o.AllowWatchBookmarks
}

// listsGzip reports whether an Accept-Encoding header lists gzip, without a weight.
func listsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		if strings.TrimSpace(part) == "gzip" {
			return true
		}
	}
	return false
}

// letGo drops the parts of the request that only the start of a watch needed: many wait at once,
// with a kilobyte each.
func (q *request) letGo() {
	r := q.r
	q.r = (&http.Request{Method: r.Method, URL: &url.URL{Path: r.URL.Path}}).WithContext(r.Context())
}

// watchContext ends with the request, and when watches are drained.
func (q *request) watchContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(q.seated(q.r.Context()))
	stop := context.AfterFunc(q.h.drained, cancel)
	return ctx, func() { stop(); cancel() }
}

// stream is where events go.
type stream interface {
	// send writes whole events. ends are the offsets of their ends.
	send(events []byte, ends []int) error
	// flush sends the written bytes at once.
	flush() error
}

// pull writes events until the watch ends. The request's own goroutine pulls them, and writes each
// batch in one write. While it waits it holds no buffer, and another watch of its connection may
// deliver for it: see share.go.
func (q *request) pull() error {
	if err := q.to.flush(); err != nil {
		return err
	}
	room := q.events[:0]
	for {
		initial := !q.watch.Initialized()
		q.lines.initial = initial
		events, err := q.nextEvents(room[:0])
		if len(events) == 0 && err == nil {
			room = q.events[:0]
			q.seat.Leave(0)
			q.watch.Wait()
			continue
		}
		if len(events) > 0 {
			if q.shape != nil && q.shape.out.Form == wire.PartialList && events[0].Status == nil {
				return nil // an event is of no list, as kube-apiserver finds at the first
			}
			if !q.shows(events) {
				return nil
			}
			last := q.dropAfter > 0 && uint64(len(events)) >= q.dropAfter
			if last {
				events = events[:q.dropAfter]
			}
			if err := q.sendEvents(events); err != nil {
				q.stalled(err)
				if errors.Is(err, errNoRoom) {
					return nil
				}
				return err
			}
			if initial {
				q.route.began(q, events)
			}
			if last {
				return errDropped
			} else if q.dropAfter > 0 {
				q.dropAfter -= uint64(len(events))
			}
		}
		if err != nil {
			return q.endStream(err)
		}
		clear(events)
		if q.watch.Initialized() {
			q.seat.Leave(0) // from now on, it is a watch that mostly waits
		}
		// A full batch means that there are more events: a larger one is worth its memory.
		switch full := len(events) >= cap(room); {
		case full && cap(room) < watchBatch:
			room = make([]registry.Event, 0, 4*cap(room))
		case !full:
			room = q.events[:0]
		}
	}
}

// nextEvents returns the next events that are there: those first that were not delivered
// while the request waited.
func (q *request) nextEvents(buf []registry.Event) ([]registry.Event, error) {
	if left := q.lines.undelivered(); len(left) > 0 {
		return left, nil
	}
	return q.watch.TryNext(buf)
}

// standing says whether the type of a watch is still served.
type standing int

const (
	served  standing = iota
	gone             // not served: the definition of a custom resource was deleted after its objects
	another          // the definition has changed, or another one has its name
)

// standing returns the standing of the request's type. Built-in types are always served.
func (q *request) standing() standing {
	if q.typ.Custom == nil || q.instant != nil {
		return served
	}
	c := q.h.c.Catalog()
	if c == q.catalog {
		return served
	}
	now := c.Lookup(q.typ.Group, q.typ.Version, q.typ.Resource)
	switch {
	case now != nil && now.Custom != nil && now.Custom.Outdated == q.typ.Custom.Outdated:
		q.catalog = c // Outdated may be set: worlds share Types, and another one has replaced it
		return served
	case now == nil && !q.typ.Custom.Outdated.Load():
		return gone
	}
	return another
}

// shows reports whether events can be shown by the type of the watch. The events that led to its
// end are still sent.
func (q *request) shows(events []registry.Event) bool {
	switch q.standing() {
	case gone:
		return !slices.ContainsFunc(events, func(e registry.Event) bool { return e.Type == registry.Added })
	case another:
		return false
	}
	return true
}

// watchOver ends a watch that has no more events, as kube-apiserver does: cleanly. The client
// reconnects and watches the current type, if there is one.
func (q *request) watchOver() bool { return q.standing() != served }

// endStream ends a watch: cleanly, unless the registry failed.
func (q *request) endStream(err error) error {
	if q.dropped.Load() {
		return errDropped
	}
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	q.h.log().Error("a watch failed", "path", q.loggedPath(), "err", err)
	event := []registry.Event{{Type: registry.Error, Status: statusOf(err)}}
	return q.sendEvents(event)
}

// sizeOf is about how many bytes events are.
func sizeOf(events []registry.Event) (size int) {
	for i := range events {
		size += eventBytes
		if o := events[i].Object; o != nil {
			size += o.Len()
		}
	}
	return size
}

// sendEvents writes events in pieces of about WriteBatchBytes. Large events of an initialized watch wait for a
// turn. Their objects are written without a copy.
func (q *request) sendEvents(events []registry.Event) error {
	size := sizeOf(events)
	if size > largeEvents && q.watch.Initialized() {
		defer q.h.root.turns.take(q.ctx, q.info.User.Name)()
	}
	for i := range events {
		if q.sendsShared(&events[i]) {
			size -= events[i].Object.Len()
		}
	}
	room := q.h.buffer(size)
	buf, ends := (*room)[:0], make([]int, 0, len(events))
	limit := q.h.c.Limits.WriteBatchBytes
	for len(events) > 0 {
		var err error
		if q.sendsShared(&events[0]) {
			if buf, err = q.sendShared(buf, &events[0]); err != nil {
				return err
			}
			events = events[1:]
			continue
		}
		begin := len(buf)
		if buf, ends, err = q.appendEvents(buf, ends[:0], events, limit); err != nil {
			return err
		}
		q.sent(begin, ends)
		if events = events[len(ends):]; len(buf) >= limit {
			if err := q.to.send(buf, ends); err != nil {
				return err // the buffer may still be on its way out
			}
			buf = buf[:0]
		}
	}
	if len(buf) > 0 {
		if err := q.to.send(buf, ends); err != nil {
			return err
		}
	}
	q.h.giveBack(room, buf)
	return q.to.flush()
}

// appendEvents appends events, one at least, until the buffer has limit bytes, or the object of the next event is sent from shared
// bytes. It appends the offset of the end of each event to ends.
func (q *request) appendEvents(buf []byte, ends []int, events []registry.Event, limit int) ([]byte, []int, error) {
	for i := range events {
		if i > 0 && (len(buf) >= limit || q.sendsShared(&events[i])) {
			break
		}
		var err error
		if buf, err = q.appendEvent(buf, &events[i]); err != nil {
			return buf, ends, err
		}
		ends = append(ends, len(buf))
	}
	return buf, ends, nil
}

// sent counts the events of a buffer. The first one begins at the given offset; ends has the end of each.
func (q *request) sent(begin int, ends []int) {
	for _, end := range ends {
		q.route.sent(end - begin)
		begin = end
	}
}

// sendsShared reports whether the object of an event is sent from the bytes that all watches share.
func (q *request) sendsShared(e *registry.Event) bool {
	_, plain := q.to.(*httpStream)
	return plain && !(q.lines.zipped && q.lines.initial) && q.shape == nil && q.typ.Conversion == nil && e.Type != registry.Bookmark && e.Status == nil && e.Object.Len() > largeEvents
}

// sendShared sends the buffer and an event up to the end of its object. It returns the buffer with the rest of the event.
func (q *request) sendShared(buf []byte, e *registry.Event) ([]byte, error) {
	before := len(buf)
	buf = wire.BeginEvent(buf, string(e.Type))
	object := e.Object.Bytes()
	q.route.sent(len(buf) - before + len(object) + len(wire.EventTail))
	if q.lines.zipped {
		return buf[:0], q.lines.sendStored(buf, object)
	}
	if err := q.to.send(buf, nil); err != nil {
		return buf, err
	}
	if err := q.to.send(object, nil); err != nil {
		return buf, err
	}
	return append(buf[:0], wire.EventTail...), nil
}

// appendEvent appends an event. Most watches are for whole objects in JSON, and have
// no shape.
func (q *request) appendEvent(to []byte, e *registry.Event) ([]byte, error) {
	switch {
	case q.shape != nil:
		if q.shape.out.Form == wire.Table { // Tables show ages
			q.shape.now = q.h.c.Now()
			switch {
			case q.lines.initial:
				q.shape.now = q.now()
			case q.instant != nil && e.Made != 0: // the watch goes through the past: as old as it was then
				q.shape.now = time.Unix(0, e.Made)
			}
		}
		return q.shape.event(to, e)
	case e.Type == registry.Bookmark:
		to = wire.AppendBookmark(wire.BeginEvent(to, string(e.Type)), q.typ, uint64(e.Revision), e.InitialEventsEnd)
		return append(to, wire.EventTail...), nil
	case e.Status != nil:
		s := encodeStatus(e.Status)
		return wire.AppendEvent(to, string(e.Type), s[:len(s)-1]), nil
	}
	value := e.Object.Bytes()
	if q.typ.Conversion != nil {
		f, err := q.h.cache.of(q.ctx, q.typ, e.Object, converted)
		if err != nil {
			return to, err
		}
		value = f.raw
	}
	return wire.AppendEvent(to, string(e.Type), value), nil
}

// errNoRoom ends a watch whose client does not read, when the memory for waiting requests is used
// up. The watch ends cleanly, so the client continues from the last event.
var errNoRoom = errors.New("no memory left for requests that wait for their clients")

// httpStream writes events as lines of the response's body. A client that does not read
// is given up by the response itself if it can (HTTP/2), otherwise by a deadline of the
// connection.
type httpStream struct {
	q        *request
	c        *http.ResponseController
	response sharedResponse // nil: the response knows of no others

	// zipped: the body is gzip. initial: the events that are sent are the present objects.
	zipped, initial bool

	// Of a watch that shares its connection, see share.go.
	joined bool
	left   []registry.Event // not delivered: for the request's goroutine
	broken error            // Deliver panicked with it
}

// sharedResponse is a response that knows of the others of its connection.
type sharedResponse interface {
	SetWriteTimeout(d time.Duration)
	Connection() any
	TryWrite(p []byte) (ok, full bool)
}

func (s *httpStream) open(q *request) {
	s.q, s.c = q, http.NewResponseController(q.w)
	if s.response, _ = q.w.(sharedResponse); s.response != nil {
		s.response.SetWriteTimeout(q.h.c.Limits.WriteTimeout)
	}
}

func (s *httpStream) send(events []byte, _ []int) error {
	if !s.zipped {
		return s.write(events)
	}
	room := s.q.h.buffer(len(events))
	packed := s.pack((*room)[:0], events)
	if err := s.write(packed); err != nil {
		return err // the buffer may still be on its way out
	}
	s.q.h.giveBack(room, packed)
	return nil
}

// pack appends events as a gzip member, so that a client can read them at once, and a watch that waits holds no
// compressor. The present objects are compressed. Later events are stored in it as they are: compressing each of them
// for each watch costs more than their transport.
func (s *httpStream) pack(to, events []byte) []byte {
	var m deflate.Member
	to = m.Begin(to)
	if s.initial {
		to = m.Add(to, deflate.Compress(events))
	} else {
		to = m.Sync(m.AddStored(to, events))
	}
	return m.End(to)
}

// sendStored sends text, and an object with the end of its event, as a gzip member. It does not copy the object.
func (s *httpStream) sendStored(text, object []byte) error {
	var m deflate.Member
	buf := m.AddStored(m.Begin(nil), text)
	for block := range slices.Chunk(object, deflate.MaxStored) {
		if err := s.write(m.StoredHead(buf, block)); err != nil {
			return err
		}
		if err := s.write(block); err != nil {
			return err
		}
		buf = nil // it may still be on its way out
	}
	return s.write(m.End(m.Sync(m.AddStored(buf, []byte(wire.EventTail)))))
}

// write writes bytes of the body.
func (s *httpStream) write(b []byte) error {
	if s.response == nil {
		return s.q.write(b)
	}
	if ok, _ := s.response.TryWrite(b); ok { // as mostly: a flush follows
		s.q.bytes += int64(len(b))
		return nil
	}
	if !s.q.seat.Suspend(int64(len(b))) {
		return errNoRoom
	}
	n, err := s.q.w.Write(b)
	s.q.bytes += int64(n)
	if err == nil {
		err = s.q.seat.Resume(s.q.ctx)
	}
	return err
}

func (s *httpStream) flush() error {
	if s.response == nil {
		s.q.limitWrite()
	}
	err := s.c.Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

func headerHas(lines []string, token string) bool {
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}
