package datadir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
)

// CompactOptions are the options of Compact.
type CompactOptions struct {
	// KeepHistory keeps the history that the directory has. Only what has left the history already is removed.
	KeepHistory bool
}

// Compact drops the history of a data directory that is not in use, and of its kept forks, and writes the files of their
// logs anew. Then no file of the directory has bytes of objects that were deleted, or of versions that were replaced. What
// was set aside after a loss of data stays: left has the paths of those directories.
//
// It needs as much free space as the largest log, and time in proportion to the logs. It may be repeated after an error. A
// directory that is the copy of a server is refused.
func (d *Dir) Compact(ctx context.Context, o CompactOptions) (c Contents, left []string, err error) {
	switch copied, _, err := d.isCopy(); {
	case err != nil:
		return c, nil, err
	case copied:
		return c, nil, fmt.Errorf("data directory %s: it is the copy of a server: compact that server's directory, and make the copy anew", d.Path)
	}
	if _, err := os.Lstat(filepath.Join(d.Path, formatFile)); err != nil {
		return c, nil, fmt.Errorf("data directory %s: it has no %s: it is not a data directory", d.Path, formatFile)
	}
	use := *d
	use.ReadOnly, use.opened = false, nil
	log, err := use.OpenLog(ctx) // checks the directory, and locks it
	if err != nil {
		return c, nil, err
	}
	lock := log.(*lockedLog).lock
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := log.(*lockedLog).Log.Close(); err != nil {
		return c, nil, err
	}
	options := use.logOptions()
	options.Held = lock.Held
	if c.Log, err = compact(ctx, options, o); err != nil {
		return c, nil, err
	}
	left = appendAside(left, options.Dir)
	names, err := use.opened.forks.names()
	if err != nil {
		return c, left, err
	}
	for _, name := range names {
		options := use.opened.forks.options(name)
		found, err := compact(ctx, options, o)
		if err != nil {
			return c, left, fmt.Errorf("kept fork %s: %w", name, err)
		}
		if c.Forks == nil {
			c.Forks = map[string]LogContents{}
		}
		c.Forks[name] = found
		left = appendAside(left, options.Dir)
	}
	return c, left, nil
}

func compact(ctx context.Context, options pebblelog.Options, o CompactOptions) (LogContents, error) {
	sum, err := pebblelog.Rewrite(ctx, options, !o.KeepHistory)
	return contentsOf(sum), err
}

// appendAside appends the directory of a log with what was set aside, if there is one.
func appendAside(all []string, log string) []string {
	aside := filepath.Join(log, pebblelog.AsideDir)
	if _, err := os.Lstat(aside); err != nil {
		return all
	}
	return append(all, aside)
}
