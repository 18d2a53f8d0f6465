package apiextensions

import (
	"regexp/syntax"
	"strings"
	"testing"
)

// TestPatternSize compares sizes with those of compiled programs.
func TestPatternSize(t *testing.T) {
	for _, pattern := range []string{
		"", "a", "^abc$", "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "^((((a{1,10}){1,10}){1,10})*)*$", "a|bc|d+|e*|f?", "(?i)kubernetes", "a{5}", "a{5,}", "(ab{2,3}){4,7}",
		"^.{1,1000}$", `\p{L}+\b[^\s]*?`, strings.Repeat("x", 1000), strings.Repeat("(a|b)?", 100),
	} {
		size, err := PatternSize(pattern)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(program.Inst); size > 2*n+8 || n > 4*size+8 {
			t.Errorf("%.40s: %d, and %d instructions", pattern, size, n)
		}
	}
}
