package projects

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

type tree = map[string]any

// manifests are those of one project.
type manifests struct {
	definitions []tree
	objects     []tree // of any kind
}

// vendored are folders with files of other projects.
var vendored = []string{"third_party", "_testdata", "vendor", "node_modules"}

// read downloads a module and reads its YAML files. It skips the test where the module cannot be downloaded.
func read(t *testing.T, module string) (m manifests) {
	t.Helper()
	download := exec.Command("go", "mod", "download", "-json", module)
	download.Dir = t.TempDir()
	download.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	text, err := download.Output()
	var found struct{ Dir, Error string }
	if json.Unmarshal(text, &found) != nil || found.Dir == "" {
		t.Skipf("go mod download %s: %v %s", module, err, found.Error)
	}
	seen := map[string]bool{}
	err = filepath.WalkDir(found.Dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(vendored, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".yml":
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, document := range bytes.Split(data, []byte("\n---")) {
			var o tree
			if yaml.Unmarshal(document, &o) == nil {
				m.add(o, seen)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// add adds an object, each once. It ignores templates of objects, and files of other tools.
func (m *manifests) add(o tree, seen map[string]bool) {
	kind, _ := o["kind"].(string)
	version, _ := o["apiVersion"].(string)
	metadata, _ := o["metadata"].(tree)
	text, _ := json.Marshal(o)
	if kind == "" || version == "" || metadata == nil || bytes.Contains(text, []byte("{{")) {
		return
	}
	if kind != "CustomResourceDefinition" {
		if !seen[string(text)] {
			m.objects = append(m.objects, o)
		}
		seen[string(text)] = true
		return
	}
	name, _ := metadata["name"].(string)
	spec, _ := o["spec"].(tree)
	if version != "apiextensions.k8s.io/v1" || name == "" || seen[name] || spec == nil {
		return
	}
	seen[name] = true
	if conversion, ok := spec["conversion"].(tree); ok && conversion["strategy"] == "Webhook" { // it does not run
		delete(spec, "conversion")
	}
	delete(o, "status")
	m.definitions = append(m.definitions, o)
}

// kindOf returns the version and kind of an object, as one text.
func kindOf(o tree) string { return fmt.Sprintf("%v %v", o["apiVersion"], o["kind"]) }

// clone returns a deep copy. It keeps numbers as they were written.
func clone[T any](v T) (c T) {
	text, err := json.Marshal(v)
	if err == nil {
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.UseNumber()
		err = d.Decode(&c)
	}
	if err != nil {
		panic(err)
	}
	return c
}
