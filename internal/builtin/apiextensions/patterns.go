package apiextensions

import (
	"math"
	"regexp/syntax"
)

const (
	// MaxPatternSize is the maximum size of a pattern in a schema, as PatternSize returns it.
	MaxPatternSize = 10_000
	// maxDefaultWork bounds the largest pattern times the bytes of all defaults, which it may be matched
	// with.
	maxDefaultWork = 50_000_000
)

// PatternSize returns about the number of instructions of a compiled regular expression. Repeats multiply
// it: `((a{1,10}){1,10}){1,10}` has thousands. To match a text may take as many steps for each byte. The
// pattern is not compiled, which takes as long as it is large.
func PatternSize(pattern string) (int, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, err
	}
	return int(min(sizeOf(parsed), math.MaxInt32)), nil
}

// sizeOf is a float64 because repeats within repeats may exceed integers.
func sizeOf(r *syntax.Regexp) float64 {
	size := 1.0
	if r.Op == syntax.OpLiteral {
		size = float64(len(r.Rune))
	}
	for _, sub := range r.Sub { // the parser limits the depth to 1,000
		size += sizeOf(sub)
	}
	if r.Op == syntax.OpRepeat {
		size *= float64(max(r.Max, r.Min+1, 1))
	}
	return size
}
