package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
)

// movedFile is there in a directory whose objects were moved elsewhere. It says where to. A server that opened the
// directory would acknowledge writes that the new server lacks.
const movedFile = "MOVED"

// maxMarkBytes is more than any MOVED or FOLLOWS file has.
const maxMarkBytes = 8 << 10

// MarkMoved marks the directory as one whose objects were moved. OpenLog then opens it with ReadOnly alone, until the mark
// is removed. The caller has its log open.
func (d *Dir) MarkMoved(to string) error {
	return atomicfile.Write(filepath.Join(d.Path, movedFile), []byte(to+"\n"), 0o600)
}

// checkMoved returns an error if the directory may not be written to, because its objects were moved.
func (d *Dir) checkMoved() error {
	if d.ReadOnly {
		return nil
	}
	to, err := d.MovedTo()
	if err != nil || to == "" {
		return err
	}
	return fmt.Errorf("data directory %s: its objects were moved to %s: start the server there. To go back to the directory, without what was written there since, remove %s", d.Path, to, filepath.Join(d.Path, movedFile))
}

// MovedTo returns where the objects of the directory were moved to; empty: they are in the directory.
func (d *Dir) MovedTo() (string, error) { return d.readMark(movedFile) }

// CopyOf returns the URL of the server that the directory is a copy of; empty: it is none.
func (d *Dir) CopyOf() (string, error) { return d.readMark(followsFile) }

// readMark returns the only line of a file in the directory; empty: there is no file.
func (d *Dir) readMark(name string) (string, error) {
	f, err := os.Open(filepath.Join(d.Path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxMarkBytes))
	return strings.TrimSpace(string(text)), errors.Join(err, f.Close())
}
