package httpapi

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// cache keeps representations that cost time to make: forms of single objects (protobuf,
// CBOR, table rows, other versions) and compressed runs of lists. A representation is made
// once for each version of its objects and shared by all requests. An entry is never stale,
// because its key contains the revision and the key of the object.
//
// When the budget is spent, the least recently used entries are removed. Two rules protect
// the rest:
//
//   - Runs get at most a third of the budget.
//   - A list does not replace forms that were used since the list passed them last (see
//     findListed). Otherwise a list that is larger than the budget, and is read again and
//     again, would find nothing.
//
// All methods are safe for concurrent use.
type cache struct {
	max    int64                  // bytes
	charge func(bytes int64) bool // reports changes of the cache's size; false: there is no memory for them
	shards [cacheShards]cacheShard
	// latest are the forms made last, by revision. The watchers of an object ask for the
	// same form at the same time, and find it here without a lock.
	latest [latestForms]atomic.Pointer[cacheEntry]
}

const (
	cacheShards = 16
	latestForms = 32
	// mostLatest bounds the bytes of an object in latest, which eviction does not empty.
	mostLatest = 32 << 10
	// entryOverhead is the estimated size of an entry without its content.
	entryOverhead = 320
)

// cacheShard holds the entries of some versions.
type cacheShard struct {
	mu          sync.Mutex
	entries     map[cacheKey]*cacheEntry // guarded by mu
	forms, runs recency                  // guarded by mu
}

// recency orders entries of one sort.
type recency struct {
	entries list.List // of *cacheEntry, the last used first
	bytes   int64
}

// cacheKey identifies a representation.
type cacheKey struct {
	typ uint64 // the type's ID
	// version is the revision of an object, or the hash of a run. Objects that were written by
	// one transaction, or deleted at once, can have the same revision, so that key is needed.
	version uint64
	key     string // of the object; empty: a run
	// gone distinguishes a deleted object from the object that was stored at the same
	// revision.
	gone bool
	what derivation
}

// cacheEntry is one representation. form and err do not change once ready is set.
type cacheEntry struct {
	key   cacheKey
	place *list.Element
	used  bool          // since a list passed it; guarded by the shard's mu
	bytes int64         // counted in the shard; guarded by its mu
	begun atomic.Bool   // a request makes it, or has made it
	ready atomic.Bool   // form and err are set
	done  chan struct{} // closed when ready is set; nil until a request waits; guarded by the shard's mu
	form  form
	err   error
}

// errUnfinished is the error for requests that wait for an entry whose making panicked.
var errUnfinished = errors.New("a representation of an object could not be made")

// errMakerLeft is the error of a request that waited for an entry, if the request that
// made it failed for a reason of its own.
var errMakerLeft = errors.New("the request that converted the object has ended")

func newCache(max int64, charge func(bytes int64) bool) *cache {
	c := &cache{max: max, charge: charge}
	for i := range c.shards {
		c.shards[i].entries = map[cacheKey]*cacheEntry{}
	}
	return c
}

func formKey(t *resource.Type, o *store.Object, what derivation) cacheKey {
	return cacheKey{typ: t.ID, version: uint64(o.Modified), key: o.Key, gone: o.IsGone(), what: what}
}

func (c *cache) shard(k cacheKey) *cacheShard { return &c.shards[k.version%cacheShards] }

// of returns a form of an object in the version of the type, and keeps it. An object that
// is not stored (the result of a dry-run) has no revision, so its forms are not kept.
func (c *cache) of(ctx context.Context, t *resource.Type, o *store.Object, what derivation) (form, error) {
	if what == tableRow && t.Display.Columns == t.StoredVersion().Display.Columns {
		t = t.StoredVersion() // all versions have the same row
	}
	if o.Created == 0 || t.ID == 0 {
		return derive(ctx, t, o.Bytes(), what)
	}
	key := formKey(t, o, what)
	slot := &c.latest[key.version%latestForms]
	if e := slot.Load(); e != nil && e.key == key {
		return e.form, e.err
	}
	for {
		e := c.shard(key).find(key)
		f, err := c.finish(ctx, e, t, func() (form, error) { return derive(ctx, t, o.Bytes(), what) })
		if err == errMakerLeft {
			continue
		}
		if err == nil && o.Len() <= mostLatest {
			slot.Store(e)
		}
		return f, err
	}
}

// ofListed returns a form of an object of a list. ok is false if the cache has no room for
// it; then the caller makes the form itself.
func (c *cache) ofListed(ctx context.Context, t *resource.Type, o *store.Object, what derivation) (raw []byte, ok bool, err error) {
	e := c.findListed(t, o, what)
	if e == nil {
		return nil, false, nil
	}
	f, err := c.finish(ctx, e, t, func() (form, error) { return derive(ctx, t, o.Bytes(), what) })
	return f.raw, true, err
}

// kept returns a form of an object if it is in the cache.
func (c *cache) kept(t *resource.Type, o *store.Object, what derivation) (form, bool) {
	key := formKey(t, o, what)
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.found(key)
	if e == nil || !e.ready.Load() || e.err != nil {
		return form{}, false
	}
	return e.form, true
}

// offer adds a form of an object of a list, if there is room and no request is making it.
func (c *cache) offer(t *resource.Type, o *store.Object, what derivation, f form) {
	if e := c.findListed(t, o, what); e != nil && !e.begun.Swap(true) {
		e.form = f
		c.settle(e)
	}
}

// ofRun returns a run in compressed form. text returns its bytes.
func (c *cache) ofRun(ctx context.Context, r *run, text func() ([]byte, error)) (*compressed, error) {
	produce := func() (form, error) {
		b, err := text()
		if err != nil {
			return form{}, err
		}
		return form{run: r.compress(b)}, nil
	}
	key := cacheKey{typ: r.typ.ID, version: r.hash, what: derivation{run: true, look: r.look}}
	for !r.passing {
		f, err := c.finish(ctx, c.shard(key).find(key), r.typ, produce)
		switch {
		case err == errMakerLeft:
			continue
		case err != nil:
			return nil, err
		case f.run.is(r):
			return f.run, nil
		}
		break // another run has the same hash: it stays, and this one is not kept
	}
	f, err := produce()
	return f.run, err
}

// finish returns the content of an entry. One request makes it; the others wait. They give
// their seats back if the request that makes it waits for a webhook.
func (c *cache) finish(ctx context.Context, e *cacheEntry, t *resource.Type, produce func() (form, error)) (form, error) {
	if e.ready.Load() {
		return e.form, e.err
	}
	if !e.begun.Swap(true) {
		defer c.settle(e)
		e.err = errUnfinished // if produce panics
		e.form, e.err = produce()
		return e.form, e.err
	}
	done := c.shard(e.key).done(e)
	wait := func() error {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var err error
	if t.ConvertsByWebhook() {
		err = fairness.Wait(ctx, 0, wait)
	} else {
		err = wait()
	}
	switch {
	case err != nil:
		return form{}, err
	case errors.Is(e.err, context.Canceled), errors.Is(e.err, context.DeadlineExceeded), errors.Is(e.err, fairness.ErrFull):
		return form{}, errMakerLeft
	}
	return e.form, e.err
}

// done returns a channel that is closed when the entry is ready.
func (s *cacheShard) done(e *cacheEntry) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.done == nil {
		e.done = make(chan struct{})
		if e.ready.Load() {
			close(e.done)
		}
	}
	return e.done
}

// find returns the entry of a key; it adds one if there is none.
func (s *cacheShard) find(key cacheKey) *cacheEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.found(key); e != nil {
		return e
	}
	return s.add(key)
}

// findListed is find for an object of a list. It returns nil instead of adding an entry if
// the cache is full, unless the least recently used form has not been used since a list
// passed it.
func (c *cache) findListed(t *resource.Type, o *store.Object, what derivation) *cacheEntry {
	key := formKey(t, o, what)
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.found(key); e != nil {
		return e
	}
	full := s.forms.bytes+s.runs.bytes+entryOverhead+int64(o.Len()) > c.max/cacheShards
	if last := s.forms.entries.Back(); full && last != nil {
		if e := last.Value.(*cacheEntry); e.used {
			e.used = false
			s.forms.entries.MoveToFront(last)
			return nil
		}
	}
	return s.add(key)
}

// found returns the entry of a key, or nil. The lock is held.
func (s *cacheShard) found(key cacheKey) *cacheEntry {
	e := s.entries[key]
	if e != nil {
		s.recency(key).entries.MoveToFront(e.place)
		e.used = true
	}
	return e
}

// add adds an entry. The lock is held.
func (s *cacheShard) add(key cacheKey) *cacheEntry {
	e := &cacheEntry{key: key, used: true}
	e.place = s.recency(key).entries.PushFront(e)
	s.entries[key] = e
	return e
}

// recency returns the list that an entry of the key belongs to.
func (s *cacheShard) recency(key cacheKey) *recency {
	if key.what.run {
		return &s.runs
	}
	return &s.forms
}

// settle wakes the requests that wait for an entry, counts its bytes and makes room for it.
func (c *cache) settle(e *cacheEntry) {
	s := c.shard(e.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.ready.Store(true)
	if e.done != nil {
		close(e.done)
	}
	if s.entries[e.key] != e { // evicted meanwhile
		return
	}
	if e.err != nil {
		s.remove(e)
		return
	}
	before := s.forms.bytes + s.runs.bytes
	e.bytes = entryOverhead + e.form.size()
	s.recency(e.key).bytes += e.bytes
	most := c.max / cacheShards
	for s.runs.bytes > most/3 {
		s.remove(s.runs.entries.Back().Value.(*cacheEntry))
	}
	for s.forms.bytes+s.runs.bytes > most {
		s.remove(s.forms.entries.Back().Value.(*cacheEntry))
	}
	if !c.charge(s.forms.bytes+s.runs.bytes-before) && s.entries[e.key] == e {
		s.remove(e)
		c.charge(-e.bytes)
	}
}

// remove removes an entry. The lock is held.
func (s *cacheShard) remove(e *cacheEntry) {
	delete(s.entries, e.key)
	r := s.recency(e.key)
	r.entries.Remove(e.place)
	r.bytes -= e.bytes
}
