package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
	"github.com/tidemark-dev/tidemark/internal/privatedir"
)

// CopyPKI copies the certificates and keys of the data directory from to that of another server, which shares its etcd or
// takes its place. The directory to is made if it does not exist, readable by its owner alone. Certificates that it has
// already are an error.
func CopyPKI(from, to string) error {
	entries, err := os.ReadDir(filepath.Join(from, pkiDir))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data directory %s: it has no folder %s: name the directory of a server that was started", from, pkiDir)
	}
	if err != nil {
		return err
	}
	target := filepath.Join(to, pkiDir)
	if _, err := os.Lstat(target); err == nil {
		return fmt.Errorf("the folder %s exists: its server has made certificates and keys of its own; if no client relies on them, remove it", target)
	}
	private := privatedir.Dir{Path: to}
	switch info, err := private.Stat(); {
	case errors.Is(err, fs.ErrNotExist):
		if err := atomicfile.MakeDir(to); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		has, err := os.ReadDir(to)
		if err == nil {
			err = private.Secure(info, len(has) == 0)
		}
		if err != nil {
			return err
		}
	}
	// The folder gets its name when it is complete.
	part, err := os.MkdirTemp(to, "."+pkiDir+".*.part")
	if err != nil {
		return err
	}
	if err := copyFiles(filepath.Join(from, pkiDir), part, entries); err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	if err := atomicfile.Rename(part, target); err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	return nil
}

// copyFiles copies the regular files among entries.
func copyFiles(from, to string, entries []os.DirEntry) error {
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		content, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err == nil {
			err = atomicfile.Write(filepath.Join(to, e.Name()), content, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
