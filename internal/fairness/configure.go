package fairness

import (
	"cmp"
	"math"
	"slices"
)

// Configure sets the levels, whose names are distinct, and how many seats they have together.
// The next request sees them. Requests keep the seats and places that they have. A level that
// is not among the levels any more drains: it keeps its share until its last request ends.
func (g *Gate) Configure(levels []Level, totalSeats int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total = totalSeats
	wanted := make(map[string]bool, len(levels))
	for _, c := range levels {
		wanted[c.Name] = true
		if l := g.find(c); l != nil {
			l.configure(c)
			continue
		}
		g.all = append(g.all, newLevel(g, c))
	}
	for _, l := range g.all {
		l.draining.Store(!wanted[l.name] || l.replaced)
	}
	g.rebalance()
}

// find returns the level that c configures, or nil; mu is held. A level that becomes exempt, or
// ceases to be, is another one: the level of before drains.
func (g *Gate) find(c Level) *level {
	for _, l := range g.all {
		if l.name == c.Name && l.exempt == c.Exempt && !l.replaced {
			return l
		}
	}
	for _, l := range g.all {
		l.replaced = l.replaced || l.name == c.Name
	}
	return nil
}

// reap removes the levels that have drained.
func (g *Gate) reap() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rebalance()
}

// rebalance removes the levels that have drained, and computes the limits of the others; mu is
// held.
func (g *Gate) rebalance() {
	g.all = slices.DeleteFunc(g.all, (*level).remove)
	slices.SortStableFunc(g.all, func(a, b *level) int { return cmp.Compare(a.name, b.name) })
	named := make(map[string]*level, len(g.all))
	shares := 0
	for _, l := range g.all {
		shares += l.c.Shares
		if !l.replaced {
			named[l.name] = l
		}
	}
	g.nominalSum = 0
	for _, l := range g.all {
		l.setNominal(nominalSeats(g.total, l.c.Shares, shares), g.total)
		g.nominalSum += l.nominal
	}
	g.adjust()
	g.levels.Store(&named)
}

// nominalSeats is a level's part of all seats, rounded up.
func nominalSeats(total, shares, allShares int) int {
	if allShares == 0 {
		return 0
	}
	return int(math.Ceil(float64(total) * float64(shares) / float64(allShares)))
}

// Adjust sets the current limits of the levels by their demand since the last call. Run calls
// it every ten seconds.
func (g *Gate) Adjust() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.adjust()
}

// adjust moves seats from levels that do not need them to those that do; mu is held.
//
// An exempt level takes the seats that it needs. Each other level gets at least its lower limit,
// and at least its maximum demand since the last time, up to its nominal limit. The rest is shared
// in proportion to the smoothed demands. If too little is left for that, levels get their lower
// limits and the same fraction of their demand above those.
func (g *Gate) adjust() {
	var limited []*level
	var parts []part
	left := g.nominalSum
	var lower, floor float64 // sums
	for _, l := range g.all {
		need := l.measure()
		if l.exempt {
			l.setLimit(max(l.lower, need))
			left -= l.limit
			continue
		}
		p := part{least: float64(max(l.lower, min(l.nominal, need))), most: float64(l.upper)}
		p.target = max(p.least, l.stats.Smoothed)
		l.stats.Target = p.target
		limited, parts = append(limited, l), append(parts, p)
		lower += float64(l.lower)
		floor += p.least
	}
	g.fairFraction = 0
	switch sum := float64(left); {
	case sum <= lower:
		for _, l := range limited {
			l.setLimit(l.lower)
		}
	case sum <= floor:
		for i, l := range limited {
			above := parts[i].least - float64(l.lower)
			l.setLimit(l.lower + int(math.Round(above*(sum-lower)/(floor-lower))))
		}
	default:
		g.fairFraction = divide(sum, parts)
		for i, l := range limited {
			l.setLimit(int(math.Round(parts[i].at(g.fairFraction))))
		}
	}
}

// part is the part of one level in a sum that is divided in proportion to the targets.
type part struct{ least, target, most float64 }

// at returns the part for a fraction of the target.
func (p part) at(fraction float64) float64 {
	return max(p.least, min(p.most, fraction*p.weight()))
}

// weight is the target, but not zero, so that each level gets a part.
func (p part) weight() float64 { return max(p.target, 0.001) }

// divide returns the fraction of the targets at which the parts add up to the sum, or come as
// close as they can.
//
// The total grows with the fraction, along a straight line between two of the points where a
// part reaches its least or its most.
func divide(sum float64, parts []part) float64 {
	total := func(fraction float64) (t float64) {
		for _, p := range parts {
			t += p.at(fraction)
		}
		return t
	}
	var bends []float64
	for _, p := range parts {
		bends = append(bends, p.least/p.weight(), p.most/p.weight())
	}
	slices.Sort(bends)
	below, at := 0.0, total(0)
	for _, b := range bends {
		t := total(b)
		if t >= sum {
			if t > at {
				below += (b - below) * (sum - at) / (t - at)
			}
			return below
		}
		below, at = b, t
	}
	return below
}
