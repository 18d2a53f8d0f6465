package tidemarktest

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// lagLimit is how long a controller works with an old state at most.
const lagLimit = 2 * time.Second

// EveryLag calls Search.EveryLag with the defaults.
func EveryLag(t TB, env *Env, run func(ctx context.Context, env *Env), checks ...Check) {
	t.Helper()
	Search{}.EveryLag(t, env, run, checks...)
}

// EveryLag restarts a controller on a server whose watch cache is behind: after each write of a client in the first
// run, a new controller begins on a replica that is 1, 2, 4, ... changes behind, back to the beginning. The replica
// stands still until the world has settled, for two seconds at most, and then catches up. Env.Replica describes what a client of a replica sees. Search describes run and checks.
//
// An informer that lists begins with the old state. One with a streaming list, the default of client-go since
// v0.35, begins with the newest state, and only its events are late: set KUBE_FEATURE_WatchListClient=false
// in the test to have both.
func (s Search) EveryLag(t TB, env *Env, run func(ctx context.Context, env *Env), checks ...Check) {
	t.Helper()
	p := &search{Search: s, t: t, name: "EveryLag", run: run, checks: checks}
	p.do(env, p.lags)
}

// lags returns each lag after each write. Changes of Events and Leases do not count.
func (s *search) lags() []disturbance {
	var changes []*Change
	for i := range s.first.Changes {
		if c := &s.first.Changes[i]; !transient(c.Collection) {
			changes = append(changes, c)
		}
	}
	var all []disturbance
	for write, at := range s.writes {
		w := &s.first.Changes[at]
		made := slices.Index(changes, w) + 1 // up to the write
		for lag := 1; ; lag *= 2 {
			if lag >= made {
				all = append(all, s.lag(write, made, s.base()))
				break
			}
			all = append(all, s.lag(write, lag, changes[made-1-lag].Revision))
		}
	}
	return all
}

// lag returns a restart after the write with an index in writes, on a replica at an old revision, some changes
// behind.
func (s *search) lag(write, behind int, old uint64) disturbance {
	w := &s.first.Changes[s.writes[write]]
	return disturbance{
		name: fmt.Sprintf("a restart at revision %d, after write %d of %d, on a replica at revision %d (changes behind: %d)", w.Revision, write+1, len(s.writes), old, behind),
		dir:  fmt.Sprintf("restart-after-write-%d-lag-%d", write+1, behind),
		last: w, from: moment{at: w.Revision, since: old},
		start: func(ctx context.Context, world *Env) (effect, error) {
			r, err := world.replica(ctx, At(old))
			if err != nil {
				return effect{}, err
			}
			return effect{env: r.Env, end: r.catchUp}, nil
		},
	}
}
