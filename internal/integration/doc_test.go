package integration_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestMap checks that the package comment names every test file, and no others.
func TestMap(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, row := range regexp.MustCompile(`(?m)^//\t(\w+_test\.go) `).FindAllStringSubmatch(string(text), -1) {
		named = append(named, row[1])
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(name string) bool { return name == "doc_test.go" || name == "main_test.go" })
	slices.Sort(named)
	if !slices.Equal(named, files) {
		t.Errorf("doc.go names %v, the files are %v", named, files)
	}
}
