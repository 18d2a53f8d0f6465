package pebblelog

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Check reads the whole log and verifies that it is consistent: the current versions are
// those that the head counts, every header follows from the one before it, every change
// has its versions and its actor, times do not decrease, and there are no other versions and
// actors. It also reads the tables whose records have been replaced. It takes time in proportion to the log, and memory for 16 bytes per replaced version and
// per actor. Writes may go on, compactions wait.
func (l *Log) Check(ctx context.Context) error {
	l.compacting.Lock()
	defer l.compacting.Unlock()
	// A compaction also reads the tables, and the parts of them, that no read of a record needs, and damage there
	// ends the server.
	if err := l.db.CheckLevels(nil); err != nil {
		return l.damaged("a table", err)
	}
	var h head
	return l.read(ctx, l.head.Load().floor, func(v *view) error {
		b, closer, err := v.snap.Get(headKey)
		if err == nil {
			h, err = readHead(b)
			closer.Close()
			if err != nil {
				return l.damaged("the head", err)
			}
		}
		if err := v.checkCurrent(ctx, h); err != nil {
			return err
		}
		return v.checkHistory(ctx, h)
	})
}

func (v *view) checkCurrent(ctx context.Context, h head) error {
	lower, upper := spaceBounds(spaceCurrent)
	it, err := v.iter(ctx, lower, upper)
	if err != nil {
		return err
	}
	defer it.Close()
	var objects, sum uint64
	for ok := it.First(); ok; ok = it.Next() {
		var o store.Object
		s, err := readCurrent(&v.hash, it.Key()[1:], it.Value(), &o)
		if err == nil && o.Modified > h.revision {
			err = fmt.Errorf("it is newer than the head, %d", h.revision)
		}
		if err != nil {
			return v.log.damaged(fmt.Sprintf("the current version of %q", it.Key()[1:]), err)
		}
		objects, sum = objects+1, sum+s
	}
	if err := it.Error(); err != nil {
		return v.log.damaged("the current versions", err)
	}
	if objects != h.objects || sum != h.sum {
		return v.log.damaged("the current versions", errors.New("they are not those that the head counts"))
	}
	return nil
}

func (v *view) checkHistory(ctx context.Context, h head) error {
	lower, upper := spaceBounds(spaceReplaced)
	it, err := v.iter(ctx, lower, upper)
	if err != nil {
		return err
	}
	defer it.Close()

	// Replaced versions that a header names. Of those up to the floor, which no read needs,
	// a deletion on a full disk wrote none.
	used, unneeded := 0, 0
	var bytes uint64
	last, chain := h.cut, h.cutChain
	actors := actorCheck{view: v, time: math.MinInt64}
	err = v.headers(ctx, h.cut, h.revision, func(r store.Revision, hd header) error {
		last, chain = r, hd.chain
		defined, err := actors.check(r, hd)
		if err != nil {
			return err
		}
		bytes += hd.size() + defined + uint64(hd.beforeBytes)
		c, k, _, _ := cutPlace(hd.place)
		e := store.Entry{Collection: string(c), Key: string(k), Revision: r}
		if r <= h.floor {
			if hd.before != 0 {
				unneeded++
			}
			return nil
		}
		if hd.before != 0 {
			used++
		}
		return v.versions(it, &e, hd)
	})
	if err != nil {
		return err
	}
	if err := actors.end(ctx, h); err != nil {
		return err
	}
	stored := 0
	for ok := it.First(); ok; ok = it.Next() {
		stored++
	}
	if err := it.Error(); err != nil {
		return v.log.damaged("the replaced versions", err)
	}
	switch {
	case last != h.revision && h.cut != h.revision, chain != h.chain:
		err = fmt.Errorf("the headers end at revision %d, the head is %d", last, h.revision)
	case stored < used || stored > used+unneeded:
		err = fmt.Errorf("there are %d replaced versions, and the headers name %d, and %d that are not needed", stored, used, unneeded)
	case bytes != h.historyBytes:
		err = fmt.Errorf("it takes %d bytes, and the head counts %d", bytes, h.historyBytes)
	}
	if err != nil {
		return v.log.damaged("the history", err)
	}
	return nil
}

// actorCheck checks the origins of all headers and the actors.
type actorCheck struct {
	*view
	time    int64
	defined map[store.Revision]bool // actors above the cut
}

// check checks the origin of a change. It returns the size of the actor that the change defines.
func (c *actorCheck) check(r store.Revision, h header) (uint64, error) {
	if _, err := c.origin(r, h); err != nil || h.origin == nil {
		return 0, err
	}
	o, err := readOrigin(h.origin)
	if err == nil && o.time < c.time {
		err = fmt.Errorf("its time %d is before that of an earlier change, %d", o.time, c.time)
	}
	if err != nil {
		return 0, c.log.damaged(fmt.Sprintf("the origin of revision %d", r), err)
	}
	c.time = o.time
	size, err := c.defines(r, h)
	if size > 0 {
		if c.defined == nil {
			c.defined = map[store.Revision]bool{}
		}
		c.defined[r] = true
	}
	return size, err
}

// end checks that all actors are those of the headers, or may have changes above the cut.
func (c *actorCheck) end(ctx context.Context, h head) error {
	if c.time > h.time && c.time > 0 {
		return c.log.damaged("the head", fmt.Errorf("its time %d is before that of a change, %d", h.time, c.time))
	}
	lower, upper := spaceBounds(spaceActor)
	it, err := c.iter(ctx, lower, upper)
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		r, ok := cutRevisionKey(spaceActor, it.Key())
		switch {
		case !ok:
			err = errShort
		case r > h.cut && !c.defined[r]:
			err = errors.New("no change defines it")
		case r+c.log.o.reach <= h.cut:
			err = errors.New("no change can refer to it any more")
		default:
			_, err = readActor(&c.hash, r, it.Value())
		}
		if err != nil {
			return c.log.damaged(fmt.Sprintf("the actor of key %x", it.Key()), err)
		}
	}
	if err := it.Error(); err != nil {
		return c.log.damaged("the actors", err)
	}
	return nil
}
