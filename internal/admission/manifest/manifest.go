// Package manifest reads webhooks, policies and bindings of admission plugins from the files of a
// directory (staticManifestsDir of a plugin's configuration). They are in effect from the start on,
// before any object is stored, and no client can change them.
//
// The directory is read again when its files change. A set of files is used as a whole: if one of
// them is invalid, the last valid set stays in use.
package manifest

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/reload"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Suffix ends the names of all objects in files. Clients cannot create objects with such names.
const Suffix = ".static.k8s.io"

// Set is what the files of a directory have. It is immutable. The objects have their defaults, are
// valid, and are sorted by name; their keys are their names.
type Set struct {
	// Objects are policies or webhook configurations.
	Objects []*store.Object
	// Bindings are those of the policies.
	Bindings []*store.Object

	hash string // of the files, "" if there are none
}

var none = &Set{}

// Directory is a directory of files for one plugin. A nil Directory is empty. The methods are safe
// for concurrent use.
type Directory struct {
	plugin, path string
	kinds        *kinds
	metrics      *Metrics
	first        *Set

	files *reload.Value[*Set] // nil before Watch
	// last and failed are the result of the last load. reload.Value calls load from one goroutine at
	// a time.
	last   *Set
	hash   string // of the files that were read last
	failed error  // of these files
}

// Check returns an error if a path cannot be that of a directory of files.
func Check(path string) error {
	at := field.NewPath("staticManifestsDir")
	if !filepath.IsAbs(path) {
		return field.Invalid(at, path, "must be an absolute file path")
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return field.Invalid(at, path, fmt.Sprintf("unable to read: %v", err))
	case !info.IsDir():
		return field.Invalid(at, path, "must be a directory")
	}
	return nil
}

// Open reads the files of a plugin, which is one of those that Plugins returns.
func Open(plugin, path string) (*Directory, error) {
	d := &Directory{plugin: plugin, path: path, kinds: kindsOf[plugin]}
	var err error
	if d.first, err = d.load(); err != nil {
		return nil, fmt.Errorf("failed to load static %s manifests from %q: %w", d.kinds.what, path, err)
	}
	return d, nil
}

// Watching says how a Directory is watched.
type Watching struct {
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Log gets a line for each reload, and for each that failed.
	Log *slog.Logger
	// Metrics count the reloads.
	Metrics *Metrics
}

// Watch makes Get look for changes, about once a second. It is called once, before Get.
func (d *Directory) Watch(w Watching) {
	if d == nil {
		return
	}
	d.metrics = w.Metrics
	d.metrics.watch(d)
	log, started := w.Log.With("plugin", d.plugin), false
	load := func() (*Set, error) {
		s, err := d.load()
		if err != nil && !started { // the files have changed since Open
			log.Error("what was read at the start stays in use: the manifests cannot be read", "dir", d.path, "err", err)
			s, err = d.first, nil
		}
		started = true
		return s, err
	}
	d.files, _ = reload.New(reload.Config[*Set]{List: d.list, Load: load, Now: w.Now, Log: log})
}

// Get returns the objects.
func (d *Directory) Get() *Set {
	switch {
	case d == nil:
		return none
	case d.files == nil:
		return d.first
	}
	return d.files.Get()
}

// load reads the files. As long as they are the same, so are the objects.
func (d *Directory) load() (*Set, error) {
	files, err := readAll(d.path)
	if err != nil {
		d.metrics.failed(d.plugin)
		return nil, err
	}
	if hash := hashOf(files); d.last == nil || hash != d.hash {
		d.hash, d.failed = hash, nil
		next, err := d.kinds.read(files)
		if err != nil {
			d.failed = err
			d.metrics.failed(d.plugin)
			return nil, err
		}
		next.hash = hash
		d.last = next
		d.metrics.loaded(d.plugin)
	}
	return d.last, d.failed
}

// list returns the paths whose changes are changes of the set: the directory and its files.
func (d *Directory) list() []string {
	paths := []string{d.path}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return paths
	}
	for _, e := range entries {
		if !e.IsDir() && isManifest(e.Name()) {
			paths = append(paths, filepath.Join(d.path, e.Name()))
		}
	}
	return paths
}

// hashOf returns the hash of files as kube-apiserver shows it.
func hashOf(files []file) string {
	h := sha256.New()
	for _, f := range files {
		h.Write(f.data)
		h.Write([]byte{0})
	}
	if len(files) == 0 {
		return ""
	}
	return fmt.Sprintf("sha256:%x", h.Sum(nil))
}
