package sharedwriter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Loading again
//
// When compaction overtakes Shared.Follow, the changes up to some revision are lost. The writer
// then loads the whole state as of a newer revision, and publishes it. It does not know the
// changes in between: in a collection that is as it was, objects may have been created and
// deleted. So the history in memory begins anew, for all collections. Cursors and feeds get an
// *ExpiredError, unless the log can read back the changes that they have not read. Views of collections that
// are as they were keep their trees.

const (
	reloadPause     = 100 * time.Millisecond
	mostReloadPause = 5 * time.Second
)

// reload loads the state again, and publishes it. It tries until the store closes.
func (f *writer) reload() error {
	s := f.store
	for pause := reloadPause; ; pause = min(2*pause, mostReloadPause) {
		l := store.NewLoader(*s.Options())
		b, err := f.log.Load(f.ctx, l.Load)
		switch {
		case err == nil && b.Head < s.Any().Revision():
			return fmt.Errorf("%w: its revision is %d, and was %d before", store.ErrReset, b.Head, s.Any().Revision())
		case err == nil:
			f.replace(l, b)
			return nil
		case errors.Is(err, store.ErrReset) || f.ctx.Err() != nil:
			return err
		}
		s.Options().Note(true, "storage: the state could not be loaded again", "error", err)
		if !sleep(f.ctx, pause) {
			return f.ctx.Err()
		}
	}
}

// sleep reports whether the context lasted.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// replace publishes a state that was loaded.
func (f *writer) replace(l *store.Loader, b store.Bounds) {
	s := f.store
	f.publishing.Lock()
	defer f.publishing.Unlock()
	was, changed := s.Reload(l, b, f.time)
	f.floor.Store(max(f.floor.Load(), uint64(b.Floor)))
	f.raiseFloor()
	s.Options().Note(true, "storage: compaction was faster than this server: the state was loaded again, and watches end",
		"from", uint64(was), "to", uint64(b.Head), "changed_collections", changed)
}
