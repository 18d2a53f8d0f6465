package clientconfig_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/clientconfig"
)

const kubeconfig = `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"s"}}],
	"clusters":[{"name":"s","cluster":{"server":"https://HOST:6443"}}]}`

// TestLoad: the flag comes before $KUBECONFIG, and both before the kubeconfig of the default data directory.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	home := clientcmd.RecommendedHomeFile
	clientcmd.RecommendedHomeFile = filepath.Join(dir, "none")
	t.Cleanup(func() { clientcmd.RecommendedHomeFile = home })
	t.Setenv("XDG_DATA_HOME", dir)
	write := func(name string) string {
		path := filepath.Join(dir, name, "kubeconfig")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(kubeconfig, "HOST", name, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	named, flag := write("named"), write("flag")
	t.Setenv("KUBECONFIG", "")
	if _, err := clientconfig.REST(clientconfig.Load("", "")); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("without any kubeconfig: %v", err)
	}
	write("tidemark")
	for _, row := range []struct{ flag, variable, want string }{
		{"", "", "tidemark"},
		{"", named, "named"},
		{flag, named, "flag"},
	} {
		t.Setenv("KUBECONFIG", row.variable)
		config, err := clientconfig.REST(clientconfig.Load(row.flag, ""))
		if want := "https://" + row.want + ":6443"; err != nil || config.Host != want {
			t.Errorf("--kubeconfig %q and $KUBECONFIG %q: %v, %v, want %s", row.flag, row.variable, config, err, want)
		}
	}
}
