package follower_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/encryption/kmstest"
)

// TestUnreadable: a follower starts with a Secret that its KMS plugin cannot decrypt any more, also if it is the newest
// change of the copy. It serves the other objects, makes writes, and has the Secret again when that changes.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	p := start(t, &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}, Controllers: []string{"-*"}})
	plugin, dir, file := kmstest.Start(t, "one"), t.TempDir(), filepath.Join(t.TempDir(), "encryption.yaml")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers: [{kms: {apiVersion: v2, name: p, endpoint: '%s', timeout: 1m}}]
`, plugin.Endpoint()), 0o600))
	open := func() *tidemark.Server {
		s := following(p.RESTConfig(), dir)
		s.Encryption.ProviderConfigFile = file
		return s
	}
	f := open()
	must(t, f.Start(t.Context()))
	create := func(s *tidemark.Server, name string) *corev1.Secret {
		t.Helper()
		made, err := clients(s).CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
		return made
	}
	get := func(name string) error {
		_, err := clients(f).CoreV1().Secrets("default").Get(t.Context(), name, metav1.GetOptions{})
		return err
	}
	lost := create(p, "lost")
	must(t, get("lost"))
	must(t, f.Close())
	plugin.Set("two", "ok")
	plugin.Lose("one")
	for i := range 2 {
		f = open()
		must(t, f.Start(t.Context()))
		if err := get("lost"); !apierrors.IsInternalError(err) {
			t.Errorf("start %d: GET of the Secret: %v", i, err)
		}
		for n, s := range []*tidemark.Server{p, f} {
			name := fmt.Sprintf("good-%d-%d", i, n)
			create(s, name)
			must(t, get(name))
		}
		must(t, f.Close())
	}
	f = start(t, open())
	lost.Labels = map[string]string{"a": "b"}
	_, err := clients(p).CoreV1().Secrets("default").Update(t.Context(), lost, metav1.UpdateOptions{})
	must(t, err)
	must(t, get("lost"))
}
