//go:build unix

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
)

// filesWith returns the files below a directory that contain a text.
func filesWith(t *testing.T, dir, text string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(text)) {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestCompact: no file of a data directory has an older version of a Secret, a deleted one, its name, or the user who
// made the change, in its log or in that of a kept fork. The present ones stay.
func TestCompact(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := &tidemark.Server{Storage: &datadir.Dir{Path: dir}}
	p := newPastServer(t, s)
	const secrets = "/api/v1/namespaces/default/secrets"
	secret := func(name, password string) string {
		return `{"metadata":{"name":"` + name + `"},"stringData":{"password":"` + password + `"}}`
	}
	// As base64, as the objects have them.
	const old, gone, present = "b2xkLXBhc3N3b3Jk", "Z29uZS1wYXNzd29yZA==", "cHJlc2VudC1wYXNzd29yZA=="
	p.as("alice", "POST", secrets, secret("changed", "old-password"))
	p.as("alice", "POST", secrets, secret("deleted-name", "gone-password"))
	if _, err := s.Root().Fork(t.Context(), tidemark.ForkOptions{Name: "kept", Keep: true}); err != nil {
		t.Fatal(err)
	}
	p.as("alice", "PUT", secrets+"/changed", secret("changed", "present-password"))
	p.as("alice", "PUT", "/fork/kept"+secrets+"/changed", secret("changed", "present-password"))
	p.send(p.server.RESTConfig(), "DELETE", secrets+"/deleted-name", "")
	p.send(p.server.RESTConfig(), "DELETE", "/fork/kept"+secrets+"/deleted-name", "")
	if code, _, errs := command("compact", dir); code != exitFailed || !strings.Contains(errs, "is in use by process") {
		t.Errorf("beside the server: %d %s", code, errs)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{old, gone, "deleted-name", "alice"} {
		if len(filesWith(t, dir, text)) == 0 {
			t.Errorf("no file has %s: the test shows nothing", text)
		}
	}
	aside := filepath.Join(dir, "log", "dropped")
	if err := os.Mkdir(aside, 0o700); err != nil {
		t.Fatal(err)
	}
	code, out, errs := command("compact", dir)
	if code != exitOK || !strings.Contains(out, "has anything that is gone.\nServer: ") || !strings.Contains(out, "Kept fork kept: ") || !strings.Contains(errs, "Warning: "+aside) {
		t.Errorf("%d %s%s", code, out, errs)
	}
	for _, text := range []string{old, gone, "deleted-name", "alice"} {
		if paths := filesWith(t, dir, text); len(paths) > 0 {
			t.Errorf("%s is in %s", text, paths)
		}
	}
	if len(filesWith(t, dir, present)) == 0 {
		t.Error("no file has the present password")
	}
	if code, out, errs := command("check", dir); code != exitOK {
		t.Errorf("check: %d %s%s", code, out, errs)
	}
	if _, out, errs := command("history", "secret/changed", "--data-dir="+dir); !strings.Contains(errs, "No changes found") {
		t.Errorf("the history: %s%s", out, errs)
	}
	if code, _, errs := command("compact", t.TempDir()); code != exitFailed || !strings.Contains(errs, "it is not a data directory") {
		t.Errorf("no data directory: %d %s", code, errs)
	}
	if code, _, errs := command("compact"); code != exitUsage {
		t.Errorf("no argument: %d %s", code, errs)
	}
}
