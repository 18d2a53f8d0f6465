package regex_test

import (
	"errors"
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/regex"
)

// TestSize compares sizes with those of compiled programs.
func TestSize(t *testing.T) {
	for _, text := range []string{
		"", "a", "^abc$", "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "^((((a{1,10}){1,10}){1,10})*)*$", "a|bc|d+|e*|f?", "(?i)kubernetes", "a{5}", "a{5,}", "(ab{2,3}){4,7}",
		"^.{1,1000}$", `\p{L}+\b[^\s]*?`, strings.Repeat("x", 1000), strings.Repeat("(a|b)?", 100),
	} {
		size, err := regex.Size(text)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(program.Inst); size > 2*n+8 || n > 4*size+8 {
			t.Errorf("%.40s: %d, and %d instructions", text, size, n)
		}
	}
}

// TestParseWork checks that patterns whose cost to parse is not their length are refused before that.
func TestParseWork(t *testing.T) {
	for _, text := range []string{
		"(?i)[" + strings.Repeat("b-\U0001e942", 10_000) + "]", `a(?s-m:(?mi:[` + strings.Repeat(`b-\x{1e942}`, 10_000) + "]))",
		"[" + strings.Repeat(`\pL`, 10_000) + "]", "[" + strings.Repeat(`\P{Greek}`, 10_000) + "]",
	} {
		if _, err := regex.Size(text); !errors.Is(err, regex.ErrParseWork) {
			t.Errorf("%.40s: %v", text, err)
		}
	}
	for _, text := range []string{
		"[" + strings.Repeat(`b-\x{1e942}`, 100) + "]", `(?i)^[\p{L}\p{N}_-][\x{4e00}-\x{9fff}\p{L}]*$`, "(?i)" + strings.Repeat(`[a-z0-9\x01-\x1f-]`, 100), "(?P<id>a-\u00e9)" + strings.Repeat("-\u00e9", 100),
	} {
		if _, err := regex.Size(text); err != nil {
			t.Errorf("%.40s: %v", text, err)
		}
	}
}
