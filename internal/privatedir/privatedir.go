// Package privatedir makes sure that a data directory is open to one user alone, or also to a group that is meant to
// have access.
package privatedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Dir is a directory with secret files.
type Dir struct {
	Path string
	// GroupAccess accepts a directory that its group can enter, and one of another owner, as a volume with an
	// fsGroup is.
	GroupAccess bool
}

// Stat returns the description of the directory. It returns an error if the path is not that of a directory, or if
// the directory belongs to another user and GroupAccess is false.
func (d Dir) Stat() (fs.FileInfo, error) {
	info, err := os.Stat(d.Path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("data directory %s: %w", d.Path, err)
	case !info.IsDir():
		return nil, fmt.Errorf("data directory %s: it is not a directory", d.Path)
	case !d.GroupAccess:
		return info, d.checkOwner(info)
	}
	return info, nil
}

// Secure returns an error if users can enter the directory who must not. It takes that access from an empty directory,
// which had nothing to read.
func (d Dir) Secure(info fs.FileInfo, empty bool) error {
	refused := fs.FileMode(0o077)
	if d.GroupAccess {
		refused = 0o007
	}
	switch loose := info.Mode().Perm()&refused != 0; {
	case loose && empty:
		return d.narrow(info, refused)
	case loose && checksMode:
		return fmt.Errorf("data directory %s: its mode is %04o, so other users may have read or changed its files: check them, then chmod %o %s%s",
			d.Path, info.Mode().Perm(), 0o777&^refused, d.Path, d.wayOut())
	}
	return nil
}

// narrow removes the refused access from an empty directory. It keeps setgid, by which a volume passes its group on
// to new files.
func (d Dir) narrow(info fs.FileInfo, refused fs.FileMode) error {
	mode := info.Mode()&(fs.ModeSetgid|fs.ModeSticky) | info.Mode().Perm()&^refused | 0o700
	err := os.Chmod(d.Path, mode)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("data directory %s: its mode is %04o, and only its owner can narrow it: choose a directory in it, such as %s, which is made with mode 0700",
			d.Path, info.Mode().Perm(), filepath.Join(d.Path, "data"))
	}
	return err
}

// wayOut returns a hint for errors of a directory that is shared on purpose.
func (d Dir) wayOut() string {
	if d.GroupAccess {
		return ""
	}
	return "; to share it with its group, as a volume with an fsGroup does, set --data-dir-permissions=group (GroupAccess)"
}
