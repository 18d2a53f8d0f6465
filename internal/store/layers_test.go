package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLayers: the files of the package use each other one way. So a reader who starts with the values finds nothing that needs
// a file above them.
func TestLayers(t *testing.T) {
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
		for other := range uses[file] {
			visit(other)
		}
		path = path[:len(path)-1]
		done[file] = true
	}
	for file := range uses {
		visit(file)
	}
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
	config := types.Config{Error: func(error) {}} // without an importer: names of other packages are errors, which do not matter
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
