package migrate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/etcdsnapshot"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// later yields the changes of a log after a revision, up to its end.
func (s *Snapshot) later(ctx context.Context, log store.Log, after, head store.Revision, what string) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		done := 0
		for e, err := range log.Changes(ctx, "", after, head) {
			done++
			s.step(what, done, 0)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// addLater adds the changes of a log after the revision up to which the file has a copy of it.
func (s *Snapshot) addLater(ctx context.Context, w *etcdsnapshot.Writer, log store.Log, after store.Revision) error {
	var mu sync.Mutex
	var differs error // the first one
	bounds, err := log.Replay(ctx, func(collection string, o *store.Object) error {
		if o.Modified > after {
			return nil
		}
		err := s.isCopied(collection, o)
		mu.Lock()
		defer mu.Unlock()
		differs = cmp.Or(differs, err)
		return nil
	})
	if err != nil {
		return err
	}
	switch {
	case bounds.Head < after:
		return fmt.Errorf("the newest resource version is %d, and that of the copy is %d: the copy is not one of this directory", bounds.Head, after)
	case bounds.Floor > after:
		return fmt.Errorf("the history of the directory begins at %d, after the end of the copy at %d: start the migration again, and stop the server sooner", bounds.Floor, after)
	case differs != nil:
		return differs
	}
	if err := s.sameHistory(ctx, log, bounds.Floor, after); err != nil {
		return err
	}
	s.report.Head = uint64(bounds.Head)
	count := func(yield func(store.Entry, error) bool) {
		for e, err := range s.later(ctx, log, after, bounds.Head, "adding the last changes") {
			if err == nil {
				s.report.of(e.Collection).add(&e)
			}
			if !yield(e, err) {
				return
			}
		}
	}
	if err := s.copy(w, count); err != nil {
		return err
	}
	return s.report.Err()
}

// errOtherCopy: the copy is not an earlier state of the directory.
var errOtherCopy = errors.New("the copy is not one of this directory: --kubeconfig has to name the server of the directory")

// isCopied returns an error unless the copy has an object of the directory.
func (s *Snapshot) isCopied(collection string, o *store.Object) error {
	had, err := s.Log.Current(collection, o.Key)
	if err == nil && (had == nil || !sameVersion(o, had)) {
		err = fmt.Errorf("%s %s at %d is not in the copy: %w", collection, o.Key, o.Modified, errOtherCopy)
	}
	return err
}

// sameHistory returns an error unless the copy and the log have the same changes up to a revision, as far back as both have
// history.
func (s *Snapshot) sameHistory(ctx context.Context, log store.Log, floor, upTo store.Revision) error {
	floor = max(floor, s.Log.Floor())
	next, stop := iter.Pull2(s.Log.Changes(ctx, "", floor, upTo))
	defer stop()
	for e, err := range log.Changes(ctx, "", floor, upTo) {
		had, hadErr, ok := next()
		if err = errors.Join(err, hadErr); err != nil {
			return err
		}
		if !ok || had.Collection != e.Collection || had.Key != e.Key || had.Revision != e.Revision || !sameVersion(e.Object, had.Object) {
			return fmt.Errorf("the change of %s %s at %d is not in the copy: %w", e.Collection, e.Key, e.Revision, errOtherCopy)
		}
	}
	switch e, err, more := next(); {
	case err != nil:
		return err
	case more:
		return fmt.Errorf("the copy has a change of %s %s at %d, which the directory does not have: %w", e.Collection, e.Key, e.Revision, errOtherCopy)
	}
	return nil
}

// sameVersion reports whether two versions, which may be nil, are the same.
func sameVersion(a, b *store.Object) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Modified == b.Modified && a.Created == b.Created && bytes.Equal(a.Bytes(), b.Bytes())
}

// add counts a change.
func (c *Count) add(e *store.Entry) {
	switch {
	case e.Object == nil:
		c.Deletions++
		c.Objects--
		return
	case e.Before == nil:
		c.Objects++
	}
	c.Versions++
	c.Bytes += int64(e.Object.Len())
}

// verifyLater compares the file with the log: the changes after a revision with their content, and all objects by their
// keys and revisions.
func (s *Snapshot) verifyLater(ctx context.Context, r *etcdsnapshot.Reader, log store.Log, after store.Revision) error {
	switch head, _, err := r.Bounds(); {
	case err != nil:
		return err
	case uint64(head) != s.report.Head:
		return fmt.Errorf("the newest revision of the snapshot is %d, and should be %d", head, s.report.Head)
	}
	for e, err := range s.later(ctx, log, after, store.Revision(s.report.Head), "verifying the last changes") {
		if err != nil {
			return err
		}
		if err := s.verifyOne(ctx, r, &e); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s.report.problem("%s", err)
			continue
		}
		s.report.of(e.Collection).Verified++
	}
	total := s.report.Total()
	if n, want := r.Count(), total.Versions+total.Deletions; n != want {
		return fmt.Errorf("the snapshot has %d versions, and should have %d", n, want)
	}
	var mu sync.Mutex // also of r
	objects := 0
	_, err := log.Replay(ctx, func(collection string, o *store.Object) error {
		mu.Lock()
		defer mu.Unlock()
		objects++
		v, found, err := r.At(int64(o.Modified), s.Codec.Keys.Of(collection, o.Key))
		if err == nil && (!found || v.Value == nil) {
			err = fmt.Errorf("the snapshot lacks %s %s at %d: the copy is not one of this directory", collection, o.Key, o.Modified)
		}
		return err
	})
	if err == nil && objects != total.Objects {
		err = fmt.Errorf("the versions in the snapshot make %d objects, and there are %d", total.Objects, objects)
	}
	return err
}
