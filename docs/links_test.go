// Package docs checks the documents of the repository.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fenced  = regexp.MustCompile("(?ms)^```.*?^```")
	code    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	target  = regexp.MustCompile(`<a id="([^"]+)">`)
	inGo    = regexp.MustCompile(`docs/[a-z0-9/-]+\.md(#[a-z0-9-]+)?`)
	inText  = regexp.MustCompile("`((?:internal|cmd|test|tools|datadir|bench|examples|docs)/[A-Za-z0-9_./-]+)[`:]")
	dropped = regexp.MustCompile("[^a-z0-9 _-]")
)

// anchors returns the link targets of a document, as GitHub makes them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	text = fenced.ReplaceAllString(text, "")
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		name := link.ReplaceAllString(strings.ToLower(h[1]), "")
		all[strings.ReplaceAll(dropped.ReplaceAllString(name, ""), " ", "-")] = true
	}
	for _, a := range target.FindAllStringSubmatch(text, -1) {
		all[a[1]] = true
	}
	return all
}

// projectOf returns the directory that paths of code in a document are relative to: the root of the
// repository, or the project of the tutorial.
func projectOf(document string) string {
	if document == "../docs/tutorials/test-an-operator.md" || strings.HasPrefix(document, "../examples/website/") {
		return "../examples/website"
	}
	return ".."
}

// TestLinks follows the relative links of all documents, the paths of code that they name,
// and the references to documents in Go files.
func TestLinks(t *testing.T) {
	const root = ".."
	known := map[string]map[string]bool{} // anchors by path
	follow := func(from, path, anchor string) {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: there is no %s", from, path)
			return
		}
		if anchor == "" || !strings.HasSuffix(path, ".md") {
			return
		}
		if known[path] == nil {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			known[path] = anchors(string(text))
		}
		if !known[path][anchor] {
			t.Errorf("%s: %s has no #%s", from, path, anchor)
		}
	}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name == ".git" || name == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		extension := filepath.Ext(path)
		if extension != ".md" && extension != ".go" {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if extension == ".go" {
			for _, reference := range inGo.FindAllString(string(raw), -1) {
				file, anchor, _ := strings.Cut(reference, "#")
				follow(path, filepath.Join(root, file), anchor)
			}
			return nil
		}
		for _, named := range inText.FindAllStringSubmatch(string(raw), -1) {
			follow(path, filepath.Join(projectOf(path), named[1]), "")
		}
		text := code.ReplaceAllString(fenced.ReplaceAllString(string(raw), ""), "")
		for _, l := range link.FindAllStringSubmatch(text, -1) {
			file, anchor, _ := strings.Cut(l[1], "#")
			if strings.Contains(file, "://") || strings.HasPrefix(file, "mailto:") {
				continue
			}
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			follow(path, to, anchor)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
