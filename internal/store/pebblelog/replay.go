package pebblelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark-dev/tidemark/internal/store"
)

const (
	// maxTail is how many of the newest headers are checked when a log is opened.
	// It covers the content of a write-ahead log of four memtables; the older ones
	// are checked when they are read.
	maxTail = 16 << 10
	// rangesPerWorker keeps the workers of a replay equally busy.
	rangesPerWorker = 4
	maxWorkers      = 4
)

// checkTail checks that the newest headers are a chain that ends in the head.
func (l *Log) checkTail(ctx context.Context, h head) error {
	lower, upper := spaceBounds(spaceHeader)
	it, err := l.db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	defer it.Close()

	// Walking back, each header gives the chain value of the one before it.
	var hash hasher
	var content []byte
	newer := h.revision // the header that was looked at last; first the one that has to be there
	chain := h.chain    // the chain value that the next one has to have
	n := 0
	for ok := it.Last(); ok && n < maxTail; ok = it.Prev() {
		place := fmt.Sprintf("the header of key %x", it.Key())
		r, ok := cutRevisionKey(spaceHeader, it.Key())
		if !ok || r <= h.cut || n == 0 && r != h.revision {
			return l.damaged(place, fmt.Errorf("it does not belong there: the head is %d, the cut %d", h.revision, h.cut))
		}
		got, err := parseHeader(it.Value())
		if err != nil {
			return l.damaged(place, err)
		}
		if n == 0 && got.chain != chain || n > 0 && hash.chain(got.chain, newer, content) != chain {
			return l.damaged(place, errors.New("the chain is broken between this header and the next one"))
		}
		newer, chain = r, got.chain
		content = append(content[:0], it.Value()[8:]...)
		n++
	}
	if err := it.Error(); err != nil {
		return l.damaged("the headers", err)
	}
	switch {
	case n == maxTail:
		return nil
	case n == 0 && (h.revision != h.cut || h.chain != h.cutChain),
		n > 0 && hash.chain(h.cutChain, newer, content) != chain:
		return l.damaged(fmt.Sprintf("the headers after revision %d", h.cut), errors.New("the chain is broken: one is missing"))
	}
	return nil
}

// Replay implements store.Log. It checks that the objects are exactly those that the head
// counts.
func (l *Log) Replay(ctx context.Context, load func(collection string, o *store.Object) error) (store.Bounds, error) {
	if !l.readers.acquire() {
		return store.Bounds{}, store.ErrClosed
	}
	defer l.readers.release()

	h := *l.head.Load()
	marks, err := l.marks(ctx)
	if err != nil {
		return store.Bounds{}, err
	}
	if err := l.loadAll(ctx, h, load); err != nil {
		return store.Bounds{}, err
	}
	b := store.Bounds{Head: h.revision, Floor: h.floor, Marks: marks}
	if h.time != 0 {
		b.Time = time.UnixMicro(h.time).UTC()
	}
	return b, nil
}

// loadAll loads the current versions, and checks that they are those of the head.
func (l *Log) loadAll(ctx context.Context, h head, load func(collection string, o *store.Object) error) error {
	objects, sum, err := l.loadCurrent(ctx, load)
	if err != nil {
		return err
	}
	if objects != h.objects || sum != h.sum {
		return l.damaged("the current versions", fmt.Errorf(
			"there are %d of them with the sum %016x, and the head at revision %d has %d with %016x",
			objects, sum, h.revision, h.objects, h.sum))
	}
	return nil
}

func (l *Log) marks(ctx context.Context) ([]store.Mark, error) {
	lower, upper := spaceBounds(spaceMark)
	it, err := l.db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	var hash hasher
	var marks []store.Mark
	for ok := it.First(); ok; ok = it.Next() {
		place := fmt.Sprintf("the mark of key %x", it.Key())
		r, ok := cutRevisionKey(spaceMark, it.Key())
		if !ok {
			return nil, l.damaged(place, errShort)
		}
		m, err := readMark(&hash, r, it.Value())
		if err != nil {
			return nil, l.damaged(place, err)
		}
		marks = append(marks, m)
	}
	if err := it.Error(); err != nil {
		return nil, l.damaged("the marks", err)
	}
	return marks, nil
}

// loadCurrent loads all current versions, in ranges of about equal size, on
// several goroutines.
func (l *Log) loadCurrent(ctx context.Context, load func(string, *store.Object) error) (objects, sum uint64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workers := min(runtime.GOMAXPROCS(0), maxWorkers)
	bounds, err := l.split(workers * rangesPerWorker)
	if err != nil {
		return 0, 0, err
	}
	ranges := make(chan [2][]byte, len(bounds))
	for i := range len(bounds) - 1 {
		ranges <- [2][]byte{bounds[i], bounds[i+1]}
	}
	close(ranges)

	var mu sync.Mutex // guards the results
	var wg sync.WaitGroup
	for range min(workers, len(bounds)-1) {
		wg.Go(func() {
			for r := range ranges {
				n, s, err := l.loadRange(ctx, r[0], r[1], load)
				mu.Lock()
				objects, sum = objects+n, sum+s
				mu.Unlock()
				if err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return objects, sum, context.Cause(ctx)
}

// split returns the bounds of at most n ranges of the current versions, taken
// from the bounds of Pebble's tables.
func (l *Log) split(n int) ([][]byte, error) {
	lower, upper := spaceBounds(spaceCurrent)
	levels, err := l.db.SSTables()
	if err != nil {
		return nil, err
	}
	type piece struct {
		smallest []byte
		size     uint64
	}
	var pieces []piece
	var total uint64
	for _, level := range levels {
		for _, t := range level {
			k := t.Smallest.UserKey
			if bytes.Compare(k, lower) > 0 && bytes.Compare(k, upper) < 0 {
				pieces = append(pieces, piece{k, t.Size})
				total += t.Size
			}
		}
	}
	slices.SortFunc(pieces, func(a, b piece) int { return bytes.Compare(a.smallest, b.smallest) })
	bounds := [][]byte{lower}
	var seen uint64
	for _, p := range pieces {
		if seen >= total*uint64(len(bounds))/uint64(n) && !bytes.Equal(p.smallest, bounds[len(bounds)-1]) {
			bounds = append(bounds, p.smallest)
		}
		seen += p.size
	}
	return append(bounds, upper), nil
}

func (l *Log) loadRange(ctx context.Context, lower, upper []byte, load func(string, *store.Object) error) (objects, sum uint64, err error) {
	it, err := l.db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return 0, 0, err
	}
	defer it.Close()
	var hash hasher
	var collection string
	for ok := it.First(); ok; ok = it.Next() {
		if objects%1024 == 0 && ctx.Err() != nil {
			return objects, sum, context.Cause(ctx)
		}
		c, k, rest, ok := cutPlace(it.Key()[1:])
		if !ok || len(rest) != 0 {
			return objects, sum, l.damaged(fmt.Sprintf("the key %q", it.Key()), errors.New("no collection and key"))
		}
		if collection != string(c) {
			collection = string(c)
		}
		o := &store.Object{Key: string(k)}
		s, err := readCurrent(&hash, it.Key()[1:], it.Value(), o)
		if err != nil {
			return objects, sum, l.damaged(fmt.Sprintf("the current version of %s %s", collection, k), err)
		}
		o.Held = bytes.Clone(o.Bytes())
		if err := load(collection, o); err != nil {
			return objects, sum, err
		}
		objects++
		sum += s
	}
	if err := it.Error(); err != nil {
		return objects, sum, l.damaged("the current versions", err)
	}
	return objects, sum, nil
}
