// Package assets writes the programs that test harnesses look for beside a test: kube-apiserver, etcd
// and kubectl, in a directory as KUBEBUILDER_ASSETS names it, or in an archive with an index as
// setup-envtest downloads them.
package assets

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
)

// Files are the programs of one platform.
type Files struct {
	// Program is the path of tidemark. It is the program kube-apiserver and the program etcd: the
	// name by which it is called decides.
	Program string
	// Kubectl is the path of kubectl; empty: there is none.
	Kubectl string
	// Emulated is the version of Kubernetes that kube-apiserver emulates: "1.36"; empty: the newest.
	Emulated string
	// Windows: the names of the programs end in .exe.
	Windows bool
}

// The names of the programs.
const (
	apiServer = "kube-apiserver"
	etcd      = "etcd"
	kubectl   = "kubectl"
)

// VersionFile is the name of the file beside kube-apiserver that has the version to emulate.
const VersionFile = "kubernetes-version"

// entry is a program and the file to copy, or a file and its contents.
type entry struct{ name, from, text string }

func (f Files) entries() []entry {
	all := []entry{{name: apiServer, from: f.Program}, {name: etcd, from: f.Program}}
	if f.Kubectl != "" {
		all = append(all, entry{name: kubectl, from: f.Kubectl})
	}
	if f.Windows {
		for i := range all {
			all[i].name += ".exe"
		}
	}
	if f.Emulated != "" {
		all = append(all, entry{name: VersionFile, text: f.Emulated + "\n"})
	}
	return all
}

const programMode = 0o755

// Write writes the programs to a directory, which it creates. It replaces those that are there, also
// while they run. The directory does not depend on the files that were copied.
func Write(dir string, f Files) error {
	if err := os.MkdirAll(dir, programMode); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, VersionFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	first := ""
	for _, e := range f.entries() {
		to := filepath.Join(dir, e.name)
		if e.text != "" {
			if err := atomicfile.Write(to, []byte(e.text), programMode); err != nil {
				return err
			}
			continue
		}
		if e.from == f.Program && first != "" && replace(to, func(temporary string) error { return os.Link(first, temporary) }) == nil {
			continue
		}
		if err := replace(to, func(temporary string) error { return copyFile(temporary, e.from) }); err != nil {
			return err
		}
		if e.from == f.Program {
			first = to
		}
	}
	return nil
}

// replace replaces a file with one that create makes, at once.
func replace(path string, create func(temporary string) error) error {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".assets-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	temporary := filepath.Join(dir, filepath.Base(path))
	if err := create(temporary); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, programMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
