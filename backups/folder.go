package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
	"github.com/tidemark-dev/tidemark/internal/dirlock"
)

// Folder is a Place in a directory. It is created with mode 0700 if it does not exist, and locked while a server uses it.
// The backups have mode 0600.
type Folder struct {
	// Path is the directory.
	Path string

	lock *dirlock.Lock
}

// partSuffix ends the names of backups that are not complete.
const partSuffix = ".part"

// Open implements Place.
func (f *Folder) Open(context.Context) error {
	if f.Path == "" {
		return errors.New("a folder for backups has no path")
	}
	if err := atomicfile.MakeDir(f.Path); err != nil {
		return fmt.Errorf("the folder for backups: %w", err)
	}
	lock, err := dirlock.Take(filepath.Join(f.Path, dirlock.File))
	if errors.Is(err, dirlock.ErrInUse) {
		return fmt.Errorf("another server makes its backups in %s, and would remove those of this one: choose another folder", f.Path)
	}
	if err != nil {
		return fmt.Errorf("the folder for backups: %w", err)
	}
	f.lock = lock
	return nil
}

// Store implements Place.
func (f *Folder) Store(_ context.Context, name string, write func(io.Writer) error, verify func(io.Reader) error) (n int64, err error) {
	if err := f.clean(); err != nil {
		return 0, err
	}
	path := filepath.Join(f.Path, name)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%s exists", path)
	}
	part, err := os.OpenFile(path+partSuffix, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(part.Name()))
		}
	}()
	if n, err = fill(part, write, verify); err != nil {
		return 0, err
	}
	return n, atomicfile.Rename(part.Name(), path)
}

// fill writes and verifies a file, and closes it.
func fill(file *os.File, write func(io.Writer) error, verify func(io.Reader) error) (n int64, err error) {
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := write(file); err != nil {
		return 0, err
	}
	if err := file.Sync(); err != nil {
		return 0, err
	}
	if n, err = file.Seek(0, io.SeekCurrent); err != nil {
		return 0, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	if err := verify(file); err != nil {
		return 0, fmt.Errorf("%s does not read back: %w", file.Name(), err)
	}
	return n, nil
}

// clean removes backups that were not completed.
func (f *Folder) clean() error {
	entries, err := os.ReadDir(f.Path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		whole, part := strings.CutSuffix(e.Name(), partSuffix)
		if _, err := ParseName(whole); part && err == nil {
			if err := os.Remove(filepath.Join(f.Path, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// List implements Place.
func (f *Folder) List(context.Context) ([]File, error) {
	entries, err := os.ReadDir(f.Path)
	if err != nil {
		return nil, err
	}
	var all []File
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was removed
		case err != nil:
			return nil, err
		case info.Mode().IsRegular():
			all = append(all, File{e.Name(), info.Size()})
		}
	}
	return all, nil
}

// Remove implements Place.
func (f *Folder) Remove(_ context.Context, name string) error {
	return atomicfile.Remove(filepath.Join(f.Path, name))
}

// Close implements Place.
func (f *Folder) Close() error { return f.lock.Close() }

// String implements Place.
func (f *Folder) String() string { return f.Path }

var _ Place = (*Folder)(nil)
