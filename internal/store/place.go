package store

import "context"

// # Places in the history
//
// A revision can hold several changes, see Shared. So a place in the history is two numbers: a
// revision up to which all was read, and how many changes of the next revision were read.
//
// Readers return whole revisions. They split one only if it does not fit into an empty buffer,
// and then go on within it. What they report as their revision never counts a part of one.
// The history drops whole revisions, too.

// place is a place in the history.
type place struct {
	position Revision // all up to here was read
	within   int32    // and so many changes of the next revision that has some
}

// reading goes through changes in their order, and finds the place where a full buffer ends.
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
// next is zero. It returns how many of the n changes in the buffer to return, and the place
// after them.
func (r *reading) stop(next Revision, n int) (int, place) {
	switch {
	case next != r.revision:
		return n, place{r.revision, 0}
	case r.before > 0: // the next read begins with this revision
		return r.before, place{r.revision - 1, 0}
	}
	return n, place{r.revision - 1, r.looked}
}

// readLog reads changes of a collection, or of all if the name is empty, from the log, after
// the place and up to a revision. It moves the place. Add adds an entry to the buffer as its
// change n, if the reader selects it. The buffer has some room. Looks bounds the number of
// changes to look at, apart from those within one revision; zero: no bound. More reports that
// there are others.
func (s *Store) readLog(ctx context.Context, collection string, p *place, upTo Revision, room, looks int, add func(n int, e *Entry) bool) (n int, more bool, err error) {
	var r reading
	skip, seen := p.within, 0
	for e, err := range s.archive.Changes(ctx, collection, p.position, upTo) {
		if err != nil {
			n = r.before
			if n > 0 { // the next read begins with this revision, whose rest is not known
				*p = place{r.revision - 1, 0}
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
	*p = place{upTo, 0}
	return n, false, nil
}
