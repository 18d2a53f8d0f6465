package follower_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/await"
)

// TestReload: a server and its follower read their encryption configurations again when the files change, and go over
// to another key. The copy of the follower can then be read with that key alone.
func TestReload(t *testing.T) {
	t.Parallel()
	dirs := map[string]string{}
	write := func(name string, keys ...string) {
		t.Helper()
		var all []string
		for _, k := range keys {
			all = append(all, fmt.Sprintf("{name: %s, secret: %s}", k, base64.StdEncoding.EncodeToString([]byte(strings.Repeat(k, 32)))))
		}
		file := filepath.Join(dirs[name], "encryption.yaml")
		must(t, os.WriteFile(file+".new", fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers: [{aescbc: {keys: [%s]}}]
`, strings.Join(all, ", ")), 0o600))
		must(t, os.Rename(file+".new", file))
	}
	server := func(name string, s *tidemark.Server) *tidemark.Server {
		t.Helper()
		s.Encryption = tidemark.Encryption{ProviderConfigFile: filepath.Join(dirs[name], "encryption.yaml"), AutomaticReload: true}
		return start(t, s)
	}
	reloads := func(s *tidemark.Server) string { // that succeeded
		t.Helper()
		all, err := clients(s).RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		must(t, err)
		_, count, _ := strings.Cut(string(all), `apiserver_encryption_config_controller_automatic_reloads_total{status="success"} `)
		count, _, _ = strings.Cut(count, "\n")
		return count
	}
	copied := t.TempDir()
	for _, name := range []string{"primary", "follower"} {
		dirs[name] = t.TempDir()
		write(name, "a")
	}
	p := server("primary", &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}})
	secrets := clients(p).CoreV1().Secrets("default")
	made, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	must(t, err)
	f := server("follower", following(p.RESTConfig(), copied))
	for name, s := range map[string]*tidemark.Server{"primary": p, "follower": f} {
		write(name, "b", "a")
		await.True(t, "the "+name+" has the new key", func() bool { return reloads(s) == "1" })
	}
	again, err := secrets.Update(t.Context(), made, metav1.UpdateOptions{})
	must(t, err)
	if again.ResourceVersion == made.ResourceVersion {
		t.Error("an update that changes nothing did not store the Secret with the new key")
	}
	_, err = clients(f).CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "t"}}, metav1.CreateOptions{})
	must(t, err)
	for name, s := range map[string]*tidemark.Server{"primary": p, "follower": f} {
		write(name, "b")
		await.True(t, "the "+name+" has the new key alone", func() bool { return reloads(s) == "2" })
	}
	must(t, f.Close())
	f = server("follower", following(p.RESTConfig(), copied))
	for name, want := range map[string]string{"s": again.ResourceVersion, "t": ""} {
		o, err := clients(f).CoreV1().Secrets("default").Get(t.Context(), name, metav1.GetOptions{})
		must(t, err)
		if want != "" && o.ResourceVersion != want {
			t.Errorf("%s has resource version %s, want %s", name, o.ResourceVersion, want)
		}
	}
}
