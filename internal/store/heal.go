package store

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// # Values that become readable
//
// A value that could not be read may be readable later: a KMS plugin was down when the server started, and is up
// again. So the follower reads the values of stand-ins again from time to time. The objects take the places of their
// stand-ins at the revision at hand, which is no change of the log. What had read the stand-ins has to read again:
//
//   - the history in memory ends; what is older is read from the log
//   - cursors of the collections get an *ExpiredError

const (
	healEach = 10 * time.Second
	// mostUnhealed is how many values of a collection may still be unreadable before the others wait for the
	// next time.
	mostUnhealed = 16
)

// heal reads the values of stand-ins again, until the store closes.
func (f *follower) heal() {
	s := f.store
	ticker := time.NewTicker(healEach)
	defer ticker.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-ticker.C:
		}
		if !s.unreadable.Load() {
			continue
		}
		healed := map[string]map[*Object]*Object{}
		for name := range *s.names.Load() {
			if objects := f.readAgain(name); len(objects) > 0 {
				healed[name] = objects
			}
		}
		f.replaceStandIns(healed)
	}
}

// readAgain returns the objects of a collection that can be read now, by their stand-ins.
func (f *follower) readAgain(collection string) map[*Object]*Object {
	state, healed, failed := f.store.Any(), map[*Object]*Object{}, 0
	all := standIns(state.Snapshot(collection))
	for i, start := 0, rand.IntN(max(len(all), 1)); i < len(all) && failed < mostUnhealed; i++ {
		standIn := all[(start+i)%len(all)]
		if o := f.readOne(collection, standIn, state.revision); o != nil {
			healed[standIn] = o
		} else {
			failed++
		}
	}
	return healed
}

func standIns(s Snapshot) (all []*Object) {
	for o := range s.Scan("", "") {
		if o.Unreadable() != "" {
			all = append(all, o)
		}
	}
	return all
}

// readOne returns the object of a stand-in, or nil if it still cannot be read.
func (f *follower) readOne(collection string, standIn *Object, at Revision) (found *Object) {
	f.store.batch(f.ctx, true, func(ctx context.Context) error {
		for o, err := range f.log.ObjectsAt(ctx, collection, at, standIn.Key, "") {
			if err == nil && o.Key == standIn.Key && o.Modified == standIn.Modified && o.Unreadable() == "" {
				found = o
			}
			break
		}
		return nil
	})
	return found
}

// replaceStandIns publishes the objects in the places of their stand-ins, where those are still there.
func (f *follower) replaceStandIns(healed map[string]map[*Object]*Object) {
	s := f.store
	f.publishing.Lock()
	defer f.publishing.Unlock()
	at := s.Any().revision
	s.mu.Lock()
	for name, objects := range healed {
		c := s.collectionLocked(name)
		for standIn, o := range objects {
			if c.tip.get(standIn.Key) == standIn {
				s.apply(&proposed{collection: c, key: o.Key, object: o, change: &Change{Before: standIn, After: o}})
			}
		}
	}
	if changed := slices.Clone(s.touched); len(changed) > 0 {
		f.renew(at, 0, changed)
		s.o.Note(false, "storage: objects that could not be read can be read again, and watches of their collections end", "collections", len(changed))
	} else {
		s.mu.Unlock()
	}
	for name := range *s.names.Load() {
		if len(standIns(s.Any().Snapshot(name))) > 0 {
			return
		}
	}
	s.unreadable.Store(false)
}
