package consistentlist

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tidemark-dev/tidemark/resourceversion"
)

// How a follower works.
//
// Its place is the version up to which it has yielded every change, or none. Without a
// place it yields a state; with one it watches from there:
//
//	for {
//		if no place: place = state(guarantee)   RESET ADDED... SYNCED
//		else:        place = watch(place)       ADDED MODIFIED DELETED BOOKMARK ...
//		if 410:      guarantee = NotOlderThan(place), no place
//	}
//
// Invariants:
//
//   - No gap: a watch begins at the place. The place moves only to the version of a
//     yielded event or bookmark, or of a complete state.
//   - No going back: after a 410, it requests a state that is not older than the place.
//     An event older than the place ends the follower with an error.
//   - Progress or end: each step either moves the place by a watch, or counts as a
//     failure. Consecutive failures are bounded, and wait longer each time.
//
// A state is a streaming list if the server supports it: a watch that begins with
// synthetic events and marks their end. If it is not enabled, servers from v1.19 on
// refuse it. Older ones ignore the parameters and never mark the end, which the
// follower detects by silence. In both cases the follower uses lists from then on.

// Reset and Synced are the events of a follower that a watch does not have.
const (
	// Reset: a new state begins. Discard all earlier objects.
	Reset watch.EventType = "RESET"
	// Synced: all events up to Event.ResourceVersion have been delivered.
	Synced watch.EventType = "SYNCED"
)

// Event is one step of a follower.
type Event struct {
	// Type is watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, Reset or
	// Synced.
	Type watch.EventType

	// Object is as the client decoded it; nil for Reset, Synced and Bookmark. Objects
	// between Reset and Synced may share the memory of a whole page: copy objects that are kept
	// of many.
	Object runtime.Object

	// ResourceVersion is the object's, or for Bookmark and Synced the version up to
	// which every change has been yielded; empty for Reset.
	ResourceVersion string
}

const (
	// streamSilence is after how long without an event a streaming list that has not
	// said it is complete is given up. kube-apiserver sends its initial events without
	// pause, and waits 3 s at most before the first.
	streamSilence = 10 * time.Second
	// watchTime is the shortest that a watch is asked to last; the longest is twice
	// that, so that many watches do not end at once.
	watchTime = 5 * time.Minute
	// watchSlack is how much later a watch is cut that its server does not end.
	watchSlack = 30 * time.Second
	// shortWatch is the time within which a watch that ends without an event has
	// failed.
	shortWatch = time.Second
)

// Follow yields a state that keeps the guarantee, and then every change, until the caller ends
// the iteration, the context is done, or an error is final. Then the last element is an error:
// the context's cause, an *Error, or the client's error. A state is yielded as Reset, the
// objects as Added (a streaming list may mix in changes), and Synced.
//
// Follow continues after ended watches, and after unreachable servers and 429 as often as
// Options.Retries allows. If a version has expired (410), it yields a new state, which begins
// with Reset and is not older than the last event.
func Follow[L Collection](ctx context.Context, client Client[L], g Guarantee, o Options) iter.Seq2[Event, error] {
	return follow(ctx, query[L]{client, g, o}, "", g.check())
}

// FollowFrom yields every change since a list, given the list's last page, and then
// continues as Follow does. The caller has the state already. For an inconsistent list it
// follows from the version of the first page. That version has usually expired, so a new
// state comes first.
func FollowFrom[L Collection](ctx context.Context, last Page[L]) iter.Seq2[Event, error] {
	var err error
	refuse := func(detail string) {
		err = &Error{Kind: Invalid, Guarantee: last.from.guarantee, Got: last.version, Detail: detail}
	}
	switch {
	case last.from.client == nil:
		refuse("the page to follow from is none that List yielded")
	case last.List.GetContinue() != "":
		refuse("the page to follow from is not the last of its list")
	case last.version == "" || last.version == "0":
		refuse("the list to follow from has no version")
	}
	return follow(ctx, last.from, last.version, err)
}

func follow[L Collection](ctx context.Context, q query[L], place string, err error) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := follower[L]{query: q, yield: yield, place: place}
		f.options.Inconsistent = false
		err := err
		if err == nil {
			err = f.run(ctx)
		}
		if err == errStopped {
			return
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		yield(Event{}, f.guarantee.typed(err))
	}
}

type follower[L Collection] struct {
	query[L]
	yield     func(Event, error) bool
	place     string // up to which every change has been yielded; empty without a state
	noStreams bool   // the server has no streaming lists
	failures  int    // in a row
}

var (
	errNoStreams = errors.New("the server has no streaming lists")
	errShort     = errors.New("watches end at once: the server ends them, or cannot be reached")
)

// run steps until it cannot go on.
func (f *follower[L]) run(ctx context.Context) error {
	for {
		err := f.step(ctx)
		switch {
		case err == nil:
			continue
		case err == errNoStreams:
			f.noStreams = true
			continue
		case err == errStopped || ctx.Err() != nil:
			return err
		case f.place == "" && f.lists():
			return err // it has repeated what may be repeated
		}
		f.failures++
		pause, again := f.options.delay(err, f.failures)
		switch {
		case expired(err):
			pause, again = backoff(f.failures-1), true
			if f.place != "" {
				f.forget()
			}
		case err == errShort:
			pause, again = backoff(f.failures), true
		case f.place == "" && (err == errAgain || tooLarge(err) && f.failures == reachTries):
			if behind := f.behind(ctx, f.guarantee); behind != nil {
				return behind
			}
			pause, again = backoff(f.failures), true
		}
		if !again || f.failures > f.options.retries() {
			return err
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// forget discards the place. The next state must not be older.
func (f *follower[L]) forget() {
	f.guarantee = MostRecent
	if resourceversion.Valid(f.place) {
		f.guarantee = NotOlderThan(f.place)
	}
	f.place = ""
}

func (f *follower[L]) step(ctx context.Context) error {
	switch {
	case f.place != "":
		return f.watch(ctx)
	case f.lists():
		return f.list(ctx)
	default:
		return f.stream(ctx)
	}
}

// lists reports whether a state comes as a list, and not as a streaming list.
func (f *follower[L]) lists() bool { return f.noStreams || f.guarantee.match == exact }

// list yields a state from the pages of a list.
func (f *follower[L]) list(ctx context.Context) error {
	var last Page[L]
	for page, err := range List(ctx, f.client, f.guarantee, f.options) {
		if err != nil {
			return err
		}
		if page.First {
			if err := f.tell(Event{Type: Reset}); err != nil {
				return err
			}
		}
		if err := meta.EachListItem(page.List, f.added); err != nil {
			return err
		}
		last = page
	}
	return f.synced(last.version)
}

func (f *follower[L]) added(object runtime.Object) error {
	version, err := versionOf(object)
	if err != nil {
		return err
	}
	return f.tell(Event{watch.Added, object, version})
}

// synced ends a state.
func (f *follower[L]) synced(version string) error {
	if version == "" || version == "0" {
		return f.broken(version, "the state has no version to watch from")
	}
	if err := f.guarantee.verify(version); err != nil {
		return err
	}
	f.place = version
	return f.tell(Event{Type: Synced, ResourceVersion: version})
}

// stream yields a state from a streaming list, and then the events of its watch.
func (f *follower[L]) stream(ctx context.Context) error {
	opts := f.options.selection()
	f.guarantee.set(&opts)
	opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	opts.SendInitialEvents = new(true)
	err := f.receive(ctx, opts)
	if f.place == "" && (refusesStreams(err) || expired(err)) {
		return errNoStreams // a plain watch expires: the parameters were ignored
	}
	return err
}

// watch yields the changes since the place.
func (f *follower[L]) watch(ctx context.Context) error {
	opts := f.options.selection()
	opts.ResourceVersion = f.place
	return f.receive(ctx, opts)
}

// receive opens a watch and yields its events until it ends. Nil means that the watch ended
// cleanly.
func (f *follower[L]) receive(ctx context.Context, opts metav1.ListOptions) error {
	length := watchTime + rand.N(watchTime)
	opts.AllowWatchBookmarks = true
	opts.TimeoutSeconds = new(int64(length / time.Second))
	watchCtx, cancel := context.WithTimeout(ctx, length+watchSlack)
	defer cancel()
	opening := time.AfterFunc(f.options.timeout(), cancel)
	tries, end := untilAgain(watchCtx, reachTries)
	if f.place != "" || f.guarantee.version == "" || f.failures >= reachTries { // nothing to find out
		tries = watchCtx
	}
	defer end()
	w, err := f.client.Watch(tries, opts)
	switch {
	case err != nil && context.Cause(tries) == errAgain:
		opening.Stop()
		return errAgain
	case err != nil && watchCtx.Err() != nil:
		return fmt.Errorf("no response to a watch within %v: %w", f.options.timeout(), err)
	case err != nil:
		opening.Stop()
		return err
	}
	defer w.Stop()
	opening.Stop()

	initial := f.place == ""
	if initial {
		if err := f.tell(Event{Type: Reset}); err != nil {
			return err
		}
	}
	opened := time.Now() // not before: a client may have tried for long
	silence := time.NewTimer(streamSilence)
	defer silence.Stop()
	for {
		var silent <-chan time.Time
		if initial {
			silent = silence.C
		}
		select {
		case e, ok := <-w.ResultChan():
			switch {
			case !ok && initial:
				return errNoStreams
			case !ok && f.place == opts.ResourceVersion && time.Since(opened) < shortWatch:
				return errShort
			case !ok:
				f.failures = 0
				return nil
			}
			if err := f.take(e, initial); err != nil {
				return err
			}
			initial = f.place == ""
			if e.Type != watch.Bookmark {
				silence.Reset(streamSilence)
			}
		case <-silent:
			return errNoStreams
		case <-watchCtx.Done():
			if initial {
				return errNoStreams
			}
			return ctx.Err()
		}
	}
}

// take yields one event of a watch. Initial events come in any order, and move the place
// only once they are complete.
func (f *follower[L]) take(e watch.Event, initial bool) error {
	switch e.Type {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
	case watch.Error:
		return apierrors.FromObject(e.Object)
	default:
		return f.broken(f.place, fmt.Sprintf("a watch event of type %q", e.Type))
	}
	version, err := versionOf(e.Object)
	switch {
	case err != nil:
		return err
	case version == "":
		return f.broken(f.place, fmt.Sprintf("%s without a resource version", e.Type))
	case initial && e.Type == watch.Bookmark:
		if object, err := meta.Accessor(e.Object); err != nil || object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			return nil
		}
		return f.synced(version)
	case initial:
		return f.tell(Event{e.Type, e.Object, version})
	}
	if older, err := resourceversion.Less(version, f.place); err == nil && older {
		return f.broken(version, fmt.Sprintf("%s after version %q", e.Type, f.place))
	}
	f.failures = 0
	f.place = version
	if e.Type == watch.Bookmark {
		e.Object = nil
	}
	return f.tell(Event{e.Type, e.Object, version})
}

func (f *follower[L]) tell(e Event) error {
	if !f.yield(e, nil) {
		return errStopped
	}
	return nil
}

func versionOf(object runtime.Object) (string, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return "", fmt.Errorf("an object without metadata: %w", err)
	}
	return accessor.GetResourceVersion(), nil
}
