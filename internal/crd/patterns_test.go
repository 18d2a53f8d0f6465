package crd

import (
	"context"
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// TestMatchSteps compares random patterns with package regexp.
func TestMatchSteps(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	parts := []string{"a", "b", "^", "$", ".", "(", ")", "*", "+", "?", "|", "{2}", "{1,3}", "{2,}", "[ab]", "[^a]", `\b`, `\B`, "(?i)", "(?m)", "(?s)", "é", `\A`, `\z`, "\n", `\pL`}
	texts := []string{"a", "b", "A", "é", "\n", " ", "\xff"}
	found := 0
	for range 20_000 {
		pattern, text := "", ""
		for range r.IntN(7) {
			pattern += parts[r.IntN(len(parts))]
		}
		for range r.IntN(8) {
			text += texts[r.IntN(len(texts))]
		}
		p := compilePattern(pattern)
		if want, err := regexp.Compile(pattern); (err == nil) != (p.err == nil) {
			t.Fatalf("seed %d: %q: %v, want %v", seed, pattern, p.err, err)
		} else if err != nil {
			continue
		} else if got, err := matchSteps(p.program, text, newPatternWork(t.Context())); err != nil || got != want.MatchString(text) {
			t.Fatalf("seed %d: %q matches %q: %v, %v", seed, pattern, text, got, err)
		} else if got {
			found++
		}
	}
	if found < 1000 {
		t.Errorf("only %d texts matched", found)
	}
}

// TestPatternWork matches hostile stored patterns, and others that must not be rejected.
func TestPatternWork(t *testing.T) {
	const nested = `^((((a{1,10}){1,10}){1,10})*)*$`
	for _, one := range []struct {
		pattern, text string
		n             int
		refused       bool
	}{
		{nested, strings.Repeat("a", 1<<20), 1, true},
		{nested, strings.Repeat("a", 500), 1000, true},
		{`^(([ab]{0,60})*)*c`, strings.Repeat("ab", 1<<20), 1, true},
		{strings.Repeat("(a|b){0,1000}", 50), "a", 1, true}, // too large to be compiled
		{`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, "some-name", 10_000, false},
		{`^[a-z]*$`, strings.Repeat("a", 1<<20), 1, false},
		{`^.{1,1000}$`, strings.Repeat("a", 1000), 100, false},
	} {
		c, work := &compiled{}, newPatternWork(t.Context())
		if one.refused { // sooner
			work.uncounted, work.steps = maxUncounted/10, maxPatternSteps/10
		}
		var err error
		for range one.n {
			if _, err = c.matches(one.pattern, one.text, work); err != nil {
				break
			}
		}
		if refused := errors.Is(err, errPatternWork); refused != one.refused || err != nil && !refused {
			t.Errorf("%.30s for %d times %d bytes: %v", one.pattern, one.n, len(one.text), err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	work := newPatternWork(ctx)
	work.uncounted = 0
	if _, err := (&compiled{}).matches(`^[ab]*c`, strings.Repeat("ab", 500_000), work); !errors.Is(err, context.Canceled) || work.steps < maxPatternSteps/2 {
		t.Errorf("got %v, with %d steps left", err, work.steps)
	}
}
