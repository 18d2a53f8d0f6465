//go:build unix

package datadir_test

import (
	"os"
	"testing"

	"github.com/tidemark-dev/tidemark/datadir"
)

// TestOwner: the directory of somebody else is refused. Only root can make one.
func TestOwner(t *testing.T) {
	path := t.TempDir()
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Logf("no directory of another user can be made here: %v", err)
		return
	}
	refused(t, path, "user 12345", "--data-dir-permissions=group")
	if err := os.Chmod(path, 0o2770); err != nil { // as a volume with an fsGroup is
		t.Fatal(err)
	}
	log, err := (&datadir.Dir{Path: path, GroupAccess: true}).OpenLog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, log)
}
