// Package regex estimates the cost of regular expressions without compiling them.
package regex

import (
	"errors"
	"math"
	"regexp/syntax"
	"strings"
)

// ErrParseWork is the error of a pattern that takes too long to parse.
var ErrParseWork = errors.New("the pattern has too many Unicode classes, or too many large ranges that ignore case")

const (
	// MaxSize is the maximum size of a new pattern, as Size returns it.
	MaxSize = 10_000
	// MaxParseWork bounds ParseWork. The parser takes about a tenth of a second for it.
	MaxParseWork = 2_000_000
	// foldWork and classWork are the ranges of characters that the parser visits for one range of a pattern
	// that ignores case, and for one Unicode class.
	foldWork, classWork = 125_000, 4_000
)

// Size returns the approximate number of instructions of a regular expression once it is compiled.
// Repeats multiply it: `((a{1,10}){1,10}){1,10}` has thousands. Matching a text may take as many steps for
// each byte. Size does not compile the pattern, because the time for that grows with the size, too. It
// returns an error for an invalid pattern, and ErrParseWork for one that takes too long to parse.
func Size(pattern string) (int, error) {
	if ParseWork(pattern) > MaxParseWork {
		return 0, ErrParseWork
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, err
	}
	return int(min(sizeOf(parsed), math.MaxInt32)), nil
}

// ParseWork returns an upper bound of the character ranges that the parser visits in addition to those that
// the pattern spells out. `[\pL\pL]` stands for hundreds of ranges twice. For (?i)[b-\x{1e942}], the parser
// looks up the other cases of each character.
func ParseWork(pattern string) int {
	work := classWork * (strings.Count(pattern, `\p`) + strings.Count(pattern, `\P`))
	if !mayFold(pattern) {
		return work
	}
	for i := 0; i+1 < len(pattern); i++ { // other ranges end below 512
		if pattern[i] == '-' && (pattern[i+1] >= 0x80 || strings.HasPrefix(pattern[i+1:], `\x{`)) {
			work += foldWork
		}
	}
	return work
}

// mayFold reports whether a pattern may have the flag i.
func mayFold(pattern string) bool {
	for {
		_, after, found := strings.Cut(pattern, "(?")
		if !found {
			return false
		}
		if flags := strings.TrimLeft(after, "imsU-"); strings.Contains(after[:len(after)-len(flags)], "i") {
			return true
		}
		pattern = after
	}
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
