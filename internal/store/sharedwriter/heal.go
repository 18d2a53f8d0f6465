package sharedwriter

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Values that become readable
//
// A value that could not be read may be readable later: for example, a KMS plugin was down when the server started. So
// the writer reads the values of stand-ins again from time to time. The objects replace their stand-ins at the current
// revision, without a change in the log. Readers of the stand-ins have to read again:
//
//   - the history in memory ends; older changes are read from the log
//   - cursors of the collections, and all feeds, get an *ExpiredError

const (
	// healEach is the pause between two attempts to read the values again.
	healEach = 10 * time.Second
	// mostUnhealed is the number of values of a collection that are still unreadable after which an attempt ends.
	mostUnhealed = 16
)

// heal reads the values of stand-ins again, until the store closes.
func (f *writer) heal() {
	s := f.store
	ticker := time.NewTicker(healEach)
	defer ticker.Stop()
	for {
		select {
		case <-s.Done():
			return
		case <-ticker.C:
		}
		if s.HasUnreadable() {
			f.healOnce()
		}
	}
}

func (f *writer) healOnce() {
	s := f.store
	healed := map[*store.Object]*store.Object{} // by their stand-ins
	for collection, standIns := range s.Unread() {
		f.readAgain(collection, standIns, healed)
	}
	if len(healed) == 0 {
		return
	}
	f.publishing.Lock()
	defer f.publishing.Unlock()
	changed := s.Heal(healed, f.time)
	f.raiseFloor()
	if changed > 0 {
		s.Options().Note(false, "storage: objects that could not be read can be read again, and watches of their collections end", "collections", changed)
	}
}

// readAgain adds the objects of a collection that can be read now.
func (f *writer) readAgain(collection string, standIns []*store.Object, healed map[*store.Object]*store.Object) {
	at, failed := f.store.Any().Revision(), 0
	for i, start := 0, rand.IntN(len(standIns)); i < len(standIns) && failed < mostUnhealed; i++ {
		standIn := standIns[(start+i)%len(standIns)]
		o, err := f.readOne(collection, standIn, at)
		if o == nil {
			failed++
			f.note(err)
		} else {
			healed[standIn] = o
		}
	}
}

// readOne returns the object of a stand-in, or nil if it still cannot be read, or has changed.
func (f *writer) readOne(collection string, standIn *store.Object, at store.Revision) (found *store.Object, err error) {
	err = f.store.ReadOld(f.ctx, func(ctx context.Context) error {
		for o, err := range f.log.ObjectsAt(ctx, collection, at, standIn.Key, "") {
			if err == nil && o.Key == standIn.Key && o.Modified == standIn.Modified && o.Unreadable() == "" {
				found = o
			}
			return err
		}
		return nil
	})
	return found, err
}
