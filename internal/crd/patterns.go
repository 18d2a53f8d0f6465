package crd

import (
	"context"
	"errors"
	"math"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"

	"github.com/tidemark-dev/tidemark/internal/regex"
)

// Matching a pattern can take as many steps for each byte of a text as the program of the pattern has
// instructions, although most patterns take few. Package regexp matches until the sum of these products is
// large for one object. From then on matchSteps matches, which counts its steps and can stop.

const (
	// maxUncounted is the maximum sum of instructions times bytes for which package regexp matches, for one object.
	maxUncounted = 10_000_000
	// maxPatternSteps is the maximum number of steps of matchSteps for one object. They take about half a second.
	maxPatternSteps = 50_000_000
	// maxStoredPattern is the maximum size of a pattern that is compiled. Stored definitions may have
	// larger patterns than new ones.
	maxStoredPattern = 10 * regex.MaxSize
)

var errPatternWork = errors.New("matching the patterns of the schema takes too much work")

// pattern is a compiled pattern.
type pattern struct {
	*regexp.Regexp
	program *syntax.Prog
	size    int
	err     error
}

// patternWork is the work that is left for the patterns of one object.
type patternWork struct {
	ctx context.Context //nolint:containedctx // of one validation; nil: matchSteps is not used
	// uncounted is the rest of maxUncounted, and steps of maxPatternSteps.
	uncounted, steps int
}

func newPatternWork(ctx context.Context) *patternWork {
	return &patternWork{ctx: ctx, uncounted: maxUncounted, steps: maxPatternSteps}
}

// matches reports whether a value matches a pattern, which is compiled once. It returns errPatternWork when
// the work is used up, and the error of the context when that ends.
func (c *compiled) matches(text, value string, work *patternWork) (bool, error) {
	made, ok := c.patterns.Load(text)
	if !ok {
		made, _ = c.patterns.LoadOrStore(text, compilePattern(text))
	}
	p := made.(*pattern)
	if p.err != nil {
		return false, p.err
	}
	if cost := p.size * (len(value) + 1); cost <= work.uncounted {
		work.uncounted -= cost
		return p.MatchString(value), nil
	}
	if work.ctx == nil { // of compiled.fits: the library validates the value then, with checked.pattern
		return false, errPatternWork
	}
	return matchSteps(p.program, value, work)
}

func compilePattern(text string) *pattern {
	p := &pattern{}
	if p.size, p.err = regex.Size(text); p.err != nil {
		return p
	}
	if p.size > maxStoredPattern {
		p.err = errPatternWork
		return p
	}
	if p.Regexp, p.err = regexp.Compile(text); p.err != nil {
		return p
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err == nil {
		p.program, err = syntax.Compile(parsed.Simplify())
	}
	p.err = err
	return p
}

// matchSteps reports whether a text matches a program. It runs all threads of the program at once, so it
// visits each instruction at most once for each character (Thompson's algorithm).
func matchSteps(program *syntax.Prog, text string, work *patternWork) (bool, error) {
	m := stepMatcher{program: program, seen: make([]int, len(program.Inst)), steps: &work.steps}
	anchored := program.StartCond()&syntax.EmptyBeginText != 0
	var threads, next []uint32
	before, at := rune(-1), 0
	for position := 1; ; position++ {
		here, width := rune(-1), 0
		if at < len(text) {
			here, width = utf8.DecodeRuneInString(text[at:])
		}
		around := syntax.EmptyOpContext(before, here)
		m.position = position
		next = next[:0]
		for _, pc := range threads { // they read the character before
			if m.program.Inst[pc].MatchRune(before) {
				next = m.follow(next, m.program.Inst[pc].Out, around)
			}
		}
		if at == 0 || !anchored {
			next = m.follow(next, uint32(program.Start), around)
		}
		switch {
		case m.matched:
			return true, nil
		case work.steps < 0:
			work.steps = math.MinInt32
			return false, errPatternWork
		case position%1024 == 0 && work.ctx.Err() != nil:
			return false, work.ctx.Err()
		case width == 0, len(next) == 0 && anchored:
			return false, nil
		}
		threads, next = next, threads
		before, at = here, at+width
	}
}

// stepMatcher is the state of matchSteps.
type stepMatcher struct {
	program  *syntax.Prog
	seen     []int // the position at which an instruction was visited last
	position int
	stack    []uint32
	steps    *int // that are left
	matched  bool
}

// follow appends the instructions that read a character and are reachable from an instruction without
// reading one. around has the empty-width conditions that hold at the position.
func (m *stepMatcher) follow(to []uint32, from uint32, around syntax.EmptyOp) []uint32 {
	m.stack = append(m.stack[:0], from)
	for len(m.stack) > 0 {
		pc := m.stack[len(m.stack)-1]
		m.stack = m.stack[:len(m.stack)-1]
		*m.steps--
		if m.seen[pc] == m.position {
			continue
		}
		m.seen[pc] = m.position
		switch inst := &m.program.Inst[pc]; inst.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			m.stack = append(m.stack, inst.Arg, inst.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(inst.Arg)&^around == 0 {
				m.stack = append(m.stack, inst.Out)
			}
		case syntax.InstCapture, syntax.InstNop:
			m.stack = append(m.stack, inst.Out)
		case syntax.InstMatch:
			m.matched = true
		case syntax.InstFail:
		default:
			to = append(to, pc)
		}
	}
	return to
}
