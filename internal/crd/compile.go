package crd

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/tidemark-dev/tidemark/internal/celenv"
	"github.com/tidemark-dev/tidemark/internal/fairness"
)

// rules are the CEL rules of a schema. They are compiled when an object is validated for the first time: reads need none,
// and nothing else of a schema takes so long. It is safe for concurrent use.
type rules struct {
	schema   *structuralschema.Structural // as the rules see it
	lane     *lane                        // held to compile
	mu       sync.Mutex                   // held to compile
	compiled atomic.Pointer[cel.Validator]
}

// manyRules is the number of rules from which a schema is compiled one at a time. 1,000 rules take
// some 50 MB and half a second until their programs are replaced: 30 requests for 30 definitions
// took 2 GB, and evicted the compiled schemas of other definitions.
const manyRules = 50

// The lanes of the process: all of its servers and forks share its memory.
var (
	manyLane = &lane{free: 1}
	fewLane  = &lane{free: max(1, runtime.GOMAXPROCS(0))}
)

// compileBytes is the approximate memory of a request while it waits to compile, without its
// object.
const compileBytes = 16 << 10

func newRules(schema *structuralschema.Structural, number int) *rules {
	r := &rules{schema: schema, lane: fewLane}
	if number > manyRules {
		r.lane = manyLane
	}
	return r
}

// validator returns the compiled rules. A request that has to wait for another one does so without a seat, until its
// context ends.
func (r *rules) validator(ctx context.Context) (*cel.Validator, error) {
	if v := r.compiled.Load(); v != nil {
		return v, nil
	}
	if !r.lane.try() {
		wait := func() error { return r.lane.enter(ctx, fairness.User(ctx)) }
		err := fairness.Wait(ctx, compileBytes, wait)
		if errors.Is(err, fairness.ErrFull) {
			err = wait() // it keeps its seat
		}
		if err != nil {
			return nil, err
		}
	}
	defer r.lane.leave()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.compiled.Load() == nil { // no other request has compiled them meanwhile
		r.compile()
	}
	return r.compiled.Load(), nil
}

func (r *rules) compile() {
	celenv.Base() // which the library uses
	v := cel.NewValidator(r.schema, true, celconfig.PerCallLimit)
	replacePrograms(v)
	narrow(v)
	r.compiled.Store(v)
}

// lane bounds the requests that compile rules at a time. Users take turns: the requests of one with many schemas do not
// come before those of the others. It is safe for concurrent use.
type lane struct {
	mu      sync.Mutex
	free    int                        // 0 if a request waits
	users   []string                   // who have requests that wait; the next one is the first
	waiting map[string][]chan struct{} // by user; they are closed when it is their turn
}

// try enters the lane, or reports false if it is full.
func (l *lane) try() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free == 0 {
		return false
	}
	l.free--
	return true
}

// enter waits for the turn of a request of the user, or until the context ends.
func (l *lane) enter(ctx context.Context, user string) error {
	turn := make(chan struct{})
	l.mu.Lock()
	if l.free > 0 {
		l.free--
		l.mu.Unlock()
		return nil
	}
	if l.waiting == nil {
		l.waiting = map[string][]chan struct{}{}
	}
	if len(l.waiting[user]) == 0 {
		l.users = append(l.users, user)
	}
	l.waiting[user] = append(l.waiting[user], turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		if !l.withdraw(user, turn) {
			l.leave() // its turn came at the same time
		}
		return ctx.Err()
	}
}

// withdraw removes a request that waits, or reports false if it waits no more.
func (l *lane) withdraw(user string, turn chan struct{}) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting[user], turn)
	if i < 0 {
		return false
	}
	l.waiting[user] = slices.Delete(l.waiting[user], i, i+1)
	if len(l.waiting[user]) == 0 {
		delete(l.waiting, user)
		l.users = slices.DeleteFunc(l.users, func(u string) bool { return u == user })
	}
	return true
}

// leave makes room for the next request.
func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.users) == 0 {
		l.free++
		return
	}
	user := l.users[0]
	l.users = l.users[1:]
	turns := l.waiting[user]
	if len(turns) > 1 {
		l.waiting[user] = turns[1:]
		l.users = append(l.users, user)
	} else {
		delete(l.waiting, user)
	}
	close(turns[0])
}
