package controller

import "github.com/tidemark-dev/tidemark/internal/store"

// follower is the part of a loop that follows one collection: it queues every object at the start, and
// every object that is written later. Loops embed it, and extend begin and observe where other
// changes matter too.
type follower struct {
	l          *Loops
	queue      *queue
	collection string
	// selects reports whether an object may need a sync; nil: all may.
	selects func(*store.Object) bool
}

func (f *follower) begin(s *store.State) { f.addAll(s, "") }

func (f *follower) observe(c *store.CollectionChange) {
	if c.Collection == f.collection && c.After != nil && f.selected(c.After) {
		f.add(c.Key())
	}
}

// addAll queues the objects below a prefix of keys.
func (f *follower) addAll(s *store.State, prefix string) {
	for o := range s.Snapshot(f.collection).Scan(prefix, "") {
		if f.selected(o) {
			f.add(o.Key)
		}
	}
}

func (f *follower) add(key string) { f.queue.add(item{object: object{f.collection, key}}) }

func (f *follower) selected(o *store.Object) bool { return f.selects == nil || f.selects(o) }
