package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark"
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
	want(exitFailed, `forks "try" already exists`, "--name=try", "-o", filepath.Join(dir, "again"))
	want(exitFailed, "is gone", "--name=old", "--at=1", "-o", filepath.Join(dir, "old"))
	want(exitOK, "/fork/try", "--list")
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
	want(exitFailed, `forks "try" not found`, "--delete=try")
	servertest.WantCode(t, c, "/api/v1/namespaces/default", http.StatusNotFound, "")
	want(exitUsage, "exclude each other", "--list", "--delete=try")
	want(exitUsage, "exclude each other", "--delete=try", "--name=x")
}
