package world

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// player plays the changes of a stored history again in the store of a world, as if they happened now.
type player struct {
	from, to *store.Store
	speed    float64
	// begin is the time that the first change is relative to.
	begin time.Time
	log   *slog.Logger
	once  sync.Once
	err   error
}

// close closes the stored history. It is idempotent. A nil player has none.
func (p *player) close() error {
	if p == nil {
		return nil
	}
	p.once.Do(func() { p.err = p.from.Close() })
	return p.err
}

// run plays all changes until the context ends.
func (p *player) run(ctx context.Context) {
	defer p.close()
	began, played := time.Now(), 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	after, head := p.to.Any().Revision(), p.from.Any().Revision()
	p.log.Info("the changes are played", "from", uint64(after), "to", uint64(head), "speed", p.speed)
	for c, err := range p.from.Recall(ctx, store.Range{After: after, UpTo: head}) {
		if err == nil {
			err = p.pause(ctx, timer, began, c.Origin().Time)
		}
		if err == nil {
			err = p.make(ctx, &c.CollectionChange)
		}
		if err != nil {
			if ctx.Err() == nil {
				p.log.Error("the changes are played no further", "err", err)
			}
			return
		}
		played++
	}
	p.log.Info("all changes were played", "changes", played)
}

// pause waits until a change that was made at a time is due.
func (p *player) pause(ctx context.Context, timer *time.Timer, began, made time.Time) error {
	if made.IsZero() {
		return nil
	}
	if p.begin.IsZero() {
		p.begin = made
	}
	due := began.Add(time.Duration(float64(made.Sub(p.begin)) / p.speed))
	if wait := time.Until(due); wait > 0 {
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// make makes a change again. Its time is now; its verb and its actor are those that it had.
func (p *player) make(ctx context.Context, c *store.CollectionChange) error {
	o := c.Origin()
	w := store.Write{Collection: c.Collection, Key: c.Key(), Origin: &store.Origin{Verb: o.Verb, Actor: o.Actor, AuditID: o.AuditID}}
	if now := p.to.Any().Get(w.Collection, w.Key); now != nil {
		w.If = now.Modified
	} else if c.After == nil {
		return nil
	}
	if c.After != nil {
		value, at := c.After.Bytes(), int(c.After.RevisionAt)
		rest := at + len(strconv.FormatUint(uint64(c.After.Modified), 10))
		w.RevisionAt, w.Value = at, append(append(make([]byte, 0, len(value)), value[:at]...), value[rest:]...)
	}
	_, err := p.to.Commit(ctx, w)
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrNotFound) { // a controller was faster
		return p.make(ctx, c)
	}
	return err
}
