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

// maxMovedBytes is more than any MOVED file has.
const maxMovedBytes = 8 << 10

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
	path := filepath.Join(d.Path, movedFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	to, err := io.ReadAll(io.LimitReader(f, maxMovedBytes))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return fmt.Errorf("data directory %s: its objects were moved to %s: start the server there. To go back to the directory, without what was written there since, remove %s", d.Path, strings.TrimSpace(string(to)), path)
}
