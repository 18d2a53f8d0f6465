package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// most is the number of words in the longest paragraph or list item of a document. No reader takes in more at once.
const most = 120

var (
	anyFence  = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	paragraph = regexp.MustCompile(`\n[ \t]*\n`)
	listItem  = regexp.MustCompile(`(?m)^ *(?:[-*]|\d+\.) `)
)

// TestParagraphs: no paragraph is too long to read. Decisions, which few people read, may have longer ones.
func TestParagraphs(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == "decisions" {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, long := range longParagraphs(string(text)) {
			t.Errorf("%s: a paragraph has more than %d words: make a list or a table of it, or two paragraphs: %.60s...", path, most, long)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	many := strings.Repeat("word ", most+1)
	for text, want := range map[string]int{many: 1, "| " + many: 0, "a\n\n" + many + "\n\nb": 1, "- a\n- " + many: 1, "```\n" + many + "\n```\n": 0, "    " + many: 0} {
		if got := len(longParagraphs(text)); got != want {
			t.Errorf("%.20q has %d long paragraphs, want %d", text, got, want)
		}
	}
}

// longParagraphs returns the paragraphs and list items of a document that are too long. Tables, code and headings do not count.
func longParagraphs(text string) (long []string) {
	for _, p := range paragraph.Split(anyFence.ReplaceAllString(text, ""), -1) {
		begin := 0
		for _, at := range append(listItem.FindAllStringIndex(p, -1), []int{len(p), len(p)}) {
			item := p[begin:at[0]]
			begin = at[0]
			switch {
			case strings.HasPrefix(strings.TrimSpace(item), "|"), strings.HasPrefix(item, "#"), strings.HasPrefix(item, "    "):
			case len(strings.Fields(item)) > most:
				long = append(long, strings.TrimSpace(item))
			}
		}
	}
	return long
}
