package main

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestFork makes, uses, lists and deletes forks.
func TestFork(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := s.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	fork := func(args ...string) (int, string) {
		code, out, errs := command(append([]string{"fork", "--kubeconfig=" + kubeconfig}, args...)...)
		return code, out + errs
	}
	want := func(wantCode int, wantText string, args ...string) {
		t.Helper()
		if code, out := fork(args...); code != wantCode || !strings.Contains(out, wantText) {
			t.Errorf("fork %v: %d, want %d with %q: %s", args, code, wantCode, wantText, out)
		}
	}
	path := filepath.Join(dir, "try.kubeconfig")
	want(exitOK, "kubectl --kubeconfig="+path, "--name=try", "-o", path)
	want(exitFailed, "exists: name another one", "--name=other", "-o", path)
	want(exitFailed, `Error: fork "try" already exists`, "--name=try", "-o", filepath.Join(dir, "again"))
	want(exitFailed, `Error: fork "try" already exists`, "--name=try", "-o", path)
	want(exitFailed, "is no longer there", "--name=old", "--at=1", "-o", filepath.Join(dir, "old"))
	want(exitOK, "/fork/try", "--list")
	want(exitOK, "BASE TIME", "--list")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig: %v, %v", info, err)
	}
	c, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	servertest.WantCode(t, c, "/api/v1/namespaces/default", http.StatusOK, "")
	want(exitOK, "", "--from=try", "--name=child", "-o", filepath.Join(dir, "child"))
	want(exitOK, "The fork try is deleted", "--delete=try")
	want(exitFailed, `Error: fork "try" not found`, "--delete=try")
	servertest.WantCode(t, c, "/api/v1/namespaces/default", http.StatusNotFound, "")
	want(exitOK, "kubectl --kubeconfig="+path, "--name=try", "-o", path) // replaces the file of the fork before
	servertest.WantCode(t, c, "/api/v1/namespaces/default", http.StatusOK, "")
	want(exitFailed, "in memory only", "--name=kept", "--keep", "-o", filepath.Join(dir, "kept"))
	want(exitUsage, "exclude each other", "--list", "--delete=try")

	// The file that the command chose goes with the fork, and no other one does.
	t.Chdir(dir)
	want(exitOK, "--kubeconfig=mine.kubeconfig", "--name=mine")
	want(exitOK, "The fork mine is deleted.\nIts kubeconfig mine.kubeconfig is removed.", "--delete=mine")
	if _, err := os.Stat("mine.kubeconfig"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the kubeconfig of a deleted fork: %v", err)
	}
	want(exitOK, "", "--name=mine", "-o", "elsewhere")
	if err := os.Rename(kubeconfig, "mine.kubeconfig"); err != nil {
		t.Fatal(err)
	}
	kubeconfig = "mine.kubeconfig"
	want(exitOK, "The fork mine is deleted.\n", "--delete=mine")
	if _, err := os.Stat("mine.kubeconfig"); err != nil {
		t.Errorf("the kubeconfig of the server: %v", err)
	}
	want(exitUsage, "exclude each other", "--delete=try", "--name=x")
}

// TestForkKeep keeps a fork over a restart, as a user sees it.
func TestForkKeep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kubeconfig, path := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "try.kubeconfig")
	start := func() *tidemark.Server {
		s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: filepath.Join(dir, "data")}})
		if err := s.WriteKubeconfig(kubeconfig); err != nil {
			t.Fatal(err)
		}
		return s
	}
	list := func(want string) {
		t.Helper()
		code, out, errs := command("fork", "--list", "--kubeconfig="+kubeconfig)
		if code != exitOK || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%d %s%s, want %s", code, out, errs, want)
		}
	}
	s := start()
	if code, out, errs := command("fork", "--name=try", "--keep", "--kubeconfig="+kubeconfig, "-o", path); code != exitOK {
		t.Fatal(code, out, errs)
	}
	list(`try +- .* [0-9]{5,} +yes +/fork/try`)
	servertest.Stop(t, s)
	s = start()
	list(`try +- .* [0-9-]+T[0-9:]+Z +- +- +yes +/fork/try`)
	c, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	c.Host = s.URL() + "/fork/try" // the port is another one
	servertest.WantCode(t, c, "/api/v1/namespaces/default", http.StatusOK, "")
	list(`try +- .* [0-9]{5,} +yes +/fork/try`)
}
