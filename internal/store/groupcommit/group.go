package groupcommit

import (
	"github.com/tidemark-dev/tidemark/internal/store"
)

// maxGroupBytes and store.MaxGroupWrites bound a group, and so its memory and the time of one sync. The bytes are those that
// the log writes, with the replaced versions. A transaction that finds the open group full waits for the next one.
const maxGroupBytes = 4 << 20

// group is a run of transactions that become durable together. Guarded by
// committer.mu until it is sealed, then owned by its leader.
type group struct {
	members []*member
	first   [1]*member // room for a transaction that comes alone
	writes  int
	bytes   int
	last    store.Revision  // of the newest write; zero until sealed, or when all failed
	rebased bool            // some of its transactions were checked again, and may have failed
	err     error           // why all failed
	times   *store.LogTimes // nil: no transaction needs them

	lead chan struct{} // gets a value for the transaction that shall lead; nil when the first one led at once
	done chan struct{} // closed when the group is done; nil while no transaction waits
	over bool          // the group is done
}

// member is a transaction in a group.
type member struct {
	writes   []memberWrite
	first    [1]memberWrite // room for a transaction of one write
	needs    []store.Need
	guards   []store.Guard
	deleting bool // all of its writes are steps of deletions
	err      error
}

// memberWrite is a write of a member.
type memberWrite struct {
	store.Staged
	key       string
	condition store.Revision
	next      bool          // Write.Next
	object    *store.Object // the next version; nil of a deletion
	deleting  bool          // Write.Deleting, or a deletion
}

// finished returns a channel that is closed when the group is done. The caller holds
// committer.mu.
func (g *group) finished() <-chan struct{} {
	if g.done == nil {
		g.done = make(chan struct{})
		if g.over {
			close(g.done)
		}
	}
	return g.done
}

// seal closes the open group. The caller holds mu.
func (c *committer) seal(g *group) {
	c.open, c.inFlight = nil, g
	g.end()
}

// end sets the revision that the group ends with.
func (g *group) end() {
	g.last = 0
	for _, p := range g.members {
		if p.err == nil {
			g.last = p.writes[len(p.writes)-1].Change.Revision
		}
	}
}

// outcome is the result of a transaction of a group that is done.
func (g *group) outcome(t *store.Txn, p *member) ([]*store.Object, error) {
	if t.Times != nil && g.times != nil {
		*t.Times = *g.times
	}
	switch {
	case g.err != nil:
		return nil, g.err
	case p.err != nil:
		return nil, p.err
	}
	made := make([]*store.Object, len(p.writes))
	for i := range p.writes {
		if w := &p.writes[i]; w.object != nil {
			made[i] = w.object
		} else {
			made[i] = w.Change.Gone()
		}
	}
	return made, nil
}
