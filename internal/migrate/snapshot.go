package migrate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/internal/etcdsnapshot"
	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Snapshot is a migration of a log to a snapshot file of etcd.
type Snapshot struct {
	// Log is the source. Nothing is written to it meanwhile.
	Log store.Log
	// Codec has the keys and values of etcd.
	Codec *etcdvalue.Codec
	// NoHistory copies the current objects alone.
	NoHistory bool
	// TTL returns how long objects of a collection stay; zero: for ever.
	TTL func(collection string) time.Duration
	// Progress is called with what is done, often; nil: nothing is.
	Progress func(step string, done, all int)

	report *Report
}

// requestBytes is the default of etcd's --max-request-bytes.
const requestBytes = 3 << 19

// Survey reads the source, and counts the versions to copy.
func (s *Snapshot) Survey(ctx context.Context) (*Report, error) {
	r := new(Report)
	var mu sync.Mutex
	bounds, err := s.Log.Replay(ctx, func(collection string, o *store.Object) error {
		mu.Lock()
		defer mu.Unlock()
		c := r.of(collection)
		c.Objects++
		c.Bytes += int64(o.Len())
		return nil
	})
	if err != nil {
		return nil, err
	}
	if s.NoHistory {
		bounds.Floor = bounds.Head
	}
	r.Head, r.Floor = uint64(bounds.Head), uint64(bounds.Floor)
	for _, c := range r.Collections {
		c.Versions = c.Objects
	}
	for e, err := range s.Log.Changes(ctx, "", bounds.Floor, bounds.Head) {
		if err != nil {
			return nil, err
		}
		s.step("reading the history", int(e.Revision-bounds.Floor), int(bounds.Head-bounds.Floor))
		c := r.of(e.Collection)
		if e.Object == nil {
			c.Deletions++
		}
		if e.Before != nil { // it is no current object, and is copied
			c.Versions++
			c.Bytes += int64(e.Before.Len())
		}
	}
	s.report = r
	return r, nil
}

func (s *Snapshot) step(what string, done, all int) {
	if s.Progress != nil {
		s.Progress(what, done, all)
	}
}

// versions yields all versions that are copied: those that are visible at the floor, then the changes. It begins
// after Survey.
func (s *Snapshot) versions(ctx context.Context, what string) iter.Seq2[store.Entry, error] {
	r := s.report
	t := r.Total()
	all, done := t.Versions+t.Deletions, 0
	floor, head := store.Revision(r.Floor), store.Revision(r.Head)
	return func(yield func(store.Entry, error) bool) {
		next := func(e store.Entry, err error) bool {
			if err == nil {
				err = ctx.Err()
			}
			done++
			s.step(what, done, all)
			return yield(e, err) && err == nil
		}
		for _, collection := range slices.Sorted(maps.Keys(r.Collections)) {
			for o, err := range s.Log.ObjectsAt(ctx, collection, floor, "", "") {
				e := store.Entry{Collection: collection, Object: o}
				if err == nil {
					e.Key, e.Revision = o.Key, o.Modified
				}
				if !next(e, err) {
					return
				}
			}
		}
		for e, err := range s.Log.Changes(ctx, "", floor, head) {
			if !next(e, err) {
				return
			}
		}
	}
}

// Convert encodes all versions and decodes them again, without writing anything. The report has the problems.
func (s *Snapshot) Convert(ctx context.Context) error {
	for e, err := range s.versions(ctx, "converting") {
		if err != nil {
			return err
		}
		if e.Object == nil {
			continue
		}
		value, err := s.encode(&e)
		if err != nil {
			s.report.problem("%s", err)
			continue
		}
		if err := s.same(ctx, &e, value); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s.report.problem("%s", err)
		}
	}
	return nil
}

// Write writes the file, and verifies it. With accept, versions that differ in etcd's form are no error. The
// report has the rest. The file exists if the error is nil.
func (s *Snapshot) Write(ctx context.Context, path string, accept bool) (size int64, err error) {
	return s.write(ctx, path, accept, nil)
}

// WriteLive is Write for a source that is a copy of a log in use. When the file has all versions of
// the copy and was verified, it calls stopped, which returns the log itself once it has no more
// writes. WriteLive adds the later changes to the file, and verifies that the file has every object
// of the log, by its key and revision. The content of the copied versions was verified before. The
// caller closes the log.
func (s *Snapshot) WriteLive(ctx context.Context, path string, accept bool, stopped func() (store.Log, error)) (size int64, err error) {
	return s.write(ctx, path, accept, stopped)
}

func (s *Snapshot) write(ctx context.Context, path string, accept bool, stopped func() (store.Log, error)) (size int64, err error) {
	w, err := etcdsnapshot.Create(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := s.copy(w, s.versions(ctx, "writing")); err != nil {
		return 0, err
	}
	if err := s.report.Err(); err != nil {
		return 0, err
	}
	var r *etcdsnapshot.Reader
	if stopped == nil {
		r, err = w.Finish(int64(s.report.Floor))
	} else {
		r, err = w.Sort(int64(s.report.Floor))
	}
	if err != nil {
		return 0, err
	}
	if err := s.closeVerified(r, s.verify(ctx, r), accept); err != nil {
		return 0, err
	}
	if stopped != nil {
		log, err := stopped()
		if err != nil {
			return 0, err
		}
		copied := store.Revision(s.report.Head)
		if err := s.addLater(ctx, w, log, copied); err != nil {
			return 0, err
		}
		if r, err = w.Finish(0); err != nil {
			return 0, err
		}
		if err := s.closeVerified(r, s.verifyLater(ctx, r, log, copied), accept); err != nil {
			return 0, err
		}
	}
	return r.Size(), w.Commit()
}

// closeVerified closes a reader. It returns an error if the verification failed or found problems that are not
// accepted.
func (s *Snapshot) closeVerified(r *etcdsnapshot.Reader, failed error, accept bool) error {
	if err := errors.Join(failed, r.Close()); err != nil {
		return err
	}
	if accept {
		return nil
	}
	return s.report.Err()
}

// copy puts versions into the file.
func (s *Snapshot) copy(w *etcdsnapshot.Writer, versions iter.Seq2[store.Entry, error]) error {
	for e, err := range versions {
		if err != nil {
			return err
		}
		v := etcdsnapshot.Version{Key: []byte(s.Codec.Keys.Of(e.Collection, e.Key)), Revision: int64(e.Revision)}
		if e.Object != nil {
			value, err := s.encode(&e)
			if err != nil {
				s.report.problem("%s", err)
				continue
			}
			v.Value, v.Created = value, int64(e.Object.Created)
			if ttl := s.TTL(e.Collection); ttl != 0 {
				v.Lease = w.Lease(ttl)
			}
		}
		var before int64
		if e.Before != nil {
			before = int64(e.Before.Modified)
		}
		if err := w.Put(v, before); err != nil {
			return err
		}
	}
	return nil
}

// encode returns the value of a version in etcd.
func (s *Snapshot) encode(e *store.Entry) ([]byte, error) {
	at := s.Codec.Keys.Of(e.Collection, e.Key)
	if p := s.Codec.Keys.Find(at); p.Class != etcdvalue.Object || p.Collection != e.Collection || p.Key != e.Key {
		return nil, fmt.Errorf("%s has no key in etcd: %q would be that of another object", name(e), at)
	}
	value, err := s.Codec.Encrypt(e.Collection, e.Key, e.Object.Unversioned(), int(e.Object.RevisionAt))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name(e), err)
	}
	return value, nil
}

// name names a version.
func name(e *store.Entry) string { return fmt.Sprintf("%s %s at %d", e.Collection, e.Key, e.Revision) }

// same returns an error if a value of etcd is not the object of an entry.
func (s *Snapshot) same(ctx context.Context, e *store.Entry, value []byte) error {
	d, err := s.Codec.Open(ctx, e.Collection, e.Key, value)
	if err != nil {
		return fmt.Errorf("%s: %w", name(e), err)
	}
	return sameObject(e.Collection, e.Object, d.Object(e.Key, e.Object.Created, e.Object.Modified))
}

// verify compares the file with the source.
func (s *Snapshot) verify(ctx context.Context, r *etcdsnapshot.Reader) error {
	head, floor, err := r.Bounds()
	if err != nil {
		return err
	}
	if uint64(head) != s.report.Head || uint64(floor) != s.report.Floor {
		return fmt.Errorf("the snapshot has the revisions %d to %d, and should have %d to %d", floor, head, s.report.Floor, s.report.Head)
	}
	versions := 0
	current := map[string]int{} // objects by collection
	for e, err := range s.versions(ctx, "verifying") {
		if err != nil {
			return err
		}
		versions++
		if err := s.verifyOne(ctx, r, &e); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s.report.problem("%s", err)
			continue
		}
		s.report.of(e.Collection).Verified++
		if e.Before == nil && e.Object != nil {
			current[e.Collection]++
		} else if e.Object == nil {
			current[e.Collection]--
		}
	}
	if n := r.Count(); n != versions {
		return fmt.Errorf("the snapshot has %d versions, and should have %d", n, versions)
	}
	for collection, c := range s.report.Collections {
		if s.report.ProblemCount == 0 && c.Objects != current[collection] {
			return fmt.Errorf("the versions of %s make %d objects, and there are %d", collection, current[collection], c.Objects)
		}
	}
	return nil
}

// verifyOne compares one version with the file.
func (s *Snapshot) verifyOne(ctx context.Context, r *etcdsnapshot.Reader, e *store.Entry) error {
	v, found, err := r.At(int64(e.Revision), s.Codec.Keys.Of(e.Collection, e.Key))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", name(e), err)
	case !found || (v.Value == nil) != (e.Object == nil):
		return fmt.Errorf("%s: the snapshot has another change at this revision, or none", name(e))
	case e.Object == nil:
		return nil
	case v.Created != int64(e.Object.Created):
		return fmt.Errorf("%s was created at %d, in the snapshot at %d", name(e), e.Object.Created, v.Created)
	}
	if e.Revision == e.Object.Modified && len(v.Value) > requestBytes {
		s.report.Large++
	}
	return s.same(ctx, e, v.Value)
}
