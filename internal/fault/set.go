package fault

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Max is how many rules a set holds.
const Max = 100

// Errors of a Set.
var (
	ErrTooMany  = errors.New("there are as many faults as a world may have")
	ErrNotFound = errors.New("there is no such fault")
)

// Set holds the rules of one world. The zero value has none. All methods are safe for concurrent use.
type Set struct {
	active atomic.Bool // there are rules, or requests are recorded

	mu        sync.Mutex
	rules     []*rule // in the order in which they were added
	last      uint64  // ID
	recording bool
	recorded  []Request
	missed    uint64
}

type rule struct {
	Rule
	id          string
	seen, fired uint64
	random      *rand.Rand
}

// State is a rule and its counts.
type State struct {
	ID string `json:"id"`
	Rule
	// Selected is how many requests the rule has selected, Fired how often the fault has happened.
	Selected uint64 `json:"selected"`
	Fired    uint64 `json:"fired"`
}

func (r *rule) state() State { return State{ID: r.id, Rule: r.Rule, Selected: r.seen, Fired: r.fired} }

// Add adds a rule. The errors wrap ErrInvalid and ErrTooMany.
func (s *Set) Add(r Rule) (State, error) {
	if err := r.check(); err != nil {
		return State{}, err
	}
	r.Verbs = slices.Clone(r.Verbs)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rules) >= Max {
		return State{}, fmt.Errorf("%w: at most %d", ErrTooMany, Max)
	}
	s.last++
	added := &rule{Rule: r, id: strconv.FormatUint(s.last, 10), random: rand.New(rand.NewPCG(r.Seed, 0))}
	s.rules = append(s.rules, added)
	s.active.Store(true)
	return added.state(), nil
}

// List returns the rules in the order in which they were added.
func (s *Set) List() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]State, len(s.rules))
	for i, r := range s.rules {
		all[i] = r.state()
	}
	return all
}

// Remove removes a rule. The error wraps ErrNotFound. Faults in progress continue: a delay, a watch
// that is to be dropped.
func (s *Set) Remove(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.rules)
	s.rules = slices.DeleteFunc(s.rules, func(r *rule) bool { return r.id == id })
	if len(s.rules) == before {
		return fmt.Errorf("the fault %q: %w", id, ErrNotFound)
	}
	s.active.Store(s.recording || len(s.rules) > 0)
	return nil
}

// Clear removes all rules.
func (s *Set) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
	s.active.Store(s.recording)
}

// Active reports whether Pick must be called. It costs one atomic load. A nil set is not active.
func (s *Set) Active() bool { return s != nil && s.active.Load() }

// Pick counts a request, and returns the faults for it: a delay, and then the first other fault
// that fires; nil: none.
func (s *Set) Pick(q *Request) (delay time.Duration, fault *Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record(q)
	for _, r := range s.rules {
		if !r.selects(q) || !r.fires() {
			continue
		}
		if r.Fault != Latency {
			return delay, &r.Rule
		}
		delay += time.Duration(r.DelayMilliseconds) * time.Millisecond
	}
	return delay, nil
}

// Drops counts an open watch, and reports whether the rule with the ID drops it now.
func (s *Set) Drops(id string, q *Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rules {
		if r.id == id {
			return r.Fault == Drop && r.Events == 0 && r.selects(q) && r.fires()
		}
	}
	return false
}

// fires counts a request that the rule selects, and reports whether the fault happens.
func (r *rule) fires() bool {
	if r.seen++; r.seen <= r.After || r.Times > 0 && r.fired >= r.Times {
		return false
	}
	if r.Probability > 0 && r.random.Float64() >= r.Probability {
		return false
	}
	r.fired++
	return true
}
