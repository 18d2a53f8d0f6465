// Package atomicfile replaces files atomically.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// Write replaces the file at path by one with the data and the permissions. Readers see the old
// file or the new one, never a part, also after a power loss. When Write returns nil, the new
// file is durable. The file has its permissions before its first byte. A symbolic link is
// replaced itself. Write is safe for concurrent use: one of the writers wins.
func Write(path string, data []byte, perm fs.FileMode) (err error) {
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	// CreateTemp chooses an unpredictable name, and creates the file exclusively with 0600.
	f, err := os.CreateTemp(dir, "."+name+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close() // a second time at worst
			os.Remove(f.Name())
		}
	}()
	if err := f.Chmod(perm); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return Rename(f.Name(), path)
}

// Rename gives a file another name in its directory. A file that has the name is replaced. When Rename returns nil, the
// name is durable.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

// MakeDir creates a directory and its parents with mode 0700. When it returns nil, they are
// durable. Existing directories are not changed.
func MakeDir(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := MakeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, err = os.Stat(path); err != nil {
		return err
	} else if !info.IsDir() {
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	}
	return syncDir(parent)
}

// syncDir makes the names in a directory durable, where the system can sync directories.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Remove removes a file. When it returns nil, the removal is durable. A file that does not exist is no error.
func Remove(path string) error {
	if err := os.Remove(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return syncDir(filepath.Dir(path))
}

// SyncDirs makes the names in a directory and in all directories below it durable, and that of the directory itself.
func SyncDirs(dir string) error {
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		return syncDir(path)
	})
	return errors.Join(err, syncDir(filepath.Dir(dir)))
}
