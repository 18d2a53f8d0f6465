package crd

import (
	"context"
	"errors"
	"runtime"
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
	lane     lane                         // held to compile
	turn     lane                         // for one request at a time
	compiled atomic.Pointer[cel.Validator]
}

// lane bounds the requests that compile rules at a time. 1,000 rules take some 50 MB and half a second until their programs
// are replaced: 30 requests for 30 definitions took 2 GB, and evicted what the others had compiled.
type lane chan struct{}

// manyRules is the number of rules from which a schema takes the lane of large ones.
const manyRules = 50

// The lanes of the process: all of its servers and forks share its memory.
var (
	manyLane = make(lane, 1)
	fewLane  = make(lane, max(1, runtime.GOMAXPROCS(0)))
)

// compileBytes is about what a request holds while it waits to compile, without its object.
const compileBytes = 16 << 10

func newRules(schema *structuralschema.Structural, number int) *rules {
	r := &rules{schema: schema, lane: fewLane, turn: make(lane, 1)}
	if number > manyRules {
		r.lane = manyLane
	}
	return r
}

// try enters the lane, or reports false if it is full.
func (l lane) try() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

// enter waits for room in the lane.
func (l lane) enter(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lane) leave() { <-l }

// validator returns the compiled rules. A request that has to wait for another one does so without a seat, until its
// context ends.
func (r *rules) validator(ctx context.Context) (*cel.Validator, error) {
	if v := r.compiled.Load(); v != nil {
		return v, nil
	}
	if !r.tryCompile() {
		wait := func() error { return r.waitAndCompile(ctx) }
		err := fairness.Wait(ctx, compileBytes, wait)
		if errors.Is(err, fairness.ErrFull) && r.compiled.Load() == nil {
			err = wait() // it keeps its seat
		}
		if err != nil {
			return nil, err
		}
	}
	return r.compiled.Load(), nil
}

// tryCompile compiles the rules unless that has to wait.
func (r *rules) tryCompile() bool {
	if !r.turn.try() {
		return false
	}
	defer r.turn.leave()
	if r.compiled.Load() != nil {
		return true
	}
	if !r.lane.try() {
		return false
	}
	defer r.lane.leave()
	r.compile()
	return true
}

// waitAndCompile compiles the rules, unless another request does it first.
func (r *rules) waitAndCompile(ctx context.Context) error {
	if err := r.turn.enter(ctx); err != nil {
		return err
	}
	defer r.turn.leave()
	if r.compiled.Load() != nil {
		return nil
	}
	if err := r.lane.enter(ctx); err != nil {
		return err
	}
	defer r.lane.leave()
	r.compile()
	return nil
}

func (r *rules) compile() {
	celenv.Base() // which the library uses
	v := cel.NewValidator(r.schema, true, celconfig.PerCallLimit)
	replacePrograms(v)
	narrow(v)
	r.compiled.Store(v)
}
