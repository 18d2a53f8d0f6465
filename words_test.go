package tidemark_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wordRules are words and phrases that comments and documents do not use, with the terms that a Kubernetes engineer
// expects instead. Most of them once stood for several things, or made a reader guess. In is the directory below which a rule
// holds, with a slash at its end; empty: everywhere.
var wordRules = []struct{ word, use, in string }{
	{word: "answer", use: "response; responds, returns"},
	{word: "answers", use: "responses; responds, returns"},
	{word: "answered", use: "responded, got a response"},
	{word: "answering", use: "responding"},
	{word: "whoever", use: "the client, the caller, the user"},
	{word: "nobody", use: "no client, no caller, no reader"},
	{word: "everybody", use: "all clients, all users"},
	{word: "somebody", use: "another client, a user"},
	{word: "of then", use: "historical; at that time"},
	{word: "of now", use: "current"},
	{word: "as it has to be", use: "valid; immutable"},
	{word: "as they have to be", use: "valid; immutable"},
	{word: "what is set once", use: "an immutable field"},
	{word: "is well", use: "is healthy"},
	{word: "are well", use: "are healthy"},
	{word: "come again", use: "is repeated, reconnects, returns"},
	{word: "comes again", use: "is repeated, reconnects, returns"},
	{word: "told", use: "gets, is called with"},
	{word: "heed", use: "use"},
	{word: "heeds", use: "uses"},
	{word: "lent", use: "borrowed"},
	{word: "mend", use: "repair, reconcile"},
	{word: "mends", use: "repairs, reconciles"},
	{word: "shaken", use: "delayed, reordered"},
	{word: "figures", use: "metrics"},
	{word: "for good", use: "permanently"},
	{word: "what", use: "the noun: the objects, the changes, the bytes", in: "internal/store/"},
	{word: "the tip", use: "the newest state", in: "internal/store/"},
	{word: "the follower", use: "the shared writer; the reader of Follow", in: "internal/store/"},
	{word: "followers", use: "the readers of Follow", in: "internal/store/"},
}

// wordUses are the exceptions: a file, or a directory with a slash at its end, that uses a word, and why. An empty word
// stands for all of them.
var wordUses = []struct{ in, word, why string }{}

// TestWords finds forbidden words in comments and documents. It does not read testdata, dated results and the
// changelog.
func TestWords(t *testing.T) {
	rules := map[string][]int{} // indexes in wordRules, by the first word
	for i, r := range wordRules {
		first, _, _ := strings.Cut(r.word, " ")
		rules[first] = append(rules[first], i)
	}
	used := make([]bool, len(wordUses))
	excused := func(path, word string) bool {
		i := slices.IndexFunc(wordUses, func(u struct{ in, word, why string }) bool {
			if u.word != "" && u.word != word {
				return false
			}
			return u.in == path || strings.HasSuffix(u.in, "/") && strings.HasPrefix(path, u.in)
		})
		if i >= 0 {
			used[i] = true
		}
		return i >= 0
	}
	check := func(path string, line int, text string) {
		text = strings.ToLower(text)
		for i := 0; i < len(text); i++ {
			begin := i
			for i < len(text) && isWord(text[i]) {
				i++
			}
			for _, n := range rules[text[begin:i]] {
				r := wordRules[n]
				if !strings.HasPrefix(path, r.in) {
					continue
				}
				if rest, ok := strings.CutPrefix(text[begin:], r.word); ok && (rest == "" || !isWord(rest[0])) && !excused(path, r.word) {
					t.Errorf("%s:%d: %q: use %s", path, line, r.word, r.use)
				}
			}
		}
	}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		path = filepath.ToSlash(path)
		isGo := strings.HasSuffix(path, ".go")
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "dist" || path == "bench/results" || d.Name() != "." && d.Name()[0] == '.'):
			return fs.SkipDir
		case d.IsDir() || !isGo && !strings.HasSuffix(path, ".md") || path == "CHANGELOG.md" || path == "words_test.go":
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n := 0
		for line := range strings.Lines(string(b)) {
			n++
			if isGo {
				if line = comment(line); line == "" {
					continue
				}
			}
			check(path, n, line)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, u := range wordUses {
		if u.why == "" {
			t.Errorf("%s has no reason for %q", u.in, u.word)
		}
		if !used[i] {
			t.Errorf("wordUses is stale: %s does not use %q", u.in, u.word)
		}
	}
}

// isWord reports whether a byte is a part of a word, as in "well-formed".
func isWord(b byte) bool {
	return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || b == '_' || b == '-' || b >= 0x80
}

// comment returns the comment of a line of Go, or "".
func comment(line string) string {
	trimmed := strings.TrimSpace(line)
	if text, ok := strings.CutPrefix(trimmed, "//"); ok {
		return text
	}
	_, text, _ := strings.Cut(trimmed, " // ")
	return text
}
