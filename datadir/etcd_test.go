//go:build unix

package datadir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/etcdstore"
	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/storage"
)

// TestEtcdDirectory opens clusters with directories that are those of a server, and others. No etcd is needed: a connection
// is made later.
func TestEtcdDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		mode  os.FileMode // 0: there is no directory
		files []string    // those that end with a slash are directories
		group bool
		want  string // in the error; empty: none
	}{
		"none":                             {},
		"empty, open to others":            {mode: 0o755},
		"certificates of another server":   {mode: 0o700, files: []string{"pki/"}},
		"a start that was interrupted":     {mode: 0o755, files: []string{"LOCK"}},
		"open to others":                   {mode: 0o755, files: []string{"pki/"}, want: "chmod 700"},
		"open to its group":                {mode: 0o770, files: []string{"pki/"}, want: "--data-dir-permissions=group"},
		"open to its group, which is fine": {mode: 0o770, files: []string{"pki/"}, group: true},
		"that of a member of etcd":         {mode: 0o700, files: []string{"member/"}, want: "it holds other files"},
		"other files and a lock":           {mode: 0o700, files: []string{"LOCK", "notes"}, want: "it holds other files"},
		"that of a log":                    {mode: 0o700, files: []string{"FORMAT", "pki/"}, want: "it has objects"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "data")
			if c.mode != 0 {
				if err := os.Mkdir(path, c.mode); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(path, c.mode); err != nil { // the umask narrowed it
					t.Fatal(err)
				}
			}
			for _, f := range c.files {
				var err error
				if dir, is := strings.CutSuffix(f, "/"); is {
					err = os.Mkdir(filepath.Join(path, dir), 0o700)
				} else {
					err = os.WriteFile(filepath.Join(path, f), nil, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			cluster := &etcdstore.Cluster{Servers: []string{"http://127.0.0.1:1"}, Path: path, GroupAccess: c.group}
			o, err := cluster.Open(t.Context(), storage.Options{Encryption: encryption.NewActive(new(encryption.Set))})
			if err == nil {
				if err := o.Shared.Close(); err != nil {
					t.Error(err)
				}
			}
			switch {
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			case c.want == "" && err != nil:
				t.Error(err)
			}
			if c.want != "" && len(c.files) > 0 {
				if files, _ := os.ReadDir(path); len(files) != len(c.files) {
					t.Errorf("the refused directory has %v now", files)
				}
			}
			if info, err := os.Stat(path); c.want == "" && !c.group && (err != nil || info.Mode().Perm() != 0o700) {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
		})
	}
}
