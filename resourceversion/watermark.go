package resourceversion

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Version is a resource version of the resource that R stands for: R is the type of
// its objects, corev1.Pod for example, or where all objects have one type (in a
// dynamic client) a type made for the purpose, as in
//
//	type foos struct{}
//	v := resourceversion.Version[foos](foo.GetResourceVersion())
//
// Versions of different resources are different types, so that comparing a pod's
// with a node's does not compile. A Version is not checked; the methods of Watermark
// check what they are given.
type Version[R any] string

// Of returns the version of an object, and takes the resource from its type.
func Of[R any, Object interface {
	*R
	GetResourceVersion() string
}](object Object) Version[R] {
	return Version[R](object.GetResourceVersion())
}

// Watermark is the newest version of a resource that a reader, such as a cache, has seen. It
// lets a client wait until a cache includes the client's own last write (KEP-5504, User
// Stories, Story 2).
//
// The code that fills the cache calls Advance with the version of each event, bookmark and
// list after it is in the cache. Readers call Wait first. A Watermark never goes back: a cache
// that starts again from an older version needs a new Watermark.
//
// The zero value has seen no version. A Watermark must not be copied after first use, and is
// safe for concurrent use.
type Watermark[R any] struct {
	mu      sync.Mutex
	seen    Version[R]  // guarded by mu; empty before the first Advance
	waiters []waiter[R] // guarded by mu; sorted, the oldest version first
}

// waiter is a call of Wait. reached is closed once the watermark has reached the version.
type waiter[R any] struct {
	version Version[R]
	reached chan struct{}
}

// Advance records that v has been seen, and wakes the callers that wait for it or for an
// older one. A version older than one seen before changes nothing. The error is an
// *InvalidError if v cannot be compared; the watermark then stays where it is.
func (w *Watermark[R]) Advance(v Version[R]) error {
	if !Valid(string(v)) {
		return &InvalidError{Text: string(v)}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.has(v) {
		return nil
	}
	w.seen = v
	woken := 0
	for woken < len(w.waiters) && w.has(w.waiters[woken].version) {
		close(w.waiters[woken].reached)
		woken++
	}
	w.waiters = slices.Delete(w.waiters, 0, woken)
	return nil
}

// Seen returns the newest version that has been seen, or "" before the first.
func (w *Watermark[R]) Seen() Version[R] {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// Wait returns nil as soon as v or a newer version has been seen, also if the
// context is done by then. Otherwise the error is an *InvalidError at once if v
// cannot be compared (read from the server instead), or wraps the context's cause
// once it is done.
func (w *Watermark[R]) Wait(ctx context.Context, v Version[R]) error {
	if !Valid(string(v)) {
		return &InvalidError{Text: string(v)}
	}
	w.mu.Lock()
	if w.has(v) {
		w.mu.Unlock()
		return nil
	}
	me := waiter[R]{v, make(chan struct{})}
	w.waiters = slices.Insert(w.waiters, w.after(v), me)
	w.mu.Unlock()

	select {
	case <-me.reached:
		return nil
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.has(v) {
		return nil
	}
	w.waiters = slices.DeleteFunc(w.waiters, func(x waiter[R]) bool { return x == me })
	return fmt.Errorf("waiting for resource version %s, at %q: %w", v, w.seen, context.Cause(ctx))
}

// has reports whether a valid v has been seen. It needs mu.
func (w *Watermark[R]) has(v Version[R]) bool {
	return w.seen != "" && order(string(v), string(w.seen)) <= 0
}

// after returns the place behind the callers that wait for v or for an older version. The
// caller holds mu.
func (w *Watermark[R]) after(v Version[R]) int {
	i, _ := slices.BinarySearchFunc(w.waiters, v, func(x waiter[R], v Version[R]) int {
		if order(string(x.version), string(v)) <= 0 {
			return -1
		}
		return +1
	})
	return i
}
