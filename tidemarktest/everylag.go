package tidemarktest

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// lagLimit is how long a controller works with an old state at most, before the replica begins to catch up.
	lagLimit = 2 * time.Second
	// longestLag is how many changes a replica stays behind at most.
	longestLag = 8
	// stepsLimit is how long a replica may take to catch up step by step.
	stepsLimit = 15 * time.Second
)

// EveryLag calls Search.EveryLag with the defaults.
func EveryLag(t TB, env *Env, run func(ctx context.Context, env *Env), checks ...Check) {
	t.Helper()
	Search{}.EveryLag(t, env, run, checks...)
}

// EveryLag runs a controller against a server whose watch cache is behind. Env.Replica describes what its client sees.
// There are two kinds of runs:
//
//   - The replica stays 1, 2, 4 or 8 changes behind from the beginning: each change of the cluster lets the controller see
//     one older change. When the controller waits for changes that it has not seen, the replica moves on by one change at a time.
//     In one run all resources are behind, in others one of those that clients write in the first run.
//   - After each write of a client in the first run, a new controller begins on a replica that is 1, 2, 4, ... changes
//     behind, back to the beginning. The replica stands still until the cluster has settled, for two seconds at most,
//     and then catches up.
//
// A lag ends at the earliest when a client has read an old state or waited for an event, or after four seconds. The
// server decides which change a controller sees when, so a busy machine makes runs longer and not different.
//
// An informer that lists begins with the old state. One with a streaming list, the default of client-go since
// v0.35, begins with the newest state, and only its events are late: set KUBE_FEATURE_WatchListClient=false
// in the test to have both. The test log names the runs in which no client has read an old state or waited for an event.
//
// Search describes run and checks.
func (s Search) EveryLag(t TB, env *Env, run func(ctx context.Context, env *Env), checks ...Check) {
	t.Helper()
	p := &search{Search: s, t: t, name: "EveryLag", run: run, checks: checks, missed: "no client read an old state or waited for an event"}
	p.do(env, p.lags)
}

// lags returns each lag from the beginning, and each lag after each write. Changes of Events and Leases do not count.
func (s *search) lags() []disturbance {
	var changes []*Change
	for i := range s.first.Changes {
		if c := &s.first.Changes[i]; !transient(c.Collection) {
			changes = append(changes, c)
		}
	}
	written := []string{""}
	for _, at := range s.writes {
		if c := s.first.Changes[at].Collection; !slices.Contains(written, c) {
			written = append(written, c)
		}
	}
	if len(written) == 2 { // the same as all resources
		written = written[:1]
	}
	var all []disturbance
	for lag := uint64(1); lag <= min(longestLag, uint64(len(changes))); lag *= 2 {
		for _, resource := range written {
			all = append(all, s.behind(lag, resource))
		}
	}
	for write, at := range s.writes {
		w := &s.first.Changes[at]
		made := slices.Index(changes, w) + 1 // up to the write
		for lag := 1; ; lag *= 2 {
			if lag >= made {
				all = append(all, s.restart(write, made, s.base()))
				break
			}
			all = append(all, s.restart(write, lag, changes[made-1-lag].Revision))
		}
	}
	return all
}

// behind returns a run on a replica that stays some changes behind: all its resources, or one that has a name.
func (s *search) behind(lag uint64, resource string) disturbance {
	o, what, dir := Lag(lag), "a server stays", fmt.Sprintf("lag-%d", lag)
	if resource != "" {
		o, what, dir = o.Of(resource), "a server whose "+resource+" stay", dir+"-"+resource
	}
	return disturbance{
		name: fmt.Sprintf("%s %s behind", what, count(int(lag), "change")),
		dir:  dir,
		from: moment{at: s.base()},
		start: func(ctx context.Context, world *Env) (effect, error) {
			r, err := world.replica(ctx, o)
			if err != nil {
				return effect{}, err
			}
			return effect{env: r.Env, end: r.catchUpInSteps, happened: r.late, always: true}, nil
		},
	}
}

// restart returns a restart after the write with an index in writes, on a replica at an old revision, some changes
// behind.
func (s *search) restart(write, behind int, old uint64) disturbance {
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
			return effect{env: r.Env, end: r.catchUp, happened: r.late, always: true}, nil
		},
	}
}

// catchUpInSteps moves the replica on by one change whenever the cluster has settled, until it has all changes, or stepsLimit
// has passed. Then it ends the lag.
func (r *Replica) catchUpInSteps(ctx context.Context) error {
	steps, cancel := context.WithTimeout(ctx, stepsLimit)
	defer cancel()
	for {
		newest, err := r.settle(steps, idleQuiet)
		if err != nil { // it does not settle in time, or fails below as well
			break
		}
		at, err := r.revision(steps)
		if err != nil || at >= newest {
			break
		}
		if err := r.advance(steps, 1); err != nil {
			break
		}
	}
	return r.catchUp(ctx)
}
