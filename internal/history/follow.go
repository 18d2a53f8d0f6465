package history

import (
	"context"

	"github.com/tidemark-dev/tidemark/internal/changes"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Follower returns the changes that a query selects, as they are made, oldest first. One goroutine uses it.
type Follower struct {
	reader *Reader
	query  *Query
	feed   *store.Feed   // of all collections; nil: cursor is used
	cursor *store.Cursor // of one collection
	// pending were read, and not compared yet.
	pending []store.CollectionChange
}

// maxNextBytes is the size of the objects and of the fields whose comparison ends the changes that Next returns.
const maxNextBytes = 1 << 20

// Follow follows the changes after a revision. Zero: those from the since of the query on; without it, those that are made
// from now on. The until of the query does not end it. A revision that is gone is a *store.ExpiredError.
func (r *Reader) Follow(ctx context.Context, q *Query, after store.Revision) (*Follower, error) {
	head := r.Store.Any().Revision()
	if after == 0 {
		after = head
		if !q.since.isZero() {
			var err error
			if after, _, err = r.bounds(ctx, q, head); err != nil {
				return nil, err
			}
		}
	}
	f := &Follower{reader: r, query: q}
	if q.Collection == "" {
		feed, err := r.Store.Feed(after)
		f.feed = feed
		return f, err
	}
	prefix := ""
	switch {
	case q.Name != "" && q.oneKey():
		prefix = q.key()
	case q.Namespace != "" && q.Namespaced:
		prefix = q.Namespace + "/"
	}
	cursor, err := r.Store.Watch(q.Collection, prefix, after)
	if err != nil {
		return nil, err
	}
	f.cursor = cursor
	return f, nil
}

// Next returns the next changes that the query selects, without waiting for them: see Wait. All changes up to the revision
// at have been returned.
func (f *Follower) Next(ctx context.Context) (all []changes.Change, at store.Revision, err error) {
	cost := meter{pause: f.reader.Pause}
	for (len(all) == 0 || len(f.pending) > 0) && cost.spent < maxCost && cost.bytes < maxNextBytes {
		if len(f.pending) == 0 {
			if f.pending, err = f.read(ctx); err != nil {
				return nil, 0, err
			}
			if len(f.pending) == 0 {
				break
			}
		}
		c := f.pending[0]
		f.pending[0] = store.CollectionChange{}
		f.pending = f.pending[1:]
		if err := cost.look(false); err != nil {
			return nil, 0, err
		}
		made, selected, err := f.reader.show(f.query, &c, &cost)
		if err != nil {
			return nil, 0, err
		}
		if selected {
			all = append(all, made)
		}
	}
	return all, f.upTo(), nil
}

// upTo returns the revision up to which all changes were looked at.
func (f *Follower) upTo() store.Revision {
	switch {
	case len(f.pending) > 0:
		return f.pending[0].Revision - 1
	case f.feed != nil:
		return f.feed.Revision()
	}
	return f.cursor.Revision()
}

// followBatch is how many changes are read at a time.
const followBatch = 64

func (f *Follower) read(ctx context.Context) ([]store.CollectionChange, error) {
	ctx = store.WithStandIns(ctx)
	if f.feed != nil {
		all := make([]store.CollectionChange, followBatch)
		n, err := f.feed.TryNext(ctx, all)
		return all[:n], err
	}
	var some [followBatch]*store.Change
	n, err := f.cursor.TryNext(ctx, some[:])
	all := make([]store.CollectionChange, n)
	for i, c := range some[:n] {
		all[i] = store.CollectionChange{Collection: f.query.Collection, Change: c}
	}
	return all, err
}

// Wait waits until there may be something for Next, or until the context ends.
func (f *Follower) Wait(ctx context.Context) {
	if len(f.pending) > 0 {
		return
	}
	if f.feed != nil {
		select {
		case <-f.feed.Ready():
		case <-ctx.Done():
		}
		return
	}
	defer context.AfterFunc(ctx, f.cursor.Wake)()
	f.cursor.Wait()
}

// Close releases the follower.
func (f *Follower) Close() {
	if f.feed != nil {
		f.feed.Close()
		return
	}
	f.cursor.Close()
}
