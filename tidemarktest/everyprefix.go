package tidemarktest

import (
	"context"
	"fmt"
)

// EveryPrefix calls Search.EveryPrefix with the defaults.
func EveryPrefix(t TB, env *Env, run func(ctx context.Context, env *Env), checks ...Check) {
	t.Helper()
	Search{}.EveryPrefix(t, env, run, checks...)
}

// EveryPrefix lets a controller crash after each of its writes: for each write of a client in the first run, a new
// controller begins with the state right after the write. Writes of Events and Leases do not count. Search
// describes run and checks.
func (s Search) EveryPrefix(t TB, env *Env, run func(ctx context.Context, env *Env), checks ...Check) {
	t.Helper()
	p := &search{Search: s, t: t, name: "EveryPrefix", run: run, checks: checks}
	p.do(env, p.crashes)
}

// crashes returns a crash after each write.
func (s *search) crashes() []disturbance {
	var all []disturbance
	for i, change := range s.writes {
		w := &s.first.Changes[change]
		all = append(all, disturbance{
			name: fmt.Sprintf("a crash at revision %d, after write %d of %d", w.Revision, i+1, len(s.writes)),
			dir:  fmt.Sprintf("crash-after-write-%d", i+1),
			last: w, from: moment{at: w.Revision},
		})
	}
	return all
}
