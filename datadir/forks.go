package datadir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
)

const (
	forksDir  = "forks"
	factsFile = "fork.json"

	// forkReserveBytes is the reserve of each fork for deletions on a full disk: a fork has few objects.
	forkReserveBytes = 1 << 20
	// maxFactsBytes is more than any fork.json has.
	maxFactsBytes = 64 << 10
)

// Forks returns where forks are kept; nil: the directory is opened for reading alone. Use it between OpenLog and
// the Close of its log.
func (d *Dir) Forks() store.ForkLogs {
	if d.ReadOnly {
		return nil
	}
	if d.opened != nil {
		return d.opened.forks
	}
	return newForks(d)
}

func newForks(d *Dir) *forks {
	return &forks{dir: d, path: filepath.Join(d.Path, forksDir), inUse: map[string]*forkInUse{}}
}

// forks are the kept forks of a directory: forks/NAME/fork.json and forks/NAME/log. A fork exists if it has a
// fork.json, which is written last and removed first.
type forks struct {
	dir  *Dir
	path string

	upgrading sync.Mutex

	mu    sync.Mutex
	inUse map[string]*forkInUse // those that are open or locked
}

// forkInUse is a fork that is open or locked.
type forkInUse struct {
	users int // that hold mu or wait for it; guarded by forks.mu

	mu  sync.Mutex     // held while the log is opened, closed, deleted or copied
	log *pebblelog.Log // nil: it is not open
}

// lock locks one fork, whether it exists or not. Others can be used meanwhile: a copy takes time.
func (f *forks) lock(name string) (one *forkInUse, unlock func()) {
	f.mu.Lock()
	if one = f.inUse[name]; one == nil {
		one = new(forkInUse)
		f.inUse[name] = one
	}
	one.users++
	f.mu.Unlock()
	one.mu.Lock()
	return one, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if one.users--; one.users == 0 && one.log == nil {
			delete(f.inUse, name)
		}
		one.mu.Unlock()
	}
}

func (f *forks) of(name string) string { return filepath.Join(f.path, name) }

// List implements store.ForkLogs.
func (f *forks) List() (map[string][]byte, error) {
	entries, err := os.ReadDir(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		facts, err := readFacts(filepath.Join(f.of(e.Name()), factsFile))
		if errors.Is(err, fs.ErrNotExist) {
			err = os.RemoveAll(f.of(e.Name()))
			if err != nil { // it is in the way of no other fork
				f.warn("an unfinished fork was not removed", "path", f.of(e.Name()), "error", err)
			}
			continue
		}
		if err != nil {
			f.warn("the description of a fork cannot be read", "error", err)
		}
		all[e.Name()] = facts
	}
	return all, nil
}

// readFacts reads a fork.json.
func readFacts(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFactsBytes))
}

// Create implements store.ForkLogs.
func (f *forks) Create(ctx context.Context, name string, facts []byte, begin store.Beginning) (err error) {
	if len(facts) > maxFactsBytes {
		return fmt.Errorf("the description of the fork has %d bytes, and may have %d", len(facts), maxFactsBytes)
	}
	if err := f.upgrade(); err != nil {
		return err
	}
	path := f.of(name)
	if f.exists(name) { // although List did not return it, because of an error
		return fmt.Errorf("%s: a fork with this name exists", path)
	}
	if err := os.RemoveAll(path); err != nil { // remains of a deletion
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Delete(name))
		}
	}()
	if err := atomicfile.MakeDir(path); err != nil {
		return err
	}
	err = pebblelog.Fill(ctx, f.options(name), begin.Revision, begin.Time, begin.Objects)
	if begin.Err != nil {
		err = errors.Join(begin.Err(), err)
	}
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(path, factsFile), facts, 0o600)
}

// upgrade makes the format of the directory one that has forks.
func (f *forks) upgrade() error {
	f.upgrading.Lock()
	defer f.upgrading.Unlock()
	format, err := ensureFormat(f.dir.Path)
	if err != nil || format == Version {
		return err
	}
	return writeFormat(f.dir.Path, Version)
}

// options are those of the log of a fork.
func (f *forks) options(name string) pebblelog.Options {
	var held func() error
	if f.dir.opened != nil {
		held = f.dir.opened.held
	}
	return pebblelog.Options{
		Held:         held,
		Dir:          filepath.Join(f.of(name), logDir),
		MinFreeBytes: f.dir.MinFreeBytes,
		ReserveBytes: forkReserveBytes,
		Logger:       f.dir.Logger,
	}
}

// Open implements store.ForkLogs. AcceptDataLoss does not count: it is meant for the log of the server.
func (f *forks) Open(ctx context.Context, name string) (store.Log, error) {
	o := f.options(name)
	if _, err := os.Stat(o.Dir); err != nil {
		return nil, fmt.Errorf("the fork has lost its log: %w", err)
	}
	one, unlock := f.lock(name)
	defer unlock()
	l, err := pebblelog.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	one.log = l
	return &forkLog{Log: l, forks: f, name: name}, nil
}

// forkLog is the open log of a fork.
type forkLog struct {
	*pebblelog.Log
	forks *forks
	name  string
}

// Close implements store.Log.
func (l *forkLog) Close() error {
	one, unlock := l.forks.lock(l.name)
	defer unlock()
	if one.log == l.Log {
		one.log = nil
	}
	return l.Log.Close()
}

// Delete implements store.ForkLogs.
func (f *forks) Delete(name string) error {
	_, unlock := f.lock(name)
	defer unlock()
	path := f.of(name)
	if err := atomicfile.Remove(filepath.Join(path, factsFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.RemoveAll(path); err != nil { // the next start tries it again
		f.warn("the files of a deleted fork were not removed", "path", path, "error", err)
	}
	return nil
}

func (f *forks) warn(message string, args ...any) {
	if f.dir.Logger != nil {
		f.dir.Logger.Warn(message, args...)
	}
}
