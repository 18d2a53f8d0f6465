// Command gather writes the definitions of custom resources that Go modules have in
// YAML, which are its arguments (module@version, in the module cache), as lines of
// JSON, compressed.
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
	out := flag.String("o", "testdata/definitions.jsonl.gz", "the file to write")
	flag.Parse()
	g := &gathering{seen: map[string]bool{}}
	for _, module := range flag.Args() {
		if err := g.module(module); err != nil {
			log.Fatalf("%s: %v", module, err)
		}
	}
	if err := g.write(*out); err != nil {
		log.Fatal(err)
	}
}

// gathering is what was found, each definition once.
type gathering struct {
	lines [][]byte
	seen  map[string]bool
}

// others are folders in which modules keep what is not theirs, under licences that are
// not theirs.
var others = map[string]bool{"test": true, "tests": true, "testdata": true, "third_party": true, "_testdata": true}

// module takes up what a module has.
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

// document takes up a definition; all else, and parts of ones, it leaves.
func (g *gathering) document(module string, text []byte) error {
	if !bytes.Contains(text, []byte("kind: CustomResourceDefinition\n")) || !bytes.Contains(text, []byte("openAPIV3Schema")) {
		return nil
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
	line, err := json.Marshal(map[string]any{"module": module, "definition": o})
	g.lines = append(g.lines, line)
	return err
}

func (g *gathering) write(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	for _, line := range g.lines {
		if _, err := z.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}
