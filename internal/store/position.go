package store

import (
	"context"
	"errors"
)

// # Positions in the history
//
// A revision can hold several changes, see Shared. So a position in the history is two numbers: a
// revision up to which all was read, and how many changes of the next revision were read.
//
// Readers return whole revisions. They split one only if it does not fit into an empty buffer,
// and then go on within it. The revision that they report never counts a part of one.
// The history drops whole revisions, too.

// position is a position in the history.
type position struct {
	revision Revision // all up to here was read
	within   int32    // and so many changes of the next revision that has some
}

// reading goes through changes in their order, and finds the position where a full buffer ends.
type reading struct {
	revision Revision // of the change looked at last
	looked   int32    // how many changes of that revision were looked at
	before   int      // how many changes in the buffer are of earlier revisions
}

// look counts a change, before it is added to the n changes in the buffer.
func (r *reading) look(at Revision, n int) {
	if at != r.revision {
		r.revision, r.looked, r.before = at, 0, n
	}
	r.looked++
}

// stop ends the reading before a change of the revision next, or at the end of the changes if
// next is zero. It returns how many of the n changes in the buffer to return, and the position
// after them.
func (r *reading) stop(next Revision, n int) (int, position) {
	switch {
	case next != r.revision:
		return n, position{r.revision, 0}
	case r.before > 0: // the next read begins with this revision
		return r.before, position{r.revision - 1, 0}
	}
	return n, position{r.revision - 1, r.looked}
}

// readLog reads changes of a collection, or of all if the name is empty, from the log, after
// the position and up to a revision. It moves the position. Add adds an entry to the buffer as its
// change n, if the reader selects it. The buffer has some room. Looks bounds the number of
// changes to look at, apart from those within one revision; zero: no bound. More reports that
// there are others.
func (s *Store) readLog(ctx context.Context, collection string, p *position, upTo Revision, room, looks int, add func(n int, e *Entry) bool) (n int, more bool, err error) {
	var r reading
	skip, seen := p.within, 0
	for e, err := range s.archive.Changes(ctx, collection, p.revision, upTo) {
		if err != nil {
			n = r.before
			if n > 0 { // the next read begins with this revision, whose rest is not known
				*p = position{r.revision - 1, 0}
			}
			return n, false, s.readError(err)
		}
		if n == room || looks > 0 && seen >= looks {
			n, *p = r.stop(e.Revision, n)
			return n, true, nil
		}
		if r.look(e.Revision, n); skip > 0 {
			skip--
			continue
		}
		seen++
		if add(n, &e) {
			n++
		}
	}
	*p = position{upTo, 0}
	return n, false, nil
}

// readError returns ErrClosed if the store has ended.
func (s *Store) readError(err error) error {
	if s.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return ErrClosed
	}
	return err
}
