package kubeconfig_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tidemark-dev/tidemark/internal/kubeconfig"
)

var config = kubeconfig.Config{
	Server: "https://[::1]:6443", CA: []byte("-----BEGIN CERTIFICATE-----\n"), TLSServerName: "loopback", Token: "secret",
}

// TestYAML reads the file as clients do.
func TestYAML(t *testing.T) {
	c, err := clientcmd.RESTConfigFromKubeConfig(config.YAML())
	if err != nil {
		t.Fatal(err)
	}
	if c.Host != config.Server || c.BearerToken != config.Token || !bytes.Equal(c.CAData, config.CA) || c.ServerName != config.TLSServerName {
		t.Errorf("clients read %+v", c)
	}
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder", "kubeconfig")
	write := func(c kubeconfig.Config) {
		t.Helper()
		if err := kubeconfig.Write(path, c); err != nil {
			t.Fatal(err)
		}
	}
	write(config)
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	other := config
	other.Server = "https://127.0.0.1:1234"
	write(other)
	if c, err := clientcmd.BuildConfigFromFlags("", path); err != nil || c.Host != other.Server {
		t.Errorf("after a second write: %v %v", c, err)
	}
}

// change edits the file as kubectl config does: through clientcmd, which drops
// comments.
func change(t *testing.T, path string, edit func(*clientcmdapi.Config)) {
	t.Helper()
	c, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edit(c)
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
}

// TestEdited: a namespace that a user sets with kubectl stays, and the file stays
// ours.
func TestEdited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kubeconfig.Write(path, config); err != nil {
		t.Fatal(err)
	}
	change(t, path, func(c *clientcmdapi.Config) { c.Contexts["tidemark"].Namespace = "mine" })
	if err := kubeconfig.Write(path, config); err != nil {
		t.Fatal(err)
	}
	change(t, path, func(c *clientcmdapi.Config) {
		if got := c.Contexts["tidemark"].Namespace; got != "mine" {
			t.Errorf("the namespace is %q after a restart", got)
		}
	})
	other := config
	other.Token = "another"
	if err := kubeconfig.Write(path, other); err != nil {
		t.Errorf("with another token: %v", err)
	}
}

func TestForeign(t *testing.T) {
	dir := t.TempDir()
	ours := string(config.YAML())
	merged := filepath.Join(dir, "merged")
	if err := kubeconfig.Write(merged, config); err != nil {
		t.Fatal(err)
	}
	change(t, merged, func(c *clientcmdapi.Config) { c.Clusters["prod"] = clientcmdapi.NewCluster() })
	added, err := os.ReadFile(merged)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"a text":              "do not lose me",
		"a kubeconfig":        "apiVersion: v1\nkind: Config\n",
		"another cluster":     strings.ReplaceAll(ours, "name: tidemark\n", "name: kind\n"),
		"without the mark":    strings.ReplaceAll(ours, "tidemark.dev/kubeconfig", "x"),
		"ours and one beside": string(added),
		"our comment alone":   "# Written by tidemark\nfoo: bar\n",
	} {
		path := filepath.Join(dir, "foreign")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(dir, "link")
		os.Remove(link)
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{path, link} {
			var foreign *kubeconfig.ForeignError
			if err := kubeconfig.Write(name, config); !errors.As(err, &foreign) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if got, _ := os.ReadFile(path); string(got) != text {
			t.Errorf("%s: the file now holds\n%s", what, got)
		}
	}
}

// TestEmpty: a file that mktemp made is written to, and closed to others.
func TestEmpty(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := kubeconfig.Write(path, config); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}
