package registry

import (
	"context"
	"errors"
	"iter"
	"time"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// List is a list that is ready to be sent: everything in front of the items is known.
type List struct {
	// Type is the type of the items, which are in its stored version.
	Type     *resource.Type
	Revision store.Revision
	// Began is when the list began, the zero time for objects that are not stored.
	Began     time.Time
	Continue  string
	Remaining *int64
	// Items yields the items, the same ones each time until Close. After an error there are no
	// more; a response that has begun must be aborted.
	Items iter.Seq2[*store.Object, error]
	// BufferedBytes is about how many bytes the list keeps in memory in addition to the state.
	BufferedBytes int64
	// Read and Selected count the objects that the list has read and that it has, the last time that all Items were
	// yielded. FromLog reports whether they were not in memory.
	Read, Selected int
	FromLog        bool
	// Whole reports whether the items are all the objects between the first and the last one.
	Whole bool
	// Shard is the selector of the shard that the list is limited to; empty: it is not.
	Shard string
	// Warnings are the warnings of a deletion, for headers.
	Warnings []string
	// Annotations are for the audit event of a deletion; nil: there are none.
	Annotations map[string]string
	// Close releases the state. It must be called.
	Close func()
}

// List reads a collection. The table in readtable.go decides which state it reads.
func (r *Registry) List(ctx context.Context, t Target, o *metainternal.ListOptions) (*List, error) {
	began := time.Now()
	p, err := planList(o)
	if err != nil {
		return nil, err
	}
	if s := r.source(t); s != nil {
		items, err := s.list(ctx, t, o)
		if err != nil {
			return nil, err
		}
		return &List{Type: t.Type, Items: listed(items), Close: func() {}}, nil
	}
	s, err := newSelector(ctx, t, o)
	if err == nil {
		err = s.limitTo(o.ShardSelector)
	}
	if err != nil {
		return nil, err
	}
	v, err := r.view(ctx, t, p)
	if err != nil {
		return nil, err
	}
	if r.Store.HasUnreadable() {
		if err := r.allReadable(t, v.Select(s.watchPrefix(), p.afterKey(s), nil)); err != nil {
			v.Close()
			return nil, status(err)
		}
	}
	l := &List{Type: t.Type, Began: began, Revision: v.Revision(), Whole: s.all(), FromLog: !v.InMemory(), Close: v.Close}
	if s.shard != nil {
		l.Shard = s.shard.String()
	}
	switch {
	case s.none:
		l.Items = listed(nil)
	case p.limit > 0:
		err = l.chunk(v, s, p)
		v.Close() // the chunk needs it no more
	default:
		after := p.afterKey(s)
		l.Items = l.selected(ctx, s.scan(v, after), s)
		if l.FromLog {
			l.BufferedBytes = store.BatchBytes
		}
		if s.all() { // which counts nothing
			l.Read, _ = v.Count(s.watchPrefix(), after)
			l.Selected = l.Read
		}
	}
	if err != nil {
		v.Close()
		return nil, status(err)
	}
	return l, nil
}

const (
	// maxChunkBytes ends a chunk early, which the protocol allows. Objects that were read from the log
	// stay in memory until the chunk is sent.
	maxChunkBytes = 64 << 20
	// chunkStep is how many bytes of such objects are charged to the user at a time.
	chunkStep = 1 << 20
)

// chunk collects one chunk. Its continue token and remainingItemCount are sent in front of the
// items.
func (l *List) chunk(v *store.View, s *selector, p plan) error {
	var items []*store.Object
	more, size, held := false, 0, 0
	for o, err := range l.selected(s.ctx, s.scan(v, p.afterKey(s)), s) {
		if err != nil {
			return err
		}
		if more = len(items) == p.limit || size > maxChunkBytes; more {
			break
		}
		items = append(items, o)
		size += o.Len()
		if size-held > chunkStep && !v.InMemory() {
			if err := fairness.Hold(s.ctx, int64(size-held)); err != nil {
				return err
			}
			held = size
		}
	}
	if !v.InMemory() {
		l.BufferedBytes = int64(size - held)
	}
	l.Items = listed(items)
	if s.all() {
		l.Read = len(items)
	}
	l.Selected = len(items)
	if !more {
		return nil
	}
	last := items[len(items)-1].Key
	l.Continue = nextToken(v.Revision(), last, s.prefix)
	if s.all() {
		if n, known := v.Count(s.prefix, last); known {
			remaining := int64(n)
			l.Remaining = &remaining
		}
	}
	return nil
}

// yieldEvery is how many objects a selector looks at, in about a millisecond, before it lets other
// requests go first and checks whether the request was cancelled.
const yieldEvery = 1024

// selected yields the selected objects until the context is done, and counts them.
func (l *List) selected(ctx context.Context, all iter.Seq2[*store.Object, error], s *selector) iter.Seq2[*store.Object, error] {
	if s.all() {
		return all
	}
	return func(yield func(*store.Object, error) bool) {
		looked, found := 0, 0
		defer func() { l.Read, l.Selected = looked, found }()
		for o, err := range all {
			if looked++; looked%yieldEvery == 0 {
				if err := fairness.Yield(ctx); err != nil {
					yield(nil, err)
					return
				}
			}
			picked := err != nil || s.matches(o)
			if picked && err == nil {
				err = s.failed
			}
			if picked {
				found++
			}
			if picked && (!yield(o, err) || err != nil) {
				return
			}
		}
	}
}

// viewAt opens the state that a plan selects on a server whose newest revision is Target.At.
func (r *Registry) viewAt(ctx context.Context, t Target, p plan) (*store.View, error) {
	at := t.At
	if p.read == exactly || p.read == continued && !p.latest {
		at = p.revision
	}
	if p.revision > t.At {
		return nil, status(&store.TooLargeError{Revision: p.revision, Current: t.At})
	}
	v, err := r.Store.Exact(ctx, t.Type.Collection, at, 0)
	var expired *store.ExpiredError
	if p.read == continued && errors.As(err, &expired) {
		return nil, expiredToken(p.after)
	}
	return v, status(err)
}

// view opens the state that a plan selects.
func (r *Registry) view(ctx context.Context, t Target, p plan) (*store.View, error) {
	if t.At != 0 {
		return r.viewAt(ctx, t, p)
	}
	if p.read == exactly || p.read == continued && !p.latest {
		var v *store.View
		err := r.waitFor(ctx, p.revision, func() (err error) {
			v, err = r.Store.Exact(ctx, t.Type.Collection, p.revision, r.futureWait())
			return err
		})
		var expired *store.ExpiredError
		if p.read == continued && errors.As(err, &expired) {
			return nil, expiredToken(p.after)
		}
		if err != nil {
			return nil, status(err)
		}
		return v, nil
	}
	if _, err := r.state(ctx, p.read, p.revision); err != nil { // this can wait for the revision
		return nil, err
	}
	if t.lags(p.read) {
		t.Replica.Reach(p.revision)
		v, err := t.Replica.View(ctx, t.Type.Collection)
		return v, status(err)
	}
	return r.Store.Hold(ctx, t.Type.Collection), nil
}

// afterKey returns the key that the list continues after.
func (p *plan) afterKey(s *selector) string {
	if p.read != continued {
		return ""
	}
	return s.prefix + p.after
}

// scan yields the objects that may match by their keys and Bloom filters.
func (s *selector) scan(v *store.View, after string) iter.Seq2[*store.Object, error] {
	var may func(uint64) bool
	if s.bloom != 0 {
		may = func(d uint64) bool { return s.bloom.allows(bloom(d)) }
	}
	all := v.Select(s.watchPrefix(), after, may)
	if s.key != "" {
		return first(all) // other keys with this prefix may follow
	}
	return all
}

// listed yields objects.
func listed(items []*store.Object) iter.Seq2[*store.Object, error] {
	return func(yield func(*store.Object, error) bool) {
		for _, o := range items {
			if !yield(o, nil) {
				return
			}
		}
	}
}

// first yields the first object only.
func first(all iter.Seq2[*store.Object, error]) iter.Seq2[*store.Object, error] {
	return func(yield func(*store.Object, error) bool) {
		for o, err := range all {
			yield(o, err)
			return
		}
	}
}

// ReadAll yields the decoded objects of a namespace, or of a kind without namespaces, in their
// stored version and at the most recent revision. The request takes seats for the size of all
// objects, because decoding them can take seconds.
func (r *Registry) ReadAll(ctx context.Context, t Target) iter.Seq2[runtime.Object, error] {
	return func(yield func(runtime.Object, error) bool) {
		state, err := r.Store.MostRecent(ctx)
		if err != nil {
			yield(nil, readStatus(err))
			return
		}
		t.Name = ""
		all := state.Snapshot(t.Type.Collection).Scan(t.key(), "")
		size := 0
		for o := range all {
			size += o.Len()
		}
		if err := fairness.Widen(ctx, size); err != nil {
			yield(nil, err)
			return
		}
		for o := range all {
			err := fairness.Yield(ctx)
			if err == nil {
				err = unreadable(o)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(t.read(ctx, o)) {
				return
			}
		}
	}
}
