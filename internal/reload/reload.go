// Package reload keeps a value that is read from files (certificates, lists of tokens), and
// reads it again when the files change.
package reload

import (
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// Interval is the minimal time between two checks of the files.
const Interval = time.Second

// settle is the age of a file from which on a later change is certain to change its time stamp:
// file systems count in steps of milliseconds to seconds.
const settle = 2 * time.Second

// Value is a value that is read from files. It has no goroutine: Get checks the files if the
// last check was at least Interval ago. All methods are safe for concurrent use.
type Value[T any] struct {
	load  func() (T, error)
	now   func() time.Time
	log   *slog.Logger
	list  func() []string // nil: files does not change
	files []string        // looking guards it if there is a list

	current atomic.Pointer[T]
	next    atomic.Int64 // when to check again, in Unix nanoseconds
	looking atomic.Bool  // a goroutine checks the files; guards the following fields
	stamps  []stamp
	settled bool // all files were older than settle
}

// stamp identifies a version of a file. info is nil if the file cannot be read.
type stamp struct{ info fs.FileInfo }

// Config configures a Value.
type Config[T any] struct {
	// Files are checked for changes.
	Files []string
	// List returns the files, in place of Files. It is called for each check. It lists the directory
	// as well, so that a file which gets another name is a change.
	List func() []string
	// Load reads the files. Its result is shared and must not change.
	Load func() (T, error)
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Log gets a line for each reload, and for each that failed.
	Log *slog.Logger
}

// New loads the value for the first time, and returns an error if that fails. Later failures
// are logged, and the value stays as it is.
func New[T any](c Config[T]) (*Value[T], error) {
	v := &Value[T]{load: c.Load, now: c.Now, log: c.Log, list: c.List, files: c.Files}
	if v.now == nil {
		v.now = time.Now
	}
	v.stamp()
	value, err := v.load()
	if err != nil {
		return nil, err
	}
	v.current.Store(&value)
	v.next.Store(v.now().Add(Interval).UnixNano())
	return v, nil
}

// Get returns the value. If the files are due for a check, the caller checks them and reloads
// the value; concurrent callers get the old value.
func (v *Value[T]) Get() T {
	now := v.now()
	due := time.Duration(v.next.Load() - now.UnixNano())
	// If the clock was set back, due is too large.
	if (due <= 0 || due > Interval) && v.looking.CompareAndSwap(false, true) {
		v.look()
		v.next.Store(now.Add(Interval).UnixNano())
		v.looking.Store(false)
	}
	return *v.current.Load()
}

// look reloads the value if a file has changed.
func (v *Value[T]) look() {
	unsettled := !v.settled
	if changed := v.stamp(); !changed {
		if unsettled {
			v.reload(false)
		}
		return
	}
	v.reload(true)
}

// reload loads the value. It logs that only if a file is known to have changed: files that are
// not settled are read again to be sure.
func (v *Value[T]) reload(loud bool) {
	value, err := v.load()
	switch {
	case err == nil:
		v.current.Store(&value)
		if loud {
			v.log.Info("read again, because it changed", "files", v.files)
		}
	case loud:
		v.log.Error("what is in use stays in use: a changed file cannot be read", "files", v.files, "err", err)
	}
}

// stamp records the versions of the files, and reports whether one of them has changed.
func (v *Value[T]) stamp() (changed bool) {
	if v.list != nil {
		v.files = v.list()
	}
	stamps := make([]stamp, len(v.files))
	v.settled = true
	for i, name := range v.files {
		info, err := os.Stat(name)
		if err != nil {
			info = nil
		}
		stamps[i] = stamp{info}
		// The clock of files is the system's, not Now.
		if info != nil && time.Since(info.ModTime()) < settle {
			v.settled = false
		}
		changed = changed || i >= len(v.stamps) || !stamps[i].same(v.stamps[i])
	}
	changed = changed || len(stamps) < len(v.stamps)
	v.stamps = stamps
	return changed
}

func (s stamp) same(t stamp) bool {
	if s.info == nil || t.info == nil {
		return s.info == nil && t.info == nil
	}
	return os.SameFile(s.info, t.info) && s.info.ModTime().Equal(t.info.ModTime()) && s.info.Size() == t.info.Size()
}
