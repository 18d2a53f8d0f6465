// Command crds collects the CustomResourceDefinitions in the YAML files of Go modules,
// and the sample objects of these definitions. It writes both as compressed lines of
// JSON. The arguments are modules, as module@version. test/crds/testdata/README.md has
// the command that made the files there.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	out := flag.String("o", "test/crds/testdata/definitions.jsonl.gz", "the file to write definitions to")
	samples := flag.String("samples", "test/crds/testdata/samples.jsonl.gz", "the file to write objects to")
	flag.Parse()
	g := &gathering{seen: map[string]bool{}, kinds: map[string]bool{}, objects: map[string]bool{}}
	for _, module := range flag.Args() {
		if err := g.module(module); err != nil {
			log.Fatalf("%s: %v", module, err)
		}
	}
	if err := write(*out, g.lines); err != nil {
		log.Fatal(err)
	}
	if err := write(*samples, g.samples()); err != nil {
		log.Fatal(err)
	}
}

// A gathering holds the collected definitions, each once, and their samples.
type gathering struct {
	lines [][]byte
	seen  map[string]bool

	kinds   map[string]bool // defined kinds, with their versions
	found   []sample
	objects map[string]bool // samples already returned
}

// A sample is an object as a line of JSON.
type sample struct {
	kind string
	line []byte
}

// samples returns the lines of the objects whose kinds are defined, each once.
func (g *gathering) samples() (lines [][]byte) {
	for _, s := range g.found {
		if g.kinds[s.kind] && !g.objects[string(s.line)] {
			g.objects[string(s.line)] = true
			lines = append(lines, s.line)
		}
	}
	fmt.Printf("%d samples\n", len(lines))
	return lines
}

// object adds a possible sample: a document with a group, a version and a kind.
func (g *gathering) object(module string, text []byte) error {
	var o map[string]any
	if yaml.Unmarshal(text, &o) != nil || bytes.Contains(text, []byte("{{")) {
		return nil // a template of one
	}
	kind, _ := o["kind"].(string)
	version, _ := o["apiVersion"].(string)
	if kind == "" || !strings.Contains(version, "/") {
		return nil
	}
	line, err := json.Marshal(map[string]any{"module": module, "object": o})
	g.found = append(g.found, sample{version + " " + kind, line})
	return err
}

// others are folders in which modules keep files of other projects, under other
// licences.
var others = map[string]bool{"test": true, "tests": true, "testdata": true, "third_party": true, "_testdata": true}

// module adds the definitions and objects of a module.
func (g *gathering) module(module string) error {
	text, err := exec.Command("go", "mod", "download", "-json", module).Output()
	if err != nil {
		return err
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(text, &found); err != nil {
		return err
	}
	before := len(g.lines)
	err = filepath.WalkDir(found.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && others[d.Name()] {
			return filepath.SkipDir
		}
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, document := range bytes.Split(data, []byte("\n---")) {
			if err := g.document(module, document); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		return nil
	})
	fmt.Printf("%s: %d\n", module, len(g.lines)-before)
	return err
}

// document adds a definition or an object. It skips templates and anything else.
func (g *gathering) document(module string, text []byte) error {
	if !bytes.Contains(text, []byte("kind: CustomResourceDefinition\n")) || !bytes.Contains(text, []byte("openAPIV3Schema")) {
		return g.object(module, text)
	}
	var o map[string]any
	if yaml.Unmarshal(text, &o) != nil || o["apiVersion"] != "apiextensions.k8s.io/v1" || o["kind"] != "CustomResourceDefinition" {
		return nil // a template of one
	}
	name, _ := o["metadata"].(map[string]any)["name"].(string)
	if name == "" || strings.HasSuffix(name, ".") || strings.Contains(name, "{{") || g.seen[name] { // part of one, or of a template
		return nil
	}
	g.seen[name] = true
	delete(o, "status")
	g.know(o["spec"].(map[string]any))
	line, err := json.Marshal(map[string]any{"module": module, "definition": o})
	g.lines = append(g.lines, line)
	return err
}

// know records the kinds of a definition.
func (g *gathering) know(spec map[string]any) {
	names, _ := spec["names"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for _, each := range versions {
		if v, ok := each.(map[string]any); ok {
			g.kinds[fmt.Sprintf("%v/%v %v", spec["group"], v["name"], names["kind"])] = true
		}
	}
}

func write(path string, lines [][]byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if _, err := z.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}
