package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// fanout is a set of watchers with their own connections.
type fanout struct {
	bed   *bed
	as    eventForm
	conns []*conn
	// end ends the watches; done is closed when all have ended.
	end context.CancelFunc
	wg  sync.WaitGroup

	watchers  []*watcher
	events    atomic.Int64 // of all watchers
	bytes     atomic.Int64
	latencies histogram

	failOnce sync.Once
	failed   chan struct{} // closed when a watcher fails
	failure  error         // set before failed is closed
}

// watcher reads one watch.
type watcher struct {
	fanout *fanout
	number int
	events atomic.Int64
	// revision is the resource version of the last event. The next one must be larger.
	revision uint64
}

// openers is the number of watches that are opened at once.
const openers = 32

// watchers returns n, or the limit of the options if that is smaller.
func (b *bed) watchers(n int) int {
	if b.options.Watchers > 0 {
		return min(n, b.options.Watchers)
	}
	return n
}

// watch opens n watches; where gives the URL of each.
func (b *bed) watch(ctx context.Context, as eventForm, n, perConnection int, where func(i int) *url.URL) (*fanout, error) {
	// The watches outlive ctx. close ends them.
	watching, end := context.WithCancel(context.WithoutCancel(ctx))
	f := &fanout{bed: b, as: as, end: end, failed: make(chan struct{})}
	header := b.target.header(as.accept, "identity")
	for range (n + perConnection - 1) / perConnection {
		c, err := b.target.dial(nil)
		if err != nil {
			f.close()
			return nil, err
		}
		f.conns = append(f.conns, c)
	}
	bodies := make([]io.ReadCloser, n)
	open := func(i int) error {
		c := newClient(f.conns[i%len(f.conns)], i, b.json)
		resp, err := c.send(watching, http.MethodGet, where(i), header, nil)
		if err != nil {
			return fmt.Errorf("watcher %d: %w", i, err)
		}
		bodies[i] = resp.Body
		return nil
	}
	// First open one watch on each connection. Two concurrent requests on a new connection
	// would open a second one.
	first := min(len(f.conns), n)
	err := inParallel(ctx, openers, first, func(_, i int) error { return open(i) })
	if err == nil {
		err = inParallel(ctx, openers, n-first, func(_, i int) error { return open(first + i) })
	}
	for i, body := range bodies {
		if body == nil {
			continue // it was not opened
		}
		w := &watcher{fanout: f, number: i}
		f.watchers = append(f.watchers, w)
		f.wg.Go(func() { w.read(watching, body) })
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// close ends the watches, and waits for them.
func (f *fanout) close() {
	f.end()
	f.wg.Wait()
	for _, c := range f.conns {
		c.close()
	}
}

func (f *fanout) fail(err error) {
	f.failOnce.Do(func() {
		f.failure = err
		close(f.failed)
	})
}

// err returns the failure of the first watcher that failed.
func (f *fanout) err() error {
	select {
	case <-f.failed:
		return f.failure
	default:
		return nil
	}
}

const (
	firstWatchBuffer = 4 << 10
	maxEventBytes    = 4 << 20
)

// read reads events until close ends the watch. The server must not end it.
func (w *watcher) read(ctx context.Context, body io.ReadCloser) {
	defer body.Close()
	buf := make([]byte, firstWatchBuffer)
	have := 0
	for {
		n, err := body.Read(buf[have:])
		w.fanout.bytes.Add(int64(n))
		have += n
		rest := buf[:have]
		for event, after, ok := w.fanout.as.cut(rest); ok; event, after, ok = w.fanout.as.cut(rest) {
			rest = after
			if err := w.event(event); err != nil {
				w.fanout.fail(fmt.Errorf("watcher %d, after %d events: %w", w.number, w.events.Load(), err))
				return
			}
		}
		have = copy(buf, rest)
		if have == len(buf) {
			if have >= maxEventBytes {
				err = errors.New("an event is too large")
			}
			buf = append(buf, make([]byte, len(buf))...)
		}
		if err != nil {
			if ctx.Err() == nil {
				w.fanout.fail(fmt.Errorf("watcher %d ended after %d events: %w", w.number, w.events.Load(), err))
			}
			return
		}
	}
}

// event checks one event, and counts it.
func (w *watcher) event(event []byte) error {
	e, err := w.fanout.as.read(event)
	if err != nil {
		return err
	}
	if e.bookmark {
		if e.revision < w.revision {
			return fmt.Errorf("a bookmark at %d came after an event at %d", e.revision, w.revision)
		}
		return nil
	}
	if e.revision <= w.revision {
		return fmt.Errorf("an event at %d came after one at %d", e.revision, w.revision)
	}
	w.revision = e.revision
	if e.foreign {
		return nil
	}
	if sent, err := strconv.ParseInt(string(e.sent), 10, 64); err == nil {
		w.fanout.latencies.record(time.Duration(w.fanout.bed.sinceEpoch(time.Now()) - sent))
	}
	w.events.Add(1)
	w.fanout.events.Add(1)
	return nil
}

// drainTimeout bounds the wait for the last events.
const drainTimeout = 30 * time.Second

// await waits until each watcher has received exactly this many events.
func (f *fanout) await(ctx context.Context, each int64) error {
	want := each * int64(len(f.watchers))
	deadline := time.After(drainTimeout)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for f.events.Load() < want {
		select {
		case <-tick.C:
		case <-f.failed:
			return f.failure
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("the watchers got %d events of %d within %v after the last write", f.events.Load(), want, drainTimeout)
		}
	}
	for _, w := range f.watchers {
		if got := w.events.Load(); got != each {
			return fmt.Errorf("watcher %d got %d events, want %d", w.number, got, each)
		}
	}
	return nil
}
