package store_test

import (
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// TestLayers: the files of the package use each other one way, as the rows in the package comment say. So a reader who starts
// with the values finds nothing that needs a file below them.
func TestLayers(t *testing.T) {
	row := rowsOfFiles(t)
	uses := fileUses(t)
	var path []string
	done := map[string]bool{}
	var visit func(file string)
	visit = func(file string) {
		if i := slices.Index(path, file); i >= 0 {
			circle := append(slices.Clone(path[i:]), file)
			for i := range circle[1:] {
				t.Errorf("in a circle: %s uses %q of %s", circle[i], uses[circle[i]][circle[i+1]], circle[i+1])
			}
			return
		}
		if done[file] {
			return
		}
		path = append(path, file)
		for other, name := range uses[file] {
			if row[other] > row[file] {
				t.Errorf("%s uses %q of %s, which is in a row below it", file, name, other)
			}
			visit(other)
		}
		path = path[:len(path)-1]
		done[file] = true
	}
	for file := range uses {
		visit(file)
		if _, known := row[file]; !known {
			t.Errorf("%s is in no row of the package comment", file)
		}
	}
}

// rowsOfFiles returns the row of each file in the table of the package comment.
func rowsOfFiles(t *testing.T) map[string]int {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "// # Files\n")
	table, _, ends := strings.Cut(table, "// # Words\n")
	if !found || !ends {
		t.Fatal("the package comment has no table of files")
	}
	rows := map[string]int{}
	n := 0
	for line := range strings.Lines(table) {
		line, isRow := strings.CutPrefix(line, "//\t")
		if !isRow {
			continue
		}
		n++
		_, names, _ := strings.Cut(line, "   ")
		for _, name := range strings.FieldsFunc(names, func(r rune) bool { return r == ',' || r == ';' || unicode.IsSpace(r) }) {
			rows[name+".go"] = n
		}
	}
	return rows
}

// generic imports the packages whose generic types hide others: a value of type atomic.Pointer[T], for example. The names of
// other packages are errors, which do not matter here.
type generic struct{ types.Importer }

func (g generic) Import(path string) (*types.Package, error) {
	if path == "sync/atomic" || path == "iter" {
		return g.Importer.Import(path)
	}
	return nil, errors.New("not imported")
}

// fileUses returns, for each file of the package, the files that it uses, each with one name.
func fileUses(t *testing.T) map[string]map[string]string {
	set := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: generic{importer.ForCompiler(set, "source", nil)}, Error: func(error) {}}
	pkg, _ := config.Check("store", set, files, info)
	uses := map[string]map[string]string{}
	for use, object := range info.Uses {
		from, to := set.Position(use.Pos()).Filename, set.Position(object.Pos()).Filename
		if object.Pkg() != pkg || from == to {
			continue
		}
		if uses[from] == nil {
			uses[from] = map[string]string{}
		}
		uses[from][to] = object.Name()
	}
	return uses
}
