package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// deletedConfigMaps is how many ConfigMaps are deleted at once, unless there may
// not be so many operations.
const deletedConfigMaps = 10_000

var deleteCollectionVariants = []variant{
	{name: "pods", round: func(ctx context.Context, b *bed) ([]row, error) {
		return b.deleteCollection(ctx, podsOf, b.options.Objects, b.fill)
	}},
	{name: "configmaps", round: func(ctx context.Context, b *bed) ([]row, error) {
		return b.deleteCollection(ctx, configMapsOf, b.deletedConfigMaps(), b.fillConfigMaps)
	}},
}

func (b *bed) deletedConfigMaps() int { return int(min(deletedConfigMaps, b.options.MaxOps)) }

// deleteCollection makes a collection, and measures how it goes away.
func (b *bed) deleteCollection(ctx context.Context, resource string, n int, fill func(ctx context.Context, ns string, n int) error) ([]row, error) {
	ns, err := b.namespace(ctx, "deleted")
	if err != nil {
		return nil, err
	}
	u := b.collection(ns, resource, "gracePeriodSeconds=0")
	if _, err := b.admin.small(ctx, http.MethodDelete, u, nil); err != nil { // of nothing yet
		if notServed(err) {
			return nil, &skipError{err.Error()}
		}
		return nil, err
	}
	if err := fill(ctx, ns, n); err != nil {
		return nil, err
	}
	f, err := b.timed(n, func() error {
		resp, err := b.admin.send(ctx, http.MethodDelete, u, b.json, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		s, err := b.admin.scan(resp.Body)
		if err == nil && s.marks != int64(n) {
			err = fmt.Errorf("DELETE %s: the response has %d objects, want %d", u.RequestURI(), s.marks, n)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	left, err := b.marked(ctx, ns, resource)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d %s or more are left in the collection that was deleted", left, resource)
	}
	return []row{{loop: "one at a time", Measurements: f}}, err
}

// marked is the number of this run's objects among the first ones of a collection: others, as
// kube-root-ca.crt, are created again when they are deleted.
func (b *bed) marked(ctx context.Context, ns, resource string) (int64, error) {
	resp, err := b.admin.send(ctx, http.MethodGet, b.collection(ns, resource, "limit=500"), b.json, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	s, err := b.admin.scan(resp.Body)
	return s.marks, err
}

// timed measures one piece of work on n objects, and counts n operations. The latency
// is the time for all of them.
func (b *bed) timed(n int, work func() error) (Measurements, error) {
	return b.measured(func() (Measurements, error) {
		var h histogram
		begin := time.Now()
		err := work()
		h.record(time.Since(begin))
		return Measurements{Ops: int64(n), Seconds: time.Since(begin).Seconds(), Latency: h.latency()}, err
	})
}

const (
	// emptyVanishes is how long an empty namespace may take to go away. After that the
	// scenario is skipped. Short rounds wait less.
	emptyVanishes = 10 * time.Second
	// fullVanishes is the same for one with objects.
	fullVanishes = 5 * time.Minute
)

// deleteNamespaceRound measures the deletion of a namespace with all its content. That
// is the work of a controller, in the server or apart from it. If even an empty
// namespace stays, there is no such controller.
func deleteNamespaceRound(ctx context.Context, b *bed) ([]row, error) {
	if !b.vanishes {
		limit := min(emptyVanishes, 100*b.options.Duration)
		switch err := b.vanish(ctx, 0, limit, func(remove func() error) error { return remove() }); {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return nil, &skipError{fmt.Sprintf("the server does not delete namespaces: an empty one was still there %v after its deletion", limit)}
		case err != nil:
			return nil, err
		}
		b.vanishes = true
	}
	n := b.deletedConfigMaps()
	var f Measurements
	err := b.vanish(ctx, n, fullVanishes, func(remove func() error) (err error) {
		f, err = b.timed(n, remove)
		return err
	})
	return []row{{loop: "one at a time", Measurements: f}}, err
}

// vanish makes a namespace with n ConfigMaps, and calls work with a function that
// deletes it and waits until it is gone.
func (b *bed) vanish(ctx context.Context, n int, limit time.Duration, work func(remove func() error) error) error {
	ns, err := b.namespace(ctx, fmt.Sprintf("gone-%d", b.serial.Add(1)))
	if err != nil {
		return err
	}
	if err := b.fillConfigMaps(ctx, ns, n); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	watch, err := b.admin.send(ctx, http.MethodGet, b.target.url("/api/v1/namespaces", "watch=1&fieldSelector=metadata.name%3D"+ns), b.json, nil)
	if err != nil {
		return err
	}
	defer watch.Body.Close()
	events := bufio.NewReader(watch.Body)
	if err := awaitEvent(ctx, events, "ADDED"); err != nil { // the watch sends it at once
		return err
	}
	err = work(func() error {
		if _, err := b.admin.small(ctx, http.MethodDelete, b.target.url("/api/v1/namespaces/"+ns, ""), nil); err != nil {
			return err
		}
		return awaitEvent(ctx, events, "DELETED")
	})
	if err != nil {
		return err
	}
	b.made = slices.DeleteFunc(b.made, func(made string) bool { return made == ns })
	left, err := b.marked(ctx, ns, configMapsOf)
	if err != nil && !notServed(err) {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%d ConfigMaps or more are left of the namespace that was deleted", left)
	}
	_, err = b.admin.small(ctx, http.MethodGet, b.target.url("/api/v1/namespaces/"+ns, ""), nil)
	if hasCode(err, http.StatusNotFound) {
		return nil
	}
	return errors.Join(fmt.Errorf("the namespace %s can be read after its deletion", ns), err)
}

// awaitEvent reads events of a watch up to one of a type.
func awaitEvent(ctx context.Context, events *bufio.Reader, kind string) error {
	for {
		line, err := events.ReadBytes('\n')
		if err != nil {
			return errors.Join(ctx.Err(), fmt.Errorf("the watch of a namespace ended before %s: %w", kind, err))
		}
		got, ok := textAfter(line[:min(len(line), 64)], typeKey)
		if !ok || string(got) == errorType {
			return fmt.Errorf("unexpected: %.300s", line)
		}
		if string(got) == kind {
			return nil
		}
	}
}
