package datadir

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tidemark-dev/tidemark/internal/dirlock"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
)

const (
	// backupDir has the files of the Snapshot.
	backupDir = ".backup"
	pkiDir    = "pki"
	// maxSmallFile bounds each file outside the logs, in bytes.
	maxSmallFile = 1 << 20
)

// backup is a copy of an open data directory.
type backup struct {
	d        *Dir
	opened   *opened
	path     string
	contents Contents
	small    map[string][]byte
}

// Backup makes a copy of the directory within it, while it is in use: between OpenLog and the Close
// of its log. It implements store.BackupSource. A copy takes little space and time if the file
// system supports hard links, but space that the log drops later is free only after Close. Kept
// forks that cannot be opened are left out.
func (d *Dir) Backup(ctx context.Context) (store.Backup, error) {
	if d.opened == nil {
		return nil, fmt.Errorf("data directory %s is not open", d.Path)
	}
	if d.ReadOnly {
		return nil, fmt.Errorf("%w: the data directory is open for reading alone: copy it", errors.ErrUnsupported)
	}
	if !d.opened.backup.TryLock() {
		return nil, store.ErrBackupRunning
	}
	s := &backup{
		d:        d,
		opened:   d.opened,
		path:     filepath.Join(d.Path, backupDir),
		contents: Contents{Format: BackupVersion, Created: time.Now().UTC().Truncate(time.Second)},
		small:    map[string][]byte{},
	}
	if err := s.copy(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Verify implements store.BackupSource: see VerifyBackup.
func (d *Dir) Verify(ctx context.Context, r io.Reader) error {
	_, err := VerifyBackup(ctx, r)
	return err
}

// copy copies the directory.
func (s *backup) copy(ctx context.Context) error {
	if err := s.opened.log.Usable(); err != nil {
		return err
	}
	if err := os.RemoveAll(s.path); err != nil {
		return err
	}
	if err := os.Mkdir(s.path, 0o700); err != nil {
		return err
	}
	sum, err := s.opened.log.Checkpoint(ctx, filepath.Join(s.path, logDir))
	if err != nil {
		return err
	}
	s.contents.Log = contentsOf(sum)
	if err := s.copyForks(ctx); err != nil {
		return err
	}
	if err := s.readSmall(); err != nil { // after the forks: the first one changes FORMAT
		return err
	}
	return ctx.Err()
}

func contentsOf(s pebblelog.Summary) LogContents {
	return LogContents{ResourceVersion: uint64(s.Revision), OldestResourceVersion: uint64(s.Floor), Objects: s.Objects, Changed: s.Time}
}

// copyForks copies the kept forks.
func (s *backup) copyForks(ctx context.Context) error {
	f := s.opened.forks
	names, err := f.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		to := filepath.Join(s.path, forksDir, name)
		sum, err := f.copy(ctx, name, to)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !f.exists(name): // it was deleted
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if s.contents.Skipped == nil {
				s.contents.Skipped = map[string]string{}
			}
			s.contents.Skipped[name] = err.Error()
			f.warn("a kept fork is not in the backup", "fork", name, "error", err)
		default:
			if s.contents.Forks == nil {
				s.contents.Forks = map[string]LogContents{}
			}
			s.contents.Forks[name] = contentsOf(sum)
			continue
		}
		if err := os.RemoveAll(to); err != nil {
			return err
		}
	}
	return nil
}

// names returns the names of the forks that exist.
func (f *forks) names() ([]string, error) {
	entries, err := os.ReadDir(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && f.exists(e.Name()) && archived(forksDir+"/"+e.Name()+"/"+factsFile) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// exists reports whether there is a fork with the name.
func (f *forks) exists(name string) bool {
	_, err := os.Stat(filepath.Join(f.of(name), factsFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// copy copies a fork to a directory that does not exist. If no request has opened the fork yet, it is opened for the
// copy alone.
func (f *forks) copy(ctx context.Context, name, to string) (sum pebblelog.Summary, err error) {
	one, unlock := f.lock(name)
	defer unlock()
	facts, err := readFacts(filepath.Join(f.of(name), factsFile))
	if err != nil {
		return sum, err
	}
	log := one.log
	if log == nil {
		if _, err := os.Stat(f.options(name).Dir); err != nil {
			return sum, fmt.Errorf("the fork has lost its log: %w", err)
		}
		if log, err = pebblelog.Open(ctx, f.options(name)); err != nil {
			return sum, err
		}
		defer func() { err = errors.Join(err, log.Close()) }()
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return sum, err
	}
	if err := os.WriteFile(filepath.Join(to, factsFile), facts, 0o600); err != nil {
		return sum, err
	}
	return log.Checkpoint(ctx, filepath.Join(to, logDir))
}

// readSmall reads the files outside the logs.
func (s *backup) readSmall() error {
	names := []string{formatFile, KubeconfigFile}
	entries, err := os.ReadDir(filepath.Join(s.d.Path, pkiDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() && archived(pkiDir+"/"+e.Name()) {
			names = append(names, pkiDir+"/"+e.Name())
		}
	}
	for _, name := range names {
		b, err := readSmallFile(filepath.Join(s.d.Path, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) { // it was replaced or does not exist
			continue
		}
		if err != nil {
			return err
		}
		s.small[name] = b
	}
	return nil
}

func readSmallFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSmallFile+1))
	if err == nil && len(b) > maxSmallFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxSmallFile)
	}
	return b, err
}

// Write implements store.Backup.
func (s *backup) Write(ctx context.Context, w io.Writer) error {
	a := &archiveWriter{tar: tar.NewWriter(&contextWriter{ctx, w}), time: s.contents.Created}
	about, err := json.MarshalIndent(s.contents, "", "  ")
	if err != nil {
		return err
	}
	if err := a.add(aboutEntry, int64(len(about)+1), bytes.NewReader(append(about, '\n'))); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(s.small)) {
		if err := a.add(name, int64(len(s.small[name])), bytes.NewReader(s.small[name])); err != nil {
			return err
		}
	}
	err = filepath.WalkDir(s.path, func(path string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || !e.Type().IsRegular() || e.Name() == dirlock.File {
			return err
		}
		name, err := filepath.Rel(s.path, path)
		if err != nil {
			return err
		}
		return a.addFile(filepath.ToSlash(name), path)
	})
	if err != nil {
		return err
	}
	return a.end()
}

// addFile adds a file that does not change.
func (a *archiveWriter) addFile(name, path string) error {
	if !archived(name) {
		return fmt.Errorf("%s has no place in a backup", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return a.add(name, info.Size(), f)
}

// Close implements store.Backup.
func (s *backup) Close() error {
	defer s.opened.backup.Unlock()
	if s.opened.closed.Load() { // the next OpenLog removes the files, and may have made others
		return nil
	}
	return os.RemoveAll(s.path)
}
