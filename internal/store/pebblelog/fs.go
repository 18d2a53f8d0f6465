package pebblelog

import (
	"errors"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// orderedFS is a file system on which a manifest is found if anything names it.
//
// Pebble makes a manifest, syncs it, makes the marker file that names it, and
// then syncs the directory, for both. A file system that keeps the entries of a
// directory in no order may keep the marker alone at a power cut. So the
// directory is synced as soon as there is a manifest.
//
// It calls beforeTable before it makes a table.
type orderedFS struct {
	vfs.FS
	beforeTable func()
}

func (fs orderedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") {
		fs.beforeTable()
	}
	f, err := fs.FS.Create(name, c)
	if err != nil || !strings.HasPrefix(fs.PathBase(name), "MANIFEST-") {
		return f, err
	}
	if err := syncDir(fs.FS, fs.PathDir(name)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Unwrap implements vfs.FS.
func (fs orderedFS) Unwrap() vfs.FS { return fs.FS }
