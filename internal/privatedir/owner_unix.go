//go:build unix

package privatedir

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checksMode: the mode bits of a directory mean something here.
const checksMode = true

// checkOwner refuses a directory of another user: they could change it.
func (d Dir) checkOwner(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("data directory %s: it belongs to user %d, and this process runs as user %d: run as its owner, or use another directory%s", d.Path, st.Uid, os.Geteuid(), d.wayOut())
	}
	return nil
}
