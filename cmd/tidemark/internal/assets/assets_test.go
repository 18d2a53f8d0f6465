package assets_test

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/assets"
)

func program(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// read returns the contents of the files in a directory, and requires that all can be run.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range all {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v %v", f.Name(), info.Mode(), err)
		}
		files[f.Name()] = string(b)
	}
	return files
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "bin")
	for _, text := range []string{"first", "second"} { // the second replaces the first
		if err := assets.Write(dir, assets.Files{Program: program(t, "tidemark", text), Kubectl: program(t, "k", "kubectl")}); err != nil {
			t.Fatal(err)
		}
		got := read(t, dir)
		if len(got) != 3 || got["kube-apiserver"] != text || got["etcd"] != text || got["kubectl"] != "kubectl" {
			t.Errorf("%q", got)
		}
	}
	bare := t.TempDir()
	if err := assets.Write(bare, assets.Files{Program: program(t, "tidemark", "x")}); err != nil || len(read(t, bare)) != 2 {
		t.Errorf("without kubectl: %v %q", err, read(t, bare))
	}
	if err := assets.Write(bare, assets.Files{Program: "absent"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent program: %v", err)
	}
	if got := read(t, bare); len(got) != 2 {
		t.Errorf("after a failure: %q", got)
	}
}

// TestArchive: the archives of two platforms are in one index, with their hashes. Equal programs make
// equal archives.
func TestArchive(t *testing.T) {
	dir := t.TempDir()
	release := assets.Release{
		Files:   assets.Files{Program: program(t, "tidemark", "program"), Kubectl: program(t, "k", "kubectl")},
		Version: "v1.36.3", OS: "linux", Arch: "amd64", URL: "https://example.com/a/",
	}
	path, err := assets.Archive(dir, release)
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	windows := release
	windows.OS, windows.Windows, windows.Kubectl = "windows", true, ""
	other, err := assets.Archive(dir, windows)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := assets.Archive(dir, release); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(path); err != nil || string(again) != string(first) {
		t.Errorf("the second archive differs from the first, %v", err)
	}
	var index struct {
		Releases map[string]map[string]struct{ Hash, SelfLink string }
	}
	text, err := os.ReadFile(filepath.Join(dir, assets.IndexFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &index); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{path: {"kube-apiserver", "etcd", "kubectl"}, other: {"kube-apiserver.exe", "etcd.exe"}} {
		name := filepath.Base(path)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha512.Sum512(b)
		if got := index.Releases["v1.36.3"][name]; got.Hash != hex.EncodeToString(sum[:]) || got.SelfLink != "https://example.com/a/"+name {
			t.Errorf("%s: %+v", name, got)
		}
		if got := entries(t, path); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
}

// entries returns the names of the regular files of an archive, without directories.
func entries(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg || h.Mode != 0o755 || !strings.HasPrefix(h.Name, "controller-tools/envtest/") {
			t.Errorf("%s: type %c, mode %o", h.Name, h.Typeflag, h.Mode)
		}
		names = append(names, filepath.Base(h.Name))
	}
}

func TestForeignIndex(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, assets.IndexFile), []byte("mine: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := assets.Archive(dir, assets.Release{Files: assets.Files{Program: program(t, "tidemark", "x")}, Version: "v1.36.3", OS: "linux", Arch: "arm64", URL: "https://x"})
	if err == nil || !strings.Contains(err.Error(), assets.IndexFile) {
		t.Errorf("%v", err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("%v %v", all, err)
	}
}

// TestEmulated: a directory and an archive have the version that kube-apiserver emulates. The next directory of the newest
// version has none.
func TestEmulated(t *testing.T) {
	dir := t.TempDir()
	files := assets.Files{Program: program(t, "tidemark", "x"), Emulated: "1.36"}
	if err := assets.Write(dir, files); err != nil {
		t.Fatal(err)
	}
	if got := read(t, dir)[assets.VersionFile]; got != "1.36\n" {
		t.Errorf("the version in the directory is %q", got)
	}
	path, err := assets.Archive(t.TempDir(), assets.Release{Files: files, Version: "v1.36.0", OS: "linux", Arch: "amd64", URL: "https://example.com"})
	if err != nil {
		t.Fatal(err)
	}
	if names := entries(t, path); !slices.Contains(names, assets.VersionFile) {
		t.Errorf("the archive has %q", names)
	}
	files.Emulated = ""
	if err := assets.Write(dir, files); err != nil {
		t.Fatal(err)
	}
	if got, there := read(t, dir)[assets.VersionFile]; there {
		t.Errorf("the version stays: %q", got)
	}
}
