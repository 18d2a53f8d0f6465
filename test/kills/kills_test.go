package kills

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

var killCount = flag.Int("kills", 100, "the number of kills of TestKills")

const (
	clients       = 8
	killsPerRound = 12 // between two checks, so that histories stay short
)

// trial is a world under load.
type trial struct {
	t        *testing.T
	w        *world
	r        *recorder
	chance   *rand.Rand
	watchers []*watcher
	stop     func()

	start      map[string]version // at the beginning of the round
	from       int64
	open       []*op // writes of earlier rounds that may still be made
	sent       int
	seen       int
	unresolved int
}

func newTrial(t *testing.T, o options) *trial {
	t.Helper()
	x := &trial{t: t, chance: testrand.New(t), w: newWorld(t, o), start: map[string]version{}}
	x.r = &recorder{w: x.w, began: time.Now(), codes: map[string]int{}}
	x.from = x.mark()
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	for i := range three + 2 {
		w := &watcher{name: fmt.Sprint("watcher", i), r: x.r, spans: []span{{after: x.from, upTo: x.from}}, chance: rand.New(rand.NewPCG(x.chance.Uint64(), 0))}
		if i < three {
			w.server = x.w.servers[i]
		}
		x.watchers = append(x.watchers, w)
		watching.Go(func() { w.run(ctx) })
	}
	x.stop = sync.OnceFunc(func() {
		cancel()
		watching.Wait()
	})
	t.Cleanup(x.stop)
	return x
}

// mark writes the object "mark" and returns the revision.
func (x *trial) mark() (revision int64) {
	x.t.Helper()
	s := x.w.servers[0]
	until(x.t, "the mark is written", func() bool {
		value := x.r.value()
		body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"mark"},"data":{"value":%q}}`, value)
		if code, _, err := s.do(requestTimeout, http.MethodPatch, collection+"/mark?fieldManager=test&force=true", "application/apply-patch+yaml", body); err != nil || code != http.StatusOK && code != http.StatusCreated {
			return false
		}
		o := &op{kind: get, key: "mark"}
		code, text, err := s.do(requestTimeout, http.MethodGet, collection+"/mark", "", nil)
		if err != nil || code != http.StatusOK {
			return false
		}
		x.r.responded(o, code, text)
		revision = o.version
		return o.value == value
	})
	return revision
}

// load runs clients while f runs.
func (x *trial) load(f func()) {
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range clients {
		chance := rand.New(rand.NewPCG(x.chance.Uint64(), 0))
		all.Go(func() { x.r.client(chance, stop) })
	}
	defer all.Wait()
	defer close(stop)
	f()
}

// round runs f under load, and checks the observations of the clients and watchers.
func (x *trial) round(f func()) {
	x.t.Helper()
	x.load(f)
	for _, m := range x.w.members {
		x.w.memberReady(m)
	}
	for _, s := range x.w.servers {
		x.w.serverReady(s)
	}
	x.check()
}

func (x *trial) check() {
	x.t.Helper()
	upTo := x.mark()
	for _, w := range x.watchers {
		until(x.t, fmt.Sprintf("%s reads up to %d", w.name, upTo), func() bool { return w.after() >= upTo })
	}
	for _, w := range x.watchers {
		w.mu.Lock()
	}
	h, wrong := newHistory(x.start, x.from, upTo, x.watchers)
	for _, w := range x.watchers {
		wrong = append(wrong, w.wrong...)
		w.wrong = nil
		w.events = slices.DeleteFunc(w.events, func(e event) bool { return e.revision <= upTo })
		w.spans = []span{{after: upTo, upTo: max(upTo, w.spans[len(w.spans)-1].upTo)}}
		w.mu.Unlock()
	}
	x.r.mu.Lock()
	ops := x.r.ops
	x.r.ops = nil
	wrong = append(wrong, x.r.odd...)
	x.r.odd = nil
	x.r.mu.Unlock()
	more, open := h.check(ops, x.open)
	wrong = append(wrong, more...)
	wrong = append(wrong, x.final(h)...)
	x.sent += len(ops)
	x.seen += len(h.events)
	x.unresolved += len(open)
	x.start, x.from, x.open = h.stateAt(upTo), upTo, recent(open, ops)
	if len(wrong) > 0 {
		x.t.Errorf("%d violations, the first ones:\n%s", len(wrong), strings.Join(wrong[:min(len(wrong), 20)], "\n"))
	}
}

// recent drops those that are not among the operations of the round: they are too old to be made.
func recent(open, ops []*op) []*op {
	first := int64(math.MaxInt64)
	for _, o := range ops {
		first = min(first, o.call)
	}
	return slices.DeleteFunc(open, func(o *op) bool { return o.call < first })
}

// final compares the state of each server with the history.
func (x *trial) final(h *history) (wrong []string) {
	want := h.stateAt(h.upTo)
	for _, s := range x.w.servers {
		o := &op{kind: list}
		if !x.r.send(s, o) || o.outcome != made {
			wrong = append(wrong, fmt.Sprintf("%s does not list: %v", s.name, o))
		} else if !maps.Equal(o.items, want) {
			wrong = append(wrong, fmt.Sprintf("%s has %v at %d, want %v", s.name, o.items, o.version, want))
		}
	}
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	x.r.ops = nil
	return wrong
}

// report logs the numbers of a trial.
func (x *trial) report(f *faults) {
	cuts, relists := 0, 0
	for _, w := range x.watchers {
		w.mu.Lock()
		cuts, relists = cuts+w.cuts, relists+w.relists
		w.mu.Unlock()
	}
	x.t.Logf("%d requests, %d changes, %d writes of an outcome that stayed unknown; %d watches, %d relists", x.sent, x.seen, x.unresolved, cuts, relists)
	for _, counts := range []map[string]int{f.counts, x.r.codes} {
		var lines []string
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			lines = append(lines, fmt.Sprintf("%s: %d", what, counts[what]))
		}
		x.t.Log(strings.Join(lines, ", "))
	}
	if x.seen == 0 || x.sent == 0 {
		x.t.Error("nothing happened")
	}
}

func (x *trial) faults() *faults { return &faults{w: x.w, chance: x.chance, counts: map[string]int{}} }

// TestKills kills servers, members and leaders under load.
func TestKills(t *testing.T) {
	tier.Full(t)
	n := *killCount
	x := newTrial(t, options{})
	f := x.faults()
	var order []string
	for done := 0; done < n && !t.Failed(); {
		x.round(func() {
			for range min(killsPerRound, n-done) {
				if len(order) == 0 {
					order = slices.Clone(kinds)
					x.chance.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
				}
				f.kill(order[0])
				order = order[1:]
				done++
			}
		})
		t.Logf("after %d of %d kills: %d requests, %d changes", done, n, x.sent, x.seen)
	}
	x.report(f)
}
