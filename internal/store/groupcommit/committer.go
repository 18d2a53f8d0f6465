package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// committer is the writer of a store that is its log's only writer.
type committer struct {
	store store.Publisher
	log   store.Log

	mu       sync.Mutex // guards the fields up to bytes
	closing  bool
	failure  error          // of the log; not nil: no write is possible any more
	leading  bool           // a transaction leads, or was given the lead
	last     store.Revision // of the newest write
	guards   guards
	open     *group // nil when empty
	inFlight *group // sealed, not yet published
	// pending has the newest versions of the objects that the two groups write. It may have some that are published.
	pending map[objectName]version
	bytes   int64 // State.Bytes with both groups

	// The fields from here on have no lock.
	compacted store.Revision // the floor of the log; only the loop uses it
	inMemory  bool           // Bounds.InMemory of the log
	// mostHistory is the current upper limit of Usage.HistoryBytes, in bytes.
	mostHistory atomic.Int64
	room        room
	looping     sync.Once // starts the loop

	// Scratch space of the leader. written counts the bytes that it appended
	// since the size of the log was last checked.
	entries []store.Entry
	changes []store.Staged
	written int64
	// time is the Origin.Time of the newest change that the log has. It never decreases.
	time time.Time
}

// objectName names an object of any collection.
type objectName struct{ collection, key string }

// version is an object as a write has made it.
type version struct {
	object   *store.Object // nil: it is deleted
	revision store.Revision
}

// Open replays the log of the options and starts a store on it. The store owns the log from the call on, and closes it, also
// when Open fails.
func Open(ctx context.Context, o store.Options) (*store.Store, error) {
	l := store.NewLoader(o)
	b, err := o.Log.Replay(ctx, l.Load)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("replay the log: %w", err), o.Log.Close())
	}
	c := start(l.Publisher(b), o.Log, b)
	if o.OnDivergence == nil || b.Head > o.Base {
		c.startLoop()
	}
	return c.store.Store(), nil
}

// Fork starts a store at a state of a parent, on the log of the options, which has that state. Store.Fork has the details.
func Fork(parent *store.Store, state *store.State, o store.Options) (*store.Store, error) {
	p, b, err := parent.Fork(state, o)
	if err != nil {
		return nil, err
	}
	return start(p, o.Log, b).store.Store(), nil
}

// start makes the writer of a store.
func start(p store.Publisher, log store.Log, b store.Bounds) *committer {
	c := &committer{store: p, log: log, last: b.Head, compacted: b.Floor, inMemory: b.InMemory, time: b.Time}
	c.bytes, c.pending = p.Any().Bytes(), map[objectName]version{}
	c.mostHistory.Store(p.Options().MaxDisk)
	p.Start(c)
	return c
}

// MostRecent implements store.Writer: every change that was acknowledged is published.
func (c *committer) MostRecent(context.Context) (*store.State, error) { return c.store.Any(), nil }

// startLoop starts the loop that compacts, unless it runs.
func (c *committer) startLoop() {
	c.looping.Do(func() {
		c.store.Go(c.compactLoop)
		if f := c.store.Options().OnDivergence; f != nil {
			go f()
		}
	})
}

// Verify implements store.Writer. Without a group, the newest state is the published one.
func (c *committer) Verify() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil || c.open != nil || c.inFlight != nil {
		return nil
	}
	if n := len(c.pending); n > 0 || c.leading {
		return fmt.Errorf("%d objects are pending without a group; leading is %t", n, c.leading)
	}
	if published := c.store.Any(); c.bytes != published.Bytes() || c.last < published.Revision() {
		return fmt.Errorf("the newest state has %d bytes at revision %d, and the published one %d bytes at revision %d", c.bytes, c.last, published.Bytes(), published.Revision())
	}
	return nil
}

// Close implements store.Writer: it refuses further writes and waits for those under way.
func (c *committer) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	for c.inFlight != nil || c.open != nil {
		g := c.open
		if g == nil {
			g = c.inFlight
		}
		done := g.finished()
		c.mu.Unlock()
		<-done
		c.mu.Lock()
	}
}
