package audit

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// FileConfig configures the files of the log.
type FileConfig struct {
	// MaxBytes is the size from which on the file is renamed, and a new one begun; zero: never.
	MaxBytes int64
	// MaxAge is how long old files are kept, by the time in their names; zero: forever.
	MaxAge time.Duration
	// MaxBackups is how many old files are kept; zero: all.
	MaxBackups int
	// Compress compresses old files with gzip.
	Compress bool
}

// openLog opens the log.
func openLog(c *LogConfig, now func() time.Time) (output, error) {
	if c.Path == "-" {
		if c.Stdout != nil {
			return &stream{c.Stdout}, nil
		}
		return &stream{os.Stdout}, nil
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o700); err != nil {
		return nil, fmt.Errorf("ensureLogFile: %w", err)
	}
	f := &logFile{c: c.File, path: c.Path, now: now}
	if now == nil {
		f.now = time.Now
	}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("ensureLogFile: %w", err)
	}
	f.clean.Go(f.tidy) // a server that was killed may have left work
	return f, nil
}

// stream writes events to a stream that has no end.
type stream struct{ to io.Writer }

func (s *stream) write(_ context.Context, b *batch) error {
	_, err := s.to.Write(b.data)
	return err
}

func (s *stream) hurry()       {}
func (s *stream) close() error { return nil }

// logFile is the log in a file. Old files are named like those of kube-apiserver:
// audit-2026-01-31T15-04-05.000.log for audit.log, with .gz if they are compressed.
type logFile struct {
	c    FileConfig
	path string
	now  func() time.Time

	f       *os.File
	size    int64
	regular bool      // otherwise it is a pipe or a device, which is not renamed
	last    time.Time // in the name of the newest old file

	clean   sync.WaitGroup
	tidying sync.Mutex // one tidy at a time
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	about, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	l.f, l.size, l.regular = f, about.Size(), about.Mode().IsRegular()
	return nil
}

// write implements output. A batch that cannot be written whole leaves nothing behind, so that
// each line of the log is an event.
func (l *logFile) write(_ context.Context, b *batch) error {
	if l.regular && l.c.MaxBytes > 0 && l.size > 0 && l.size+int64(len(b.data)) > l.c.MaxBytes {
		l.rotate()
	}
	if l.f == nil { // the new file could not be opened
		if err := l.open(); err != nil {
			return err
		}
	}
	n, err := l.f.Write(b.data)
	if err != nil && n > 0 && l.regular && l.f.Truncate(l.size) == nil {
		n = 0
	}
	l.size += int64(n)
	return err
}

func (l *logFile) hurry() {}

func (l *logFile) close() error {
	l.clean.Wait()
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}

// rotate renames the file and begins a new one. If it cannot be renamed, it grows.
func (l *logFile) rotate() {
	if err := os.Rename(l.path, l.backupPath()); err != nil {
		return
	}
	_ = l.f.Close() // every write to it has succeeded
	if l.f = nil; l.open() != nil {
		return // the next write tries again
	}
	l.clean.Go(l.tidy)
}

const backupTime = "2006-01-02T15-04-05.000"

// backupPath returns a path for the file that is taken by no other. Its time is later than that of the file
// before, even if the name of an older file is free again: tidy removes the oldest files.
func (l *logFile) backupPath() string {
	ext := filepath.Ext(l.path)
	base := strings.TrimSuffix(l.path, ext)
	at := l.now().UTC().Truncate(time.Millisecond)
	if !at.After(l.last) {
		at = l.last.Add(time.Millisecond)
	}
	for ; ; at = at.Add(time.Millisecond) {
		path := base + "-" + at.Format(backupTime) + ext
		_, err := os.Lstat(path)
		_, zipped := os.Lstat(path + ".gz")
		if errors.Is(err, os.ErrNotExist) && errors.Is(zipped, os.ErrNotExist) {
			l.last = at
			return path
		}
	}
}

// backup is an old file.
type backup struct {
	path string
	at   time.Time
}

// backups returns the old files, the newest first.
func (l *logFile) backups() ([]backup, error) {
	dir, name := filepath.Split(l.path)
	ext := filepath.Ext(name)
	prefix := strings.TrimSuffix(name, ext) + "-"
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if err != nil {
		return nil, err
	}
	var all []backup
	for _, e := range entries {
		rest, ours := strings.CutPrefix(strings.TrimSuffix(e.Name(), ".gz"), prefix)
		rest, same := strings.CutSuffix(rest, ext)
		at, err := time.Parse(backupTime, rest)
		if ours && same && err == nil && e.Type().IsRegular() {
			all = append(all, backup{filepath.Join(dir, e.Name()), at})
		}
	}
	slices.SortFunc(all, func(a, b backup) int { return b.at.Compare(a.at) })
	return all, nil
}

// tidy removes and compresses old files. After a failure, the next rotation tries again.
func (l *logFile) tidy() {
	l.tidying.Lock()
	defer l.tidying.Unlock()
	all, err := l.backups()
	if err != nil {
		return
	}
	oldest := l.now().Add(-l.c.MaxAge)
	for i, b := range all {
		switch {
		case l.c.MaxBackups > 0 && i >= l.c.MaxBackups, l.c.MaxAge > 0 && b.at.Before(oldest):
			_ = os.Remove(b.path)
		case l.c.Compress && !strings.HasSuffix(b.path, ".gz"):
			_ = compressFile(b.path)
		}
	}
}

// compressFile replaces a file by a compressed one.
func compressFile(path string) (err error) {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	half := path + ".gz.tmp"
	to, err := os.OpenFile(half, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(to)
	_, err = io.Copy(z, from)
	if err = errors.Join(err, z.Close(), to.Close()); err == nil {
		err = os.Rename(half, path+".gz")
	}
	if err != nil {
		_ = os.Remove(half)
		return err
	}
	return os.Remove(path)
}
