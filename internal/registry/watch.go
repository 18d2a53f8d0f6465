package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/notify"
)

// Event is an event of a watch. Object is nil for BOOKMARK and ERROR.
type Event struct {
	Type   EventType
	Object *store.Object
	// Revision is the revision of a BOOKMARK. InitialEventsEnd reports whether it ends the initial
	// events, for which it has an annotation.
	Revision         store.Revision
	InitialEventsEnd bool
	// Status is the Status of an ERROR, after which the watch ends.
	Status *metav1.Status
	// Made is when the change was made, in nanoseconds since 1970; zero: unknown, or no change.
	Made int64
}

// EventType is the type of an event in the protocol.
type EventType string

const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	Bookmark EventType = "BOOKMARK"
	Error    EventType = "ERROR"
)

const (
	// minWatch is the shortest time that a watch without timeoutSeconds lasts; the
	// longest is twice that.
	minWatch = 30 * time.Minute
	// lastBookmark is how long before its end a watch gets a bookmark.
	lastBookmark = 2 * time.Second
	// maxInitial is how long a client may take to read the initial events, as long as a list.
	// Their state stays in memory until then.
	maxInitial = time.Minute
	// maxChanges is how many changes are read from the history at a time.
	maxChanges = 64
)

// Watch is a running watch. One goroutine uses it. If it is shared, another watch of its fanout may
// deliver its events while it waits. It has no goroutine and no queue of its own: it reads the
// store's shared history. It waits only on its cursor, which a change, its timer or the end of its
// context wakes. Many watches wake at once, so a select of three channels, or reading the clock,
// would be a large part of the cost of an event.
type Watch struct {
	// Over reports whether the watch ends now. It is called when all events have been
	// returned, before the watch waits, and again when the store wakes the waiting watches. It
	// must not block, since the watches of other clients may call it. Nil: never.
	Over func() bool
	// Until is the last revision whose changes the watch returns, after which it ends. Zero: there is none. A watch with
	// it is not shared.
	Until store.Revision

	ctx       context.Context //nolint:containedctx // the watch's own: it ends with it
	r         *Registry
	target    Target
	selector  *selector
	start     start
	bookmarks bool // whether the client allows them

	initial func() (*store.Object, bool) // the rest of the initial state; nil after its end
	stop    func()                       // of initial
	at      store.Revision               // of initial
	latest  time.Time                    // for initial to end
	cursor  *store.Cursor                // nil before begin
	failed  error                        // of begin

	end      time.Time
	bookmark time.Time      // the next one
	owes     bool           // a bookmark, when there are no events
	timer    *time.Timer    // nil before begin
	rang     atomic.Bool    // the timer fired: check the clock
	unbind   func() bool    // detaches the cursor from the context
	last     store.Revision // of the last bookmark or event
	changes  []*store.Change
	ended    bool
	passed   bool // a change after Until was read

	read atomic.Uint64 // all up to here was returned; zero: unknown

	fanout *notify.Fanout // nil: not shared
	reader notify.Reader
}

// start is where a watch begins.
type start struct {
	read      read           // the initial state; refused: none
	revision  store.Revision // of the read, or the one to continue from
	synthetic bool           // send the state as ADDED events
	mark      bool           // then send the bookmark that ends them
}

// Watch starts a watch that lasts as long as its context. It returns an error for invalid options;
// errors that the protocol reports in the stream (410, 504) are ERROR events. Only a watch from a
// future revision waits, in Next.
func (r *Registry) Watch(ctx context.Context, t Target, o *metainternal.ListOptions) (*Watch, error) {
	begin, err := planWatch(o)
	if err != nil {
		return nil, err
	}
	s, err := newSelector(ctx, t, o)
	if err == nil {
		err = s.limitTo(o.ShardSelector)
	}
	if err != nil {
		return nil, err
	}
	w := &Watch{ctx: ctx, r: r, target: t, selector: s, start: begin, bookmarks: o.AllowWatchBookmarks}
	lasts := WatchDuration(o)
	w.end, w.ended = time.Now().Add(lasts), lasts == 0
	w.planBookmark(time.Now())
	if begin.revision <= r.Store.Any().Revision() {
		w.failed = w.begin() // at once, so that no later change is missed
	}
	return w, nil
}

// WatchDuration returns how long a watch lasts: timeoutSeconds, nothing if that is negative, and a random time of 30 to 60
// minutes without it.
func WatchDuration(o *metainternal.ListOptions) time.Duration {
	if o.TimeoutSeconds == nil || *o.TimeoutSeconds == 0 {
		return minWatch + rand.N(minWatch)
	}
	return time.Duration(max(0, min(*o.TimeoutSeconds, 1<<31))) * time.Second
}

// Share adds the watch to a fanout: one member reads the events of others that wait (notify.Fanout).
// The reader's Deliver uses Recent. Share is called at most once, before the first Wait.
func (w *Watch) Share(g *notify.Fanout, r notify.Reader) {
	w.fanout, w.reader = g, r
	if w.cursor != nil {
		w.cursor.Share(g, r)
	}
}

// Expire ends the watch with the ERROR event that it has if its revision is gone (410). It is called
// before the first TryNext.
func (w *Watch) Expire() {
	w.failed = &store.ExpiredError{Revision: w.start.revision, Floor: w.r.Store.Any().Revision()}
}

// HasRead reports whether TryNext has returned all events up to the revision, and was called
// again since. Of a watch of a replica, it counts all events up to the revision of the replica. Events that
// were delivered through a fanout count after the next Wake. It is safe for concurrent use.
func (w *Watch) HasRead(r store.Revision) bool { return w.read.Load() >= uint64(min(r, w.head())) }

// head is the newest revision whose change the watch may deliver.
func (w *Watch) head() store.Revision {
	if w.target.Replica != nil {
		return w.target.Replica.Revision()
	}
	return w.r.Store.Any().Revision()
}

// Wake makes Wait return, so that the owner calls TryNext, and HasRead is up to date. It is safe for
// concurrent use, until Close.
func (w *Watch) Wake() {
	if w.read.Load() > 0 { // begun, and the owner has waited
		w.cursor.Wake()
	}
}

// Initialized reports whether TryNext has returned all of the initial events.
func (w *Watch) Initialized() bool { return w.cursor != nil && w.initial == nil }

// Recent is TryNext for events in memory, and never waits. If ok is false, TryNext must be called.
func (w *Watch) Recent(buf []Event) (events []Event, ok bool) {
	for {
		if w.cursor.Whole() && (w.rang.Load() || w.ctx.Err() != nil) || w.failed != nil {
			return buf, false
		}
		buf = w.grown(buf)
		n, ok := w.cursor.TryRecent(w.room(buf))
		if !ok || n == 0 && w.over() {
			return buf, len(buf) > 0
		}
		if buf = w.take(buf, n); n == 0 || len(buf) > 0 && w.cursor.Whole() {
			return buf, true
		}
	}
}

func (w *Watch) over() bool { return w.Over != nil && w.Over() }

// planWatch returns where a watch begins.
func planWatch(o *metainternal.ListOptions) (start, error) {
	metainternal.SetListOptionsDefaults(o, true)
	if errs := validation.ValidateListOptions(o, true); len(errs) > 0 {
		return start{}, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	class, revision, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return start{}, err
	}
	s := start{read: getTable[class], revision: revision}
	switch wanted := o.SendInitialEvents; {
	case wanted == nil && class == number:
		s.read = refused
	case wanted == nil: // the old /watch/ paths
		s.synthetic = true
	case *wanted:
		s.synthetic, s.mark = true, o.AllowWatchBookmarks
	case class == number:
		s.read = refused
	}
	return s, nil
}

// begin opens the cursor and the initial state. It may wait for a revision.
func (w *Watch) begin() error {
	from := w.start.revision
	if w.start.read != refused && w.target.At != 0 {
		if err := w.beginAt(); err != nil {
			return err
		}
		from = w.target.At
	} else if w.start.read != refused {
		snapshot, err := w.r.snapshot(w.ctx, w.target, w.start.read, w.start.revision)
		if err != nil {
			return err
		}
		from = snapshot.Revision()
		if w.start.synthetic {
			if w.r.Store.HasUnreadable() {
				if err := w.r.allReadable(w.target, readable(snapshot.Scan(w.selector.watchPrefix(), ""))); err != nil {
					return err
				}
			}
			w.at, w.latest = from, time.Now().Add(maxInitial)
			w.initial, w.stop = iter.Pull(w.matching(snapshot))
		}
	}
	watch := w.r.Store.Watch
	if w.target.Replica != nil {
		watch = w.target.Replica.Watch
	}
	cursor, err := watch(w.target.Type.Collection, w.selector.watchPrefix(), from)
	if err != nil {
		return err
	}
	w.cursor, w.last = cursor, from
	if w.fanout != nil {
		cursor.Share(w.fanout, w.reader)
	}
	w.unbind = context.AfterFunc(w.ctx, cursor.Wake)
	w.timer = time.AfterFunc(time.Until(w.due()), func() {
		w.rang.Store(true)
		cursor.Wake()
	})
	return nil
}

// beginAt opens the initial state as of Target.At.
func (w *Watch) beginAt() error {
	v, err := w.r.viewAt(w.ctx, w.target, plan{read: w.start.read, revision: w.start.revision})
	if err != nil || !w.start.synthetic {
		if v != nil {
			v.Close()
		}
		return err
	}
	if w.r.Store.HasUnreadable() {
		if err := w.r.allReadable(w.target, v.Select(w.selector.watchPrefix(), "", nil)); err != nil {
			v.Close()
			return err
		}
	}
	w.at, w.latest = w.target.At, time.Now().Add(maxInitial)
	next, stop := iter.Pull(w.matchingAt(v))
	w.initial, w.stop = next, func() {
		stop()
		v.Close()
	}
	return nil
}

// matchingAt yields the selected objects of a view. An error ends it, and is the one of the watch.
func (w *Watch) matchingAt(v *store.View) iter.Seq[*store.Object] {
	return func(yield func(*store.Object) bool) {
		for o, err := range v.Select(w.selector.watchPrefix(), "", nil) {
			if err != nil {
				w.failed = err
				return
			}
			if w.selector.matches(o) && !yield(o) {
				return
			}
		}
	}
}

// readable returns objects as allReadable takes them.
func readable(all iter.Seq[*store.Object]) iter.Seq2[*store.Object, error] {
	return func(yield func(*store.Object, error) bool) {
		for o := range all {
			if !yield(o, nil) {
				return
			}
		}
	}
}

func (w *Watch) matching(snapshot store.Snapshot) iter.Seq[*store.Object] {
	return func(yield func(*store.Object) bool) {
		if w.selector.key != "" {
			if o := snapshot.Get(w.selector.key); w.selector.matches(o) {
				yield(o)
			}
			return
		}
		for o := range snapshot.Scan(w.selector.prefix, "") {
			if w.selector.matches(o) && !yield(o) {
				return
			}
		}
	}
}

// Wait waits until TryNext may have something. It can return early.
func (w *Watch) Wait() { w.cursor.Wait() }

// TryNext appends the available events to buf, up to its capacity, which must be at least one. It
// goes beyond the capacity rather than return a part of a revision: the end of a watch never splits
// one, since a client that continues after a part of a revision would miss the rest. It returns io.EOF at the end of the watch: after timeoutSeconds, the end of the context or an ERROR
// event. It waits only for the first revision of the watch, and for reads of the log.
func (w *Watch) TryNext(buf []Event) ([]Event, error) {
	if w.ended {
		return buf, io.EOF
	}
	if w.cursor == nil && w.failed == nil {
		w.failed = w.begin()
	}
	if w.failed != nil {
		return w.fail(buf, w.failed)
	}
	for {
		if w.ctx.Err() != nil || w.cursor.Whole() && w.rang.Load() && w.look() {
			return buf, w.finish()
		}
		if w.initial != nil {
			if time.Now().After(w.latest) {
				return w.fail(buf, apierrors.NewTimeoutError("the initial events were not read in time", 1))
			}
			if buf = w.nextInitial(buf); len(buf) > 0 {
				return buf, nil
			}
			if w.failed != nil {
				return w.fail(buf, w.failed)
			}
		}
		buf = w.grown(buf)
		upTo := w.head() // before the cursor looks
		n, err := w.cursor.TryNext(w.ctx, w.room(buf))
		if err != nil {
			return w.fail(buf, err)
		}
		buf = w.take(buf, n)
		if w.reachedUntil(n, upTo) {
			if w.bookmarks {
				buf = append(buf, Event{Type: Bookmark, Revision: w.Until})
			}
			return buf, w.finish()
		}
		switch {
		case w.failed != nil && len(buf) == 0:
			return w.fail(buf, w.failed)
		case w.failed != nil:
			return buf, nil
		case !w.cursor.Whole():
		case len(buf) > 0:
			return buf, nil
		case n == 0 && w.over():
			return buf, w.finish()
		case w.owes:
			w.owes = false
			w.last = max(w.last, w.cursor.Revision())
			return append(buf, Event{Type: Bookmark, Revision: w.last}), nil
		case n == 0:
			w.read.Store(uint64(upTo))
			return buf, nil
		}
	}
}

// take appends the events of the first n changes.
func (w *Watch) take(buf []Event, n int) []Event {
	for _, c := range w.changes[:n] {
		if w.r.Store.HasUnreadable() && w.failed == nil {
			w.failed = cmp.Or(unreadable(c.Before), unreadable(c.After))
		}
		if w.passed = w.Until != 0 && c.Revision > w.Until; w.passed || w.failed != nil {
			break
		}
		buf = w.selector.appendEvent(buf, c)
	}
	if n > 0 && len(buf) > 0 {
		w.last = max(w.last, w.changes[n-1].Revision)
	}
	clear(w.changes[:n]) // a waiting watch keeps no old object in memory
	return buf
}

// reachedUntil reports whether all changes up to Until were returned, after n changes of a state were read.
func (w *Watch) reachedUntil(n int, upTo store.Revision) bool {
	return w.Until != 0 && w.failed == nil && (w.passed || n == 0 && upTo >= w.Until && w.cursor.Whole())
}

// grown returns buf with room for the rest of a revision.
func (w *Watch) grown(buf []Event) []Event {
	if w.cursor.Whole() {
		return buf
	}
	return slices.Grow(buf, maxChanges)
}

// room returns a buffer for as many changes as buf has room for events.
func (w *Watch) room(buf []Event) []*store.Change {
	n := min(cap(buf)-len(buf), maxChanges)
	if len(w.changes) < n {
		w.changes = make([]*store.Change, n)
	}
	return w.changes[:n]
}

// nextInitial appends the rest of the initial state, and the bookmark at its end.
func (w *Watch) nextInitial(buf []Event) []Event {
	for len(buf) < cap(buf) {
		o, ok := w.initial()
		if !ok {
			w.stop()
			w.initial = nil
			if w.start.mark && w.failed == nil {
				buf = append(buf, Event{Type: Bookmark, Revision: w.at, InitialEventsEnd: true})
			}
			return buf
		}
		buf = append(buf, Event{Type: Added, Object: o})
	}
	return buf
}

// due returns when the clock must be checked next.
func (w *Watch) due() time.Time {
	if w.bookmarks && w.bookmark.Before(w.end) {
		return w.bookmark
	}
	return w.end
}

// look checks the clock: it reports whether the watch is over, and requests a bookmark that is due.
func (w *Watch) look() (over bool) {
	w.rang.Store(false)
	now := time.Now()
	if !now.Before(w.end) {
		return true
	}
	if w.bookmarks && !now.Before(w.bookmark) {
		w.owes = true
		w.planBookmark(now)
	}
	w.timer.Reset(w.due().Sub(now))
	return false
}

func (w *Watch) finish() error {
	w.ended = true
	return io.EOF
}

// planBookmark sets the time of the next bookmark.
func (w *Watch) planBookmark(now time.Time) { w.bookmark = w.r.NextBookmark(now, w.end) }

// NextBookmark returns when a watch that lasts until end gets its next bookmark: after the interval, and once shortly before
// the end.
func (r *Registry) NextBookmark(now, end time.Time) time.Time {
	next := now.Add(r.bookmarkInterval())
	if last := end.Add(-lastBookmark); now.Before(last) && last.Before(next) {
		return last
	}
	return next
}

// fail ends the watch with an ERROR event.
func (w *Watch) fail(buf []Event, err error) ([]Event, error) {
	if w.ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
		return buf, w.finish()
	}
	var expired *store.ExpiredError
	if errors.As(err, &expired) {
		err = apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", expired.Revision, expired.Floor))
	}
	var s apierrors.APIStatus
	if !errors.As(status(err), &s) {
		s = apierrors.NewInternalError(err)
	}
	w.ended = true
	body := s.Status()
	return append(buf, Event{Type: Error, Status: &body}), nil
}

// Close releases the watch. It is idempotent.
func (w *Watch) Close() {
	w.ended = true
	if w.initial != nil {
		w.stop()
		w.initial = nil
	}
	if w.cursor != nil {
		w.timer.Stop()
		w.unbind()
		w.cursor.Close()
	}
}

// appendEvent appends the event of a change for this selector. An object that starts to match is
// ADDED. One that stops matching is DELETED, with its last matching state and the revision of the
// change.
func (s *selector) appendEvent(buf []Event, c *store.Change) []Event {
	was, is := s.matches(c.Before), s.matches(c.After)
	e := Event{Object: c.After}
	switch {
	case was && is:
		e.Type = Modified
	case is:
		e.Type = Added
	case was:
		e.Type, e.Object = Deleted, c.Gone()
	default:
		return buf
	}
	if made := c.Origin().Time; !made.IsZero() {
		e.Made = made.UnixNano()
	}
	return append(buf, e)
}
