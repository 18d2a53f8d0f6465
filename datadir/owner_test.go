//go:build unix

package datadir_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemark-dev/tidemark/datadir"
)

// TestOwner: a directory of another user is refused. Only root can create one.
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

// TestVolumeModes opens a volume with an fsGroup as kubelet creates it: if the mode is too wide,
// the owner narrows it and keeps setgid.
func TestVolumeModes(t *testing.T) {
	for _, mode := range []os.FileMode{0o770, 0o775, 0o777, 0o700} {
		path := t.TempDir()
		if err := os.Chmod(path, mode|os.ModeSetgid); err != nil {
			t.Fatal(err)
		}
		log, err := (&datadir.Dir{Path: path, GroupAccess: true}).OpenLog(t.Context())
		if err != nil {
			t.Fatalf("mode %o: %v", mode, err)
		}
		mustClose(t, log)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := info.Mode(), mode&0o770|os.ModeSetgid|os.ModeDir; got != want {
			t.Errorf("mode %o became %v, want %v", mode, got, want)
		}
	}
}

// TestVolumeOfAnother runs as a user who may write to such a volume but not change its mode: the
// error has a remedy that works. Only root can become another user.
func TestVolumeOfAnother(t *testing.T) {
	if path := os.Getenv("TIDEMARK_TEST_VOLUME"); path != "" {
		_, err := (&datadir.Dir{Path: path, GroupAccess: true}).OpenLog(t.Context())
		if err == nil || !strings.Contains(err.Error(), "0777") || !strings.Contains(err.Error(), path+"/data") {
			t.Errorf("a volume of another owner: %v", err)
		}
		log, err := (&datadir.Dir{Path: path + "/data", GroupAccess: true}).OpenLog(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mustClose(t, log)
		return
	}
	if os.Getuid() != 0 {
		t.Log("not root: cannot become another user")
		return
	}
	// Above t.TempDir others may not look.
	path, err := os.MkdirTemp("", "volume")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(path) })
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(path+"/test", program, 0o755), os.Chmod(path, 0o755), os.Mkdir(path+"/v", 0o700), os.Chmod(path+"/v", 0o777|os.ModeSetgid)); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), path+"/test", "-test.run=^TestVolumeOfAnother$")
	c.Dir = path
	c.Env = append(os.Environ(), "TIDEMARK_TEST_VOLUME="+path+"/v")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
