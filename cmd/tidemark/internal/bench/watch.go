package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// Writes for watchers: some writers update some ConfigMaps.
const (
	watchWriters = 4
	watchedMaps  = 16
	// writesAhead is how many writes may be on their way to watchers in a closed loop:
	// few, so that a server neither sends many at once nor takes its watchers for too
	// slow.
	writesAhead = 4
)

// watchRound measures the cost of an event for each of n watchers.
func watchRound(n int) func(ctx context.Context, b *bed) ([]row, error) {
	return watchRoundAs(n, jsonEvents)
}

// watchRoundAs is the same for events in a representation.
func watchRoundAs(n int, as eventForm) func(ctx context.Context, b *bed) ([]row, error) {
	return func(ctx context.Context, b *bed) ([]row, error) {
		g, err := b.configs(ctx, "watched", configMapsOf, watchedMaps)
		if err != nil {
			return nil, err
		}
		return g.watchRound(ctx, n, as)
	}
}

// watchRound is the same for some objects.
func (g configs) watchRound(ctx context.Context, n int, as eventForm) ([]row, error) {
	b := g.bed
	n = b.watchers(n)
	f, err := g.watch(ctx, n, as)
	if err != nil {
		return nil, err
	}
	defer f.close()
	var writes atomic.Int64
	w := g.writers(f, &writes)
	measurements, err := b.measured(func() (Measurements, error) {
		begin := time.Now()
		if _, err := w.run(ctx); err != nil {
			return Measurements{}, err
		}
		err := f.await(ctx, writes.Load())
		return Measurements{
			Ops: f.events.Load(), Seconds: time.Since(begin).Seconds(), Latency: f.latencies.latency(),
			Bytes: f.bytes.Load(), Items: f.events.Load(),
			Extra: map[string]float64{"writes": float64(writes.Load()), "watchers": float64(n)},
		}, err
	})
	loop := loopName(w.rate, len(w.clients))
	if w.rate == 0 {
		loop = fmt.Sprintf("closed, %d writers, %d writes ahead", len(w.clients), writesAhead)
	}
	if err != nil {
		return nil, err
	}
	return []row{{loop: loop, Measurements: measurements}}, nil
}

// room waits until the events of earlier writes have arrived, all but some.
func (f *fanout) room(ctx context.Context, writes *atomic.Int64) error {
	for f.events.Load() < (writes.Load()-writesAhead)*int64(len(f.watchers)) {
		select {
		case <-f.failed:
			return f.failure
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Microsecond):
		}
	}
	return nil
}

// unrelated is how many watchers an update does not concern.
const unrelated = 1000

var unrelatedVariants = []variant{
	{name: "alone", round: func(ctx context.Context, b *bed) ([]row, error) { return unrelatedRound(ctx, b, 0) }},
	{name: "beside", round: func(ctx context.Context, b *bed) ([]row, error) {
		return unrelatedRound(ctx, b, b.watchers(unrelated))
	}},
}

// unrelatedRound updates one object while watchers watch others: half of them other
// names in its namespace, half another namespace.
func unrelatedRound(ctx context.Context, b *bed, n int) ([]row, error) {
	ns, err := b.configMaps(ctx, "watched", watchedMaps)
	if err != nil {
		return nil, err
	}
	other, err := b.configMaps(ctx, "other", 1)
	if err != nil {
		return nil, err
	}
	rv, err := b.revision(ctx, ns, configMapsOf)
	if err != nil {
		return nil, err
	}
	f, err := b.watch(ctx, jsonEvents, n, b.options.WatchesPerConnection, func(i int) *url.URL {
		query := fmt.Sprintf("watch=1&resourceVersion=%d", rv)
		if i%2 == 0 {
			return b.collection(other, configMapsOf, query)
		}
		return b.collection(ns, configMapsOf, query+"&fieldSelector=metadata.name%3D"+configMapName(i))
	})
	if err != nil {
		return nil, err
	}
	defer f.close()
	g := configs{bed: b, ns: ns, resource: configMapsOf}
	w := b.fixedCrew(1, func(ctx context.Context, c *client, o op) error {
		return g.update(ctx, c, 0, o.intended)
	}).closed()
	rows, err := w.rows(w.measure(ctx))
	if err != nil {
		return nil, err
	}
	rows[0].Extra = map[string]float64{"watchers": float64(n)}
	if err := f.err(); err != nil {
		return nil, err
	}
	if got := f.events.Load(); got != 0 {
		return nil, fmt.Errorf("watchers of other objects got %d events", got)
	}
	return rows, nil
}

var idleVariants = []variant{
	{name: "1-stream", round: func(ctx context.Context, b *bed) ([]row, error) { return idleRound(ctx, b, 500, 1) }},
	{name: "10-streams", round: func(ctx context.Context, b *bed) ([]row, error) { return idleRound(ctx, b, 2000, 10) }},
	{name: "100-streams", round: func(ctx context.Context, b *bed) ([]row, error) { return idleRound(ctx, b, 5000, 100) }},
}

// idleSettle is how long memory may take to settle when watches have been opened.
const idleSettle = time.Second

// idleRound measures the memory of watches that nothing happens to.
func idleRound(ctx context.Context, b *bed, n, perConnection int) ([]row, error) {
	n = b.watchers(n)
	ns, err := b.configMaps(ctx, "watched", watchedMaps)
	if err != nil {
		return nil, err
	}
	if b.idle == nil {
		// Memory that one round leaves free serves the next, so that all are compared with the
		// memory before any.
		if b.idle, err = readMemory(b.server.PIDs); err != nil {
			return nil, err
		}
	}
	rv, err := b.revision(ctx, ns, configMapsOf)
	if err != nil {
		return nil, err
	}
	u := b.collection(ns, configMapsOf, fmt.Sprintf("watch=1&resourceVersion=%d", rv))
	var f *fanout
	measurements, err := b.measured(func() (measurements Measurements, err error) {
		begin := time.Now()
		f, err = b.watch(ctx, jsonEvents, n, perConnection, func(int) *url.URL { return u })
		sleepUntil(ctx, time.Now().Add(min(idleSettle, b.options.Duration)))
		return Measurements{Ops: int64(n), Seconds: time.Since(begin).Seconds()}, err
	})
	if err != nil {
		return nil, err
	}
	defer f.close()
	if err := f.err(); err != nil {
		return nil, err
	}
	measurements.Extra = map[string]float64{"watchers": float64(n), "connections": float64(len(f.conns))}
	if m := measurements.Memory; m != nil {
		measurements.Extra["kibPerWatchRSS"] = float64(m.RSS-b.idle.RSS) / 1024 / float64(n)
		measurements.Extra["kibPerWatchAnon"] = float64(m.Anon-b.idle.Anon) / 1024 / float64(n)
	}
	return []row{{loop: fmt.Sprintf("none, %d watches", n), Measurements: measurements}}, nil
}

var initialEventsEnd = []byte(`"k8s.io/initial-events-end":"true"`)

// streamRound reads streaming lists up to the bookmark that ends them.
func streamRound(ctx context.Context, b *bed) ([]row, error) {
	l, err := b.lister(ctx, "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	if err != nil {
		return nil, err
	}
	w := b.crew(1, func(ctx context.Context, c *client, _ op) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		resp, err := c.send(ctx, http.MethodGet, l.url, l.header, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		s, err := c.scan(&untilMark{Reader: resp.Body, mark: initialEventsEnd})
		if err == nil && s.marks != l.want {
			err = fmt.Errorf("%d initial events, want %d", s.marks, l.want)
		}
		if err != nil {
			return fmt.Errorf("GET %s: %w", l.url.RequestURI(), err)
		}
		return nil
	}).closed()
	rows, err := w.rows(w.measure(ctx))
	if hasCode(err, http.StatusForbidden) || hasCode(err, http.StatusUnprocessableEntity) {
		return nil, &skipError{"streaming lists: " + err.Error()}
	}
	return rows, err
}

// untilMark ends a stream behind a mark that is part of its last line.
type untilMark struct {
	io.Reader
	mark []byte
	last []byte // a possible beginning of the mark
	seen bool
}

// Read implements io.Reader.
func (u *untilMark) Read(p []byte) (int, error) {
	if u.seen {
		return 0, io.EOF
	}
	n, err := u.Reader.Read(p)
	u.last = append(u.last, p[:min(n, len(u.mark))]...) // the mark can lie across
	u.seen = bytes.Contains(u.last, u.mark) || bytes.Contains(p[:n], u.mark)
	if n > len(u.mark) {
		u.last = append(u.last[:0], p[n-len(u.mark):n]...)
	}
	u.last = append(u.last[:0], u.last[max(0, len(u.last)-len(u.mark)):]...)
	if err == io.EOF && !u.seen {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
