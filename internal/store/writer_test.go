package store

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// writerFiles are the files of the two writers.
var writerFiles = []string{
	"commit.go", "append.go", "room.go", "compact.go",
	"sharedwriter.go", "propose.go", "barrier.go", "reload.go", "heal.go",
}

// seam has the fields and methods of Store that the writers use, with the reason for those that the comment of writer.go
// does not have.
var seam = map[string]string{
	"Any": "", "Bounds": "", "NotOlderThan": "",
	"fits": "", "stage": "", "publish": "",
	"reload": "", "unread": "", "heal": "", "HasUnreadable": "",
	"raiseFloor": "", "trim": "", "window": "",
	"fail": "", "fatal": "", "brokenBy": "",
	"aging": "", "measured": "",
	"MostRecent": "a refusal is decided again as a read of the most recent state",
	"drafts":     "the copies of values that become objects",
	"owned":      "the size of a pending write, as publish counts it",
	"batch":      "a read of values that may be readable now is one of the reads of old objects",
	"old":        "the same",
	"floor":      "raising it again after each group would cost a lock",
	"givenUp":    "a metric",
	"o":          "the options",
	"writer":     "who opens a store on a Shared sets it",
	"ctx":        "it ends with the store",
	"done":       "the same",
	"stop":       "writes that take too long end when the store closes",
	"loop":       "the goroutines of the store",
	"closed":     "compaction ends early when the store closes",
}

// TestWriters: a writer sees a store through few functions, so that each of them can be read without the trees and the
// history, and the other way around.
func TestWriters(t *testing.T) {
	used := map[string]bool{}
	for _, name := range writerFiles {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok || !isStore(selector.X) {
				return true
			}
			if _, ok := seam[selector.Sel.Name]; !ok {
				t.Errorf("%v: a writer uses %s of the store: want one of the functions of writer.go", set.Position(selector.Pos()), selector.Sel.Name)
			}
			used[selector.Sel.Name] = true
			return true
		})
	}
	for name := range seam {
		if !used[name] {
			t.Errorf("seam is stale: no writer uses %s", name)
		}
	}
}

// isStore reports whether an expression is a Store, by the names that the writers use: s, or the field store.
func isStore(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "s"
	case *ast.SelectorExpr:
		return x.Sel.Name == "store"
	}
	return false
}
