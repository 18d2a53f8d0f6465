package migrate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/tidemark-dev/tidemark/etcdstore"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Directory is a migration of the objects of etcd to a log.
type Directory struct {
	// Export is the source.
	Export *etcdstore.Export
	// Progress is called with what is done, often; nil: nothing is.
	Progress func(step string, done, all int)

	at store.Revision
}

// Begin chooses the revision that is copied: the newest one.
func (d *Directory) Begin(ctx context.Context) (at store.Revision, err error) {
	d.at, err = d.Export.Head(ctx)
	return d.at, err
}

// Objects yields the objects at the revision with their collections. It counts them in the report, which has the
// problems, too. Err returns why the sequence ended early, or that there are problems.
func (d *Directory) Objects(ctx context.Context) (objects iter.Seq2[string, *store.Object], report *Report, failed func() error) {
	r := &Report{Head: uint64(d.at), Floor: uint64(d.at)}
	var early error
	objects = func(yield func(string, *store.Object) bool) {
		done := 0
		for i, err := range d.Export.Items(ctx, d.at) {
			if err != nil {
				early = err
				return
			}
			done++
			d.step("reading etcd", done, 0)
			switch {
			case i.Other != "":
				r.other(i.Other)
				continue
			case i.Err != nil:
				r.problem("%s", i.Err)
				continue
			}
			c := r.of(i.Collection)
			c.Objects++
			c.Versions++
			c.Bytes += int64(i.Object.Len())
			if !yield(i.Collection, i.Object) {
				return
			}
		}
	}
	return objects, r, func() error { return errors.Join(early, r.Err()) }
}

func (d *Directory) step(what string, done, all int) {
	if d.Progress != nil {
		d.Progress(what, done, all)
	}
}

// Verify reads the objects of etcd at the revision, again, and compares them with those of a log. The report has
// the problems. The objects of etcd may change meanwhile, but for the end of events.
func (d *Directory) Verify(ctx context.Context, log store.Log) (*Report, error) {
	r := &Report{Head: uint64(d.at), Floor: uint64(d.at)}
	var mu sync.Mutex
	had := map[string]int{}
	all, done := 0, 0
	bounds, err := log.Replay(ctx, func(collection string, _ *store.Object) error {
		mu.Lock()
		defer mu.Unlock()
		had[collection]++
		all++
		return nil
	})
	if err != nil {
		return r, err
	}
	// Keys that are not of objects may have changed, such as the mark that the objects were moved.
	if bounds.Head != d.at && (bounds.Head > d.at || d.Export.Unchanged(ctx, bounds.Head, d.at) != nil) {
		r.problem("the newest resource version is %d in the directory, and %d in etcd", bounds.Head, d.at)
	}
	for i, err := range d.Export.Items(ctx, d.at) {
		if err != nil {
			return r, err
		}
		d.verifyOne(r, log, &i)
		if i.Object != nil {
			done++
			d.step("verifying", done, all)
		}
	}
	for collection, n := range had {
		if c := r.of(collection); c.Objects != n {
			r.problem("%s: the directory has %d, and etcd %d", collection, n, c.Objects)
		}
	}
	return r, r.Err()
}

// verifyOne compares one object of etcd with that of the log.
func (d *Directory) verifyOne(r *Report, log store.Log, i *etcdstore.Item) {
	switch {
	case i.Other != "":
		r.other(i.Other)
		return
	case i.Err != nil:
		r.problem("%s", i.Err)
		return
	}
	c := r.of(i.Collection)
	c.Objects++
	c.Versions++
	c.Bytes += int64(i.Object.Len())
	got, err := log.Current(i.Collection, i.Object.Key)
	if err == nil && got == nil {
		err = fmt.Errorf("%s %s is not in the directory", i.Collection, i.Object.Key)
	}
	if err == nil {
		err = sameObject(i.Collection, i.Object, got)
	}
	if err != nil {
		r.problem("%s", err)
		return
	}
	c.Verified++
}

// Unchanged returns an error if an object of etcd has changed since the revision of Begin. Objects that end by
// themselves may have ended.
func (d *Directory) Unchanged(ctx context.Context) error {
	head, err := d.Export.Head(ctx)
	if err != nil || head == d.at {
		return err
	}
	return d.Export.Unchanged(ctx, d.at, head)
}
