// Package datadir keeps the state of a server in a directory.
//
//	FORMAT       which format the directory has
//	LOCK         held by the process that uses it
//	log/         the objects and their history
//	forks/       the kept forks, each with a log of its own
//	FOLLOWS      the server that the directory is a copy of
//	MOVED        where the objects were moved to
//	pki/         certificates and keys of the server
//	kubeconfig   how an administrator reaches the server
//	.backup/     the files of a backup under way
//
// The package creates and locks the directory, and opens the log in it. The server writes pki
// and kubeconfig. docs/formats/data-directory.md describes all files.
package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
	"github.com/tidemark-dev/tidemark/internal/dirlock"
	"github.com/tidemark-dev/tidemark/internal/privatedir"
	"github.com/tidemark-dev/tidemark/internal/storage"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
)

// KubeconfigFile is the administrator's kubeconfig, relative to Dir.Path.
const KubeconfigFile = "kubeconfig"

const (
	formatFile = "FORMAT"
	logDir     = "log"
)

// Dir is a data directory. Fill in Path, and use it as the Storage of a tidemark.Server.
// The fields are not changed after the first call.
type Dir struct {
	// Path is the directory. It and its parents are created with mode 0700 if they do not
	// exist.
	Path string

	// GroupAccess accepts a directory that its group may read and write, and a directory of
	// another owner. A Kubernetes volume with an fsGroup needs both. Members of the group can
	// read all objects and keys. Access by others is always refused.
	GroupAccess bool

	// MinFreeBytes is the free space on the file system below which the log accepts only
	// deletions. Zero means an eighth of the file system, at most 96 MiB.
	MinFreeBytes uint64
	// ReserveBytes is reserved for deletions on a full file system. Zero means a sixth of the
	// default of MinFreeBytes, at most 16 MiB.
	ReserveBytes uint64

	// AcceptDataLoss opens a log that has lost writes, if the rest is consistent. The log then
	// continues from an earlier revision, and Logger gets the loss. Otherwise such a log is
	// refused.
	AcceptDataLoss bool

	// ReadOnly opens a directory that exists, and changes nothing in it but LOCK. The log refuses
	// writes. AcceptDataLoss does not count.
	ReadOnly bool

	// Follows is the URL of the server that the directory is a copy of: OpenLog opens only a directory
	// that MakeCopy has made, of whichever server. Empty: OpenLog opens any directory, and turns a copy
	// into an independent one, with the resource versions of a restored one: see RestoreOptions.
	Follows string

	// Logger gets the messages of the log; nil: they are discarded.
	Logger *slog.Logger

	opened *opened // set by OpenLog
}

// opened is the result of OpenLog.
type opened struct {
	log   *pebblelog.Log
	held  func() error // pebblelog.Options.Held
	forks *forks
	// backup is held while a backup is under way.
	backup sync.Mutex
	// closed is set before the lock of the directory is released.
	closed atomic.Bool
}

// Open is OpenLog for a tidemark.Server, which calls it.
func (d *Dir) Open(ctx context.Context, _ storage.Options) (*storage.Opened, error) {
	log, err := d.OpenLog(ctx)
	if err != nil {
		return nil, err
	}
	return &storage.Opened{
		Log: log, Head: d.opened.log.Summary().Revision, Dir: d.Path,
		Usable: d.opened.log.Usable, Forks: d.Forks(), Backups: d,
	}, nil
}

// ErrInUse: another process has the data directory open.
var ErrInUse = dirlock.ErrInUse

// OpenLog creates the directory if it does not exist, locks it, checks its format and opens the
// log in it. Closing the log releases the lock.
//
// It refuses a directory that other users can access or that belongs to another user (except
// as GroupAccess allows), one that contains files but no FORMAT (it may be a home directory),
// one of an unknown format, one that is in use, and a damaged log. The errors name the path
// and the remedy.
func (d *Dir) OpenLog(ctx context.Context) (store.Log, error) {
	if d.Path == "" {
		return nil, errors.New("a data directory without a path")
	}
	if d.Follows != "" {
		if err := d.mustBeCopy(); err != nil {
			return nil, err
		}
	}
	if err := d.prepare(); err != nil {
		return nil, err
	}
	lock, err := dirlock.Take(filepath.Join(d.Path, dirlock.File))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(d.checkMoved(), d.settleCopy()); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	format, err := ensureFormat(d.Path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	var upgrade func() error
	if format < basicFormat && !d.ReadOnly {
		upgrade = func() error { return writeFormat(d.Path, basicFormat) }
	}
	o := d.logOptions()
	o.AcceptDataLoss, o.ReadOnly, o.Upgrade = d.AcceptDataLoss, d.ReadOnly, upgrade
	if !d.ReadOnly {
		o.Held = lock.Held
	}
	log, err := pebblelog.Open(ctx, o)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if !d.ReadOnly {
		// An interrupted backup leaves it.
		if err := os.RemoveAll(filepath.Join(d.Path, backupDir)); err != nil {
			return nil, errors.Join(err, log.Close(), lock.Close())
		}
	}
	if d.Follows == "" && !d.ReadOnly {
		if err := d.endCopy(ctx, log); err != nil {
			return nil, errors.Join(err, log.Close(), lock.Close())
		}
	}
	d.opened = &opened{log: log, held: o.Held, forks: newForks(d)}
	return &lockedLog{Log: log, opened: d.opened, lock: lock}, nil
}

// logOptions are those of the log of the server.
func (d *Dir) logOptions() pebblelog.Options {
	return pebblelog.Options{
		Dir:          filepath.Join(d.Path, logDir),
		MinFreeBytes: d.MinFreeBytes,
		ReserveBytes: d.ReserveBytes,
		Logger:       d.Logger,
	}
}

// lockedLog is a log with the lock of its directory.
type lockedLog struct {
	*pebblelog.Log
	opened *opened
	lock   *dirlock.Lock
}

// Close closes the log, then releases the lock.
func (l *lockedLog) Close() error {
	err := l.Log.Close()
	l.opened.closed.Store(true)
	return errors.Join(err, l.lock.Close())
}

// prepare creates the directory or checks the existing one.
func (d *Dir) prepare() error {
	private := privatedir.Dir{Path: d.Path, GroupAccess: d.GroupAccess}
	info, err := private.Stat()
	if errors.Is(err, fs.ErrNotExist) && !d.ReadOnly {
		if err := atomicfile.MakeDir(d.Path); err != nil {
			return fmt.Errorf("data directory %s: %w", d.Path, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	known, empty, err := contents(d.Path)
	switch {
	case err != nil:
		return err
	case !known && d.ReadOnly:
		return fmt.Errorf("data directory %s: it has no %s: it is not a data directory%s", d.Path, formatFile, d.hintOfEtcd("its objects are in etcd"))
	case !known && !empty:
		return fmt.Errorf("data directory %s: it holds other files and no %s: choose an empty or a new directory%s", d.Path, formatFile, d.hintOfEtcd("name etcd with --etcd-servers"))
	}
	return private.Secure(info, empty)
}

// hintOfEtcd returns a hint for the error of a directory without a log that has the certificates of a server.
func (d *Dir) hintOfEtcd(then string) string {
	if _, err := os.Stat(filepath.Join(d.Path, "pki")); err != nil {
		return ""
	}
	return "; if it is that of a server on etcd, " + then
}

// contents reports whether the directory has a FORMAT, and whether it is empty except for the
// files of an interrupted first start.
func contents(path string) (known, empty bool, err error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return false, false, err
	}
	empty = true
	for _, e := range entries {
		switch name := e.Name(); {
		case name == formatFile:
			known, empty = true, false
		case name == dirlock.File, name == "lost+found", strings.HasPrefix(name, "."+formatFile+"."), strings.HasPrefix(name, "."+followsFile+"."), name == formatFile+".new":
		case name == newCopyDir:
			if _, err := os.Lstat(filepath.Join(path, newCopyDir, formatFile)); err == nil {
				known = true // OpenLog puts it in place
			}
			empty = false
		case name == logDir:
			inner, err := os.ReadDir(filepath.Join(path, logDir))
			if err != nil || len(inner) > 0 {
				empty = false
			}
		default:
			empty = false
		}
	}
	return known, empty, nil
}
