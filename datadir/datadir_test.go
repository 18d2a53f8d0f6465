package datadir_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// holdEnv makes the test binary open the directory that it names, and wait.
const holdEnv = "DATADIR_TEST_HOLD"

func TestMain(m *testing.M) {
	if path := os.Getenv(holdEnv); path != "" {
		if _, err := (&datadir.Dir{Path: path}).OpenLog(context.Background()); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("open")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the test closes it
		os.Exit(0)
	}
	os.Exit(tier.Race(m))
}

func mustOpen(t *testing.T, path string) store.Log {
	t.Helper()
	log, err := (&datadir.Dir{Path: path}).OpenLog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func mustClose(t *testing.T, log store.Log) {
	t.Helper()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// refused opens the directory and wants an error that names it and says the rest.
func refused(t *testing.T, path string, says ...string) {
	t.Helper()
	log, err := (&datadir.Dir{Path: path}).OpenLog(t.Context())
	if err == nil {
		t.Error("opened")
		mustClose(t, log)
		return
	}
	for _, s := range append(says, path) {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("the error %q does not say %q", err, s)
		}
	}
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "data")
	log := mustOpen(t, path)
	if got := mode(t, path); got != 0o700 {
		t.Errorf("mode of the directory: got %o, want 700", got)
	}
	o := &store.Object{Key: "a", Held: []byte("1"), Created: 1, Modified: 1}
	if err := log.Append(t.Context(), []store.Entry{{Collection: "c", Key: "a", Revision: 1, Object: o}}, nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, log)

	log = mustOpen(t, path)
	n := 0
	bounds, err := log.Replay(t.Context(), func(string, *store.Object) error { n++; return nil })
	if err != nil || n != 1 || bounds.Head != 1 {
		t.Errorf("after a restart: %d objects, %+v, %v", n, bounds, err)
	}
	mustClose(t, log)
}

func TestModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, path))
	if got := mode(t, path); got != 0o700 {
		t.Errorf("an empty directory: mode %o, want 700", got)
	}
	if err := os.Chmod(path, 0o750); err != nil {
		t.Fatal(err)
	}
	refused(t, path, "0750", "chmod 700")
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, path))
}

// TestGroupAccess: a directory that is shared with its group is accepted if that is
// asked for, and stays shared.
func TestGroupAccess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	shared := func() (store.Log, error) {
		return (&datadir.Dir{Path: path, GroupAccess: true}).OpenLog(t.Context())
	}
	for _, row := range []struct {
		mode, want os.FileMode // want is the mode afterwards; 0: it is refused
	}{
		{0o777, 0o770}, // empty: narrowed
		{0o770, 0o770},
		{0o750, 0o750},
		{0o700, 0o700},
		{0o775, 0},
		{0o701, 0},
	} {
		if err := os.Chmod(path, row.mode); err != nil {
			t.Fatal(err)
		}
		log, err := shared()
		if (err == nil) != (row.want != 0) {
			t.Errorf("mode %o: %v", row.mode, err)
		}
		if err != nil {
			if !strings.Contains(err.Error(), "chmod 770") {
				t.Errorf("mode %o: %v", row.mode, err)
			}
			continue
		}
		mustClose(t, log)
		if got := mode(t, path); got != row.want {
			t.Errorf("mode %o became %o, want %o", row.mode, got, row.want)
		}
	}
	if err := os.Chmod(path, 0o770); err != nil {
		t.Fatal(err)
	}
	refused(t, path, "0770", "--data-dir-permissions=group")
}

func TestForeignDirectory(t *testing.T) {
	path := t.TempDir()
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, path, "other files", "FORMAT")
	if got := mode(t, path); got != 0o755 {
		t.Errorf("the mode of a directory that was refused: %o", got)
	}
	file := filepath.Join(path, "thesis.txt")
	refused(t, file, "not a directory")
}

// TestDirOfServerOnEtcd: the certificates of a server on etcd are no data directory, and the errors say where its
// objects are.
func TestDirOfServerOnEtcd(t *testing.T) {
	path := t.TempDir()
	if err := os.Mkdir(filepath.Join(path, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	refused(t, path, "name etcd with --etcd-servers")
	if _, err := (&datadir.Dir{Path: path}).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "its objects are in etcd") {
		t.Errorf("check: %v", err)
	}
}

// TestCannotBeMade: the error for a directory that cannot be made names the directory.
func TestCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	paths := []string{filepath.Join(file, "data")}
	if link := file + "-link"; os.Symlink("nowhere", link) == nil { // Windows may refuse it
		paths = append(paths, link)
	}
	for _, path := range paths {
		refused(t, path, "data directory "+path+": ")
	}
}

// TestInterrupted opens the remains of an interrupted first start.
func TestInterrupted(t *testing.T) {
	path := t.TempDir()
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"LOCK", "FORMAT.new"} {
		if err := os.WriteFile(filepath.Join(path, f), []byte("1"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(path, "log"), 0o700); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, path))
}

func TestFormat(t *testing.T) {
	path := t.TempDir()
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, path))
	format := filepath.Join(path, "FORMAT")
	good, err := os.ReadFile(format)
	if err != nil {
		t.Fatal(err)
	}
	for content, says := range map[string]string{
		"tidemark data directory, format 4\n":          "format 4, this program knows the formats up to 3",
		"tidemark data directory, format 2000000000\n": "format 2000000000",
		"tidemark data directory, format 01\n":         "no format version",
		"tidemark data directory, format 1":            "no format version",
		"tidemark data directory, format -1\n":         "no format version",
		"":                                             "does not begin",
		"something else\n":                             "does not begin",
		strings.Repeat("x", 1<<20):                     "does not begin",
	} {
		if err := os.WriteFile(format, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, path, "FORMAT", says)
	}
	if err := os.Remove(format); err != nil {
		t.Fatal(err)
	}
	refused(t, path, "no FORMAT")
	if err := os.WriteFile(format, good, 0o600); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, path))
	if err := os.RemoveAll(filepath.Join(path, "log")); err != nil {
		t.Fatal(err)
	}
	refused(t, path, "lost its log")
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	log := mustOpen(t, path)
	refused(t, path, "in use", fmt.Sprintf("process %d", os.Getpid()))
	mustClose(t, log)

	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holdEnv+"="+path)
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 100)
	n, _ := out.Read(said)
	if got := string(said[:n]); got != "open\n" {
		t.Fatalf("the other process says %q", got)
	}
	refused(t, path, "in use", fmt.Sprintf("process %d", holder.Process.Pid))
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := holder.Wait(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, path)) // it ended without closing: the lock is free
}

func TestNoPath(t *testing.T) {
	if _, err := (&datadir.Dir{}).OpenLog(t.Context()); err == nil {
		t.Error("opened a directory without a path")
	}
}
