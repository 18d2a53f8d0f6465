package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestBackup backs up, checks and restores, as a user sees it.
func TestBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	want := func(wantCode int, args []string, texts ...string) string {
		t.Helper()
		code, out, errs := command(args...)
		for _, text := range texts {
			if !strings.Contains(out+errs, text) {
				t.Errorf("%v: no %q in %s%s", args, text, out, errs)
			}
		}
		if code != wantCode {
			t.Errorf("%v: %d, want %d: %s%s", args, code, wantCode, out, errs)
		}
		return out
	}
	s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: file("data")}})
	if err := s.WriteKubeconfig(file("kubeconfig")); err != nil {
		t.Fatal(err)
	}
	kubeconfig := "--kubeconfig=" + file("kubeconfig")
	want(exitOK, []string{"backup", kubeconfig, file("b.tar")}, "b.tar is complete", "objects at resource version")
	if info, err := os.Stat(file("b.tar")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup: %v, %v", info, err)
	}
	want(exitFailed, []string{"backup", kubeconfig, file("b.tar")}, "exists: name another one")
	// A symbolic link in place of the temporary file gets nothing of a backup.
	if err := os.WriteFile(file("trap"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file("trap"), file("c.tar.part")); err != nil {
		t.Fatal(err)
	}
	want(exitOK, []string{"backup", kubeconfig, file("c.tar")}, "c.tar is complete")
	if info, err := os.Lstat(file("c.tar")); err != nil || info.Mode() != 0o600 {
		t.Errorf("the backup: %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(file("trap")); err != nil || info.Size() > 0 {
		t.Errorf("the file that a link leads to: %v, %v", info, err)
	}
	want(exitFailed, []string{"backup", kubeconfig, file("none/b.tar")}, "a file in "+file("none")+": no such file")
	if out := want(exitOK, []string{"backup", kubeconfig, "-"}, "objects at resource version"); !strings.HasPrefix(out, "BACKUP\x00") {
		t.Errorf("the standard output is %.20q", out)
	}
	want(exitFailed, []string{"check", file("data")}, "in use by process")
	want(exitFailed, []string{"check", file("none")}, "no such file")
	want(exitOK, []string{"backup", "restore", file("b.tar"), file("restored")}, "complete and consistent", "tidemark serve --data-dir="+file("restored"))
	want(exitFailed, []string{"backup", "restore", file("b.tar"), file("restored")}, "it is not empty")
	want(exitFailed, []string{"backup", "restore", file("kubeconfig"), file("other")}, "it is not a backup of Tidemark")
	want(exitOK, []string{"check", file("restored")}, "is consistent", "objects at resource version")
	want(exitUsage, []string{"check", "--data-dir-permissions=all", file("restored")}, "owner or group")
	want(exitUsage, []string{"backup", "restore", file("b.tar")}, "DIR is missing")

	wals, err := filepath.Glob(file("restored/log/pebble/*.log"))
	if err != nil || len(wals) == 0 {
		t.Fatal(wals, err)
	}
	b, err := os.ReadFile(wals[len(wals)-1])
	if err != nil {
		t.Fatal(err)
	}
	b[100] ^= 1
	if err := os.WriteFile(wals[len(wals)-1], b, 0o600); err != nil {
		t.Fatal(err)
	}
	want(exitFailed, []string{"check", file("restored")}, wals[len(wals)-1]+" is damaged")

	m := servertest.Start(t, &tidemark.Server{})
	if err := m.WriteKubeconfig(file("memory")); err != nil {
		t.Fatal(err)
	}
	want(exitFailed, []string{"backup", "--kubeconfig=" + file("memory"), file("m.tar")}, "in memory only")
	if left, _ := filepath.Glob(file("m.tar*")); len(left) > 0 {
		t.Errorf("a backup that failed leaves %v", left)
	}
}

// TestBackupTerminal: a backup, which has private keys, is not printed on a terminal.
func TestBackupTerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminal: ", err)
	}
	defer terminal.Close()
	t.Setenv("TERM", "xterm")
	var usage usageError
	if err := new(backupFlags).run(t.Context(), "-", terminal, io.Discard); !errors.As(err, &usage) || !strings.Contains(err.Error(), "private keys") {
		t.Errorf("%v", err)
	}
}
