package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestKubeconfig: the printed kubeconfig authenticates its user at the server of the directory, which may run. The directory
// of tidemark cluster serves too.
func TestKubeconfig(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "data")
	s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}})
	refused := func(want int, text string, args ...string) {
		t.Helper()
		if code, out, errs := command(append([]string{"kubeconfig"}, args...)...); code != want || out != "" || !strings.Contains(errs, text) {
			t.Errorf("%v: %d %s%s, want %d %s", args, code, out, errs, want, text)
		}
	}
	refused(exitFailed, "name it with --server", dir, "--user=ann")
	for _, in := range []string{dir, root} {
		if err := s.WriteKubeconfig(filepath.Join(in, datadir.KubeconfigFile)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "cluster.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(exitUsage, "DIR is missing")
	refused(exitUsage, "--user is missing", dir)
	refused(exitUsage, "--group is empty", dir, "--user=ann", "--group=")
	refused(exitUsage, "want a second or more", dir, "--user=ann", "--expires=-1h")
	refused(exitUsage, "want at most", dir, "--user=ann", "--expires=200000h")
	refused(exitUsage, "want a URL", dir, "--user=ann", "--server=localhost:6443")
	refused(exitFailed, "has no certificate authority", t.TempDir(), "--user=ann")

	before := entries(t, filepath.Join(dir, "pki"))
	for _, more := range [][]string{{dir, "--expires=1h"}, {dir, "--server=" + s.URL()}, {root, "--expires=1h"}} {
		code, out, errs := command(append([]string{"kubeconfig", "--user=ann: #1", "--group=dev", "--group=on,call"}, more...)...)
		if code != exitOK || errs != "" || strings.Contains(out, "token") {
			t.Fatalf("%v: %d %s%s", more, code, out, errs)
		}
		config, err := clientcmd.RESTConfigFromKubeConfig([]byte(out))
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if user := review.Status.UserInfo; user.Username != "ann: #1" || strings.Join(user.Groups, " ") != "dev on,call system:authenticated" {
			t.Errorf("%s: the user is %+v", more, user)
		}
	}
	if after := entries(t, filepath.Join(dir, "pki")); after != before {
		t.Errorf("the command changed the directory: %s, before %s", after, before)
	}
}

// entries lists the files of a directory, with the times of their last write.
func entries(t *testing.T, dir string) string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, e := range all {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(e.Name() + " " + info.ModTime().Format(time.RFC3339Nano) + "\n")
	}
	return text.String()
}
