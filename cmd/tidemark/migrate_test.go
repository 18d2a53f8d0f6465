package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestMigrateArguments checks that conflicting arguments are rejected, with the command to use.
func TestMigrateArguments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.db")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ args, says string }{
		{"", "--from is missing"},
		{"--from=d", "--to is missing"},
		{"d e", "name the source with --from"},
		{"--from=d --to=e", "are both directories: copy one with tidemark backup and restore"},
		{"--from=d --to=http://127.0.0.1:1", "etcdutl snapshot restore"},
		{"--from=d --to=etcd://127.0.0.1:1", "begin with http:// or https://"},
		{"--from=d --to=etcd-snapshot:", "lacks the file"},
		{"--from=etcd-snapshot:s --to=d", "restore it with etcdutl"},
		{"--from=http://127.0.0.1:1 --to=http://127.0.0.1:2", "is a new data directory"},
		{"--from=http://127.0.0.1:1 --to=etcd-snapshot:s", "etcdctl snapshot save"},
		{"--from=http://127.0.0.1:1 --to=d --no-history", "are for snapshots"},
		{"--from=d --to=etcd-snapshot:s --live --dry-run", "--live copies, and --dry-run does not"},
		{"--from=http://127.0.0.1:1 --to=d --live --dry-run", "--live copies, and --dry-run does not"},
		{"--from=d --to=etcd-snapshot:s --kubeconfig=k", "--kubeconfig is for --live"},
		{"--from=http://127.0.0.1:1 --to=d --live --kubeconfig=k", "--kubeconfig is for --live"},
		{"--from=http://127.0.0.1:1/path --to=d", "127.0.0.1:1/path"},
		{"--from=http://127.0.0.1:1 --to=d --etcd-certfile=none", "want https"},
		{"--from=" + file + " --to=d", "is a file"},
		{"--from=d --to=e --verify", "name one with --from"},
		{"--from=d --to=http://127.0.0.1:1 --verify --dry-run", "no other options"},
		{"--from=d --to=etcd-snapshot:s --event-ttl=0s", "more than zero"},
		{"--from=d --to=etcd-snapshot:s --data-dir-permissions=x", "want owner or group"},
	} {
		code, out, errs := command(append([]string{"migrate"}, strings.Fields(row.args)...)...)
		if code != exitUsage || !strings.Contains(errs, row.says) {
			t.Errorf("migrate %s: %d, want %q in %s%s", row.args, code, row.says, out, errs)
		}
	}
}

// TestMigrateDirectory writes a snapshot of a directory, and none where that cannot be.
func TestMigrateDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: file("data")}})
	if err := s.WriteKubeconfig(file("data/kubeconfig")); err != nil {
		t.Fatal(err)
	}
	from, to := "--from="+file("data"), "--to=etcd-snapshot:"+file("s.db")
	want := func(wantCode int, says string, args ...string) {
		t.Helper()
		code, out, errs := command(append([]string{"migrate"}, args...)...)
		if code != wantCode || !strings.Contains(out+errs, says) {
			t.Errorf("%v: %d, want %d and %q: %s%s", args, code, wantCode, says, out, errs)
		}
	}
	want(exitFailed, "in use by process", from, to)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want(exitFailed, "if it does not run, leave out --live", from, to, "--live")
	want(exitFailed, "no such file", "--from="+file("none"), to)
	if err := os.Mkdir(file("empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	want(exitFailed, "it is not a data directory", "--from="+file("empty"), to)
	want(exitOK, "Nothing was written", from, to, "--dry-run")
	if _, err := os.Stat(file("s.db")); !os.IsNotExist(err) {
		t.Errorf("after a dry run: %v", err)
	}
	want(exitFailed, "no such file", from, "--to=etcd-snapshot:"+file("none/s.db"))
	want(exitOK, "tidemark serve --etcd-servers=", from, to)
	want(exitFailed, "exists: name another one", from, to)
	want(exitOK, "history begins at", from, to+"2", "--no-history")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(here, file("s.db"))
	if err != nil {
		t.Fatal(err)
	}
	want(exitOK, "tidemark serve --etcd-servers=", from, "--to=etcd-snapshot:"+relative+"0")
	if mark, err := os.ReadFile(file("data/MOVED")); err != nil || !strings.Contains(string(mark), " "+file("s.db0")+" ") {
		t.Errorf("the mark has not the absolute path: %q, %v", mark, err)
	}
	if left, err := filepath.Glob(file(".*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	part := file(".s.db4.123.part")
	if err := os.Mkdir(part, 0o700); err != nil {
		t.Fatal(err)
	}
	want(exitFailed, "parts of an unfinished snapshot: "+part, from, to+"4")

	// The source is marked, and opens again when the mark is removed.
	if code, out, errs := command("serve", file("data"), "--port=0"); code != exitFailed || !strings.Contains(errs, file("s.db")) || !strings.Contains(errs, file("data/MOVED")) {
		t.Errorf("a server starts on the directory that was moved: %d, %s%s", code, out, errs)
	}
	if err := os.Remove(file("data/MOVED")); err != nil {
		t.Fatal(err)
	}
	servertest.Stop(t, servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: file("data")}}))

	damaged, err := os.ReadFile(file("data/log/HEAD"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file("data/log/HEAD"), damaged[:len(damaged)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	want(exitFailed, "log/HEAD", from, to+"3")
}

// TestMigrateAway: an etcd that does not respond leaves no directory.
func TestMigrateAway(t *testing.T) {
	tier.Full(t) // the command waits for etcd for 10 s
	to := filepath.Join(t.TempDir(), "new")
	if code, out, errs := command("migrate", "--from=http://127.0.0.1:1", "--to="+to); code != exitFailed || !strings.Contains(errs, "connection refused") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	if _, err := os.Stat(to); !os.IsNotExist(err) {
		t.Errorf("the directory: %v", err)
	}
}
