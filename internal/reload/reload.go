// Package reload keeps a value that was made of files, and makes it anew when
// the files change: certificates, lists of tokens.
package reload

import (
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// Interval is the least time between two looks at the files.
const Interval = time.Second

// settle is how old a file has to be when it is read, for its time stamp to tell
// a later change: file systems count in steps of milliseconds to seconds.
const settle = 2 * time.Second

// Value is a value made of files. It has no goroutine: Get looks at the files
// when the last look is at least Interval ago. All methods are safe for
// concurrent use.
type Value[T any] struct {
	load  func() (T, error)
	now   func() time.Time
	log   *slog.Logger
	files []string

	current atomic.Pointer[T]
	next    atomic.Int64 // when to look again, in Unix nanoseconds
	looking atomic.Bool  // held by the one that looks; guards what follows
	stamps  []stamp
	settled bool
}

// stamp is what tells one version of a file from another; info is nil for a file
// that cannot be looked at.
type stamp struct{ info fs.FileInfo }

// Config says what a Value is made of.
type Config[T any] struct {
	// Files are looked at for changes.
	Files []string
	// Load reads them. What it returns is shared and must not change.
	Load func() (T, error)
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Log gets a line for each reload, and for each that failed.
	Log *slog.Logger
}

// New loads the value for the first time; that it cannot be loaded is an error.
// Later on it is logged, and the value stays what it was.
func New[T any](c Config[T]) (*Value[T], error) {
	v := &Value[T]{load: c.Load, now: c.Now, log: c.Log, files: c.Files}
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

// Get returns the value. When it is time to look at the files the caller does
// it, and pays for a reload; others that call meanwhile get the value as it was.
func (v *Value[T]) Get() T {
	now := v.now()
	due := time.Duration(v.next.Load() - now.UnixNano())
	// A clock that was put back must not stop the looking.
	if (due <= 0 || due > Interval) && v.looking.CompareAndSwap(false, true) {
		v.look()
		v.next.Store(now.Add(Interval).UnixNano())
		v.looking.Store(false)
	}
	return *v.current.Load()
}

// look loads the value again when a file is not what it was.
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

// reload loads the value. It speaks of it only when a file is known to have
// changed: an unsettled one is read again just to be sure.
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

// stamp notes what the files are now, and tells whether one of them is not what
// it was.
func (v *Value[T]) stamp() (changed bool) {
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
		changed = changed || v.stamps == nil || !stamps[i].same(v.stamps[i])
	}
	v.stamps = stamps
	return changed
}

func (s stamp) same(t stamp) bool {
	if s.info == nil || t.info == nil {
		return s.info == nil && t.info == nil
	}
	return os.SameFile(s.info, t.info) && s.info.ModTime().Equal(t.info.ModTime()) && s.info.Size() == t.info.Size()
}
