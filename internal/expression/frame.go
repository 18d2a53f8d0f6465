package expression

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Planned is a program that a planner made. It is immutable, and safe for concurrent use.
type Planned struct {
	root interpreter.InterpretableV2
	ids  int // the IDs of steps are below it
	// program is set instead if this version of cel-go needs it.
	program cel.Program
}

// frame is the state of one evaluation of a program: its variables, its cost, and the values of
// steps that others have not used yet. The steps find it as the outermost Activation, in ExecutionFrames without a
// context: those of cel-go would count the cost and the interrupts.
type frame struct {
	vars interpreter.Activation
	exec interpreter.ExecutionFrame // of the steps
	done <-chan struct{}            // of the context
	cost uint64

	checks uint // of the context
	stack  []stepValue
	// count is how often an ID is in the stack. So the stack is searched only for IDs that it has:
	// each value is found or passed once.
	count []int32
	top   int // the highest length of the stack
	args  []ref.Val
	// free are iterations that are not in use.
	free []*iteration
}

type stepValue struct {
	value ref.Val
	id    int64
}

var frames = sync.Pool{New: func() any { return new(frame) }}

// maxFrame bounds the stacks of frames that are kept, in values.
const maxFrame = 4096

// Eval evaluates the program. The cost is valid with an error, too.
func (p *Planned) Eval(ctx context.Context, vars interpreter.Activation) (value ref.Val, cost uint64, err error) {
	if p.program != nil {
		return p.evalOther(ctx, vars)
	}
	f := frames.Get().(*frame)
	f.vars, f.done = vars, ctx.Done()
	f.exec.Activation = f
	if len(f.count) < p.ids {
		f.count = make([]int32, p.ids)
	}
	defer func() {
		if r := recover(); r != nil {
			if cancelled, ok := r.(interpreter.EvalCancelledError); ok {
				err = cancelled
			} else {
				err = fmt.Errorf("internal error: %v", r)
			}
			value = nil
		}
		cost = f.cost
		f.release()
	}()
	value = p.root.Exec(&f.exec)
	if failed, ok := value.(*types.Err); ok {
		err = failed
	}
	return value, cost, err
}

// evalOther evaluates a cel.Program.
func (p *Planned) evalOther(ctx context.Context, vars interpreter.Activation) (value ref.Val, cost uint64, err error) {
	value, details, err := p.program.ContextEval(ctx, vars)
	if actual := details.ActualCost(); actual != nil {
		return value, *actual, err
	}
	if err == nil {
		err = errors.New("the cost is not known")
	}
	return nil, celconfig.PerCallLimit, err
}

// release makes the frame ready for another evaluation.
func (f *frame) release() {
	for _, s := range f.stack {
		f.count[s.id] = 0
	}
	if f.top > maxFrame || len(f.count) > maxFrame {
		return
	}
	clear(f.stack[:f.top])
	clear(f.args)
	*f = frame{stack: f.stack[:0], count: f.count, args: f.args[:0], free: f.free}
	frames.Put(f)
}

// frameOf returns the frame of an evaluation. It is nil where the planner evaluates constants.
func frameOf(vars interpreter.Activation) *frame {
	for vars != nil {
		switch v := vars.(type) {
		case *frame:
			return v
		case *iteration:
			return v.frame
		case *interpreter.ExecutionFrame:
			vars = v.Activation
		default:
			vars = vars.Parent()
		}
	}
	return nil
}

// ResolveName implements interpreter.Activation.
func (f *frame) ResolveName(name string) (any, bool) { return f.vars.ResolveName(name) }

// interrupted reports whether the context has ended. It looks once in many calls.
func (f *frame) interrupted() bool {
	if f.checks++; f.checks%celconfig.CheckFrequency != 0 {
		return false
	}
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// iterate returns an iteration, which iterated takes back.
func (f *frame) iterate() *iteration {
	last := len(f.free) - 1
	if last < 0 {
		return new(iteration)
	}
	i := f.free[last]
	f.free = f.free[:last]
	return i
}

func (f *frame) iterated(i *iteration) {
	*i = iteration{}
	f.free = append(f.free, i)
}

// Parent implements interpreter.Activation.
func (f *frame) Parent() interpreter.Activation { return nil }

// push adds the value of a step to the stack, and ends the evaluation if it costs too much or the context has ended.
func (f *frame) push(value ref.Val, id int64) {
	f.stack = append(f.stack, stepValue{value, id})
	f.top = max(f.top, len(f.stack))
	f.count[id]++
	f.spend(0)
	if f.interrupted() {
		panic(interpreter.EvalCancelledError{Cause: interpreter.ContextCancelled, Message: interruptedText})
	}
}

// spend adds a cost, and ends the evaluation if it costs too much.
func (f *frame) spend(cost uint64) {
	if f.cost += cost; f.cost > celconfig.PerCallLimit {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: tooExpensive})
	}
}

const interruptedText = "operation interrupted"

const tooExpensive = "operation cancelled: actual cost limit exceeded"

// qualified counts a qualifier. No step uses its value: the attribute's own value replaces it.
func (f *frame) qualified(id int64) {
	f.cost++
	f.push(nil, id)
}

// drop removes a value and all above it, if it is there.
func (f *frame) drop(id int64) { f.pop(id) }

// pop removes a value and all above it, and returns it.
func (f *frame) pop(id int64) (ref.Val, bool) {
	if f.count[id] == 0 {
		return nil, false
	}
	for {
		last := len(f.stack) - 1
		s := f.stack[last]
		f.stack = f.stack[:last]
		f.count[s.id]--
		if s.id == id {
			return s.value, true
		}
	}
}

// takeArgs removes the arguments of a step, which are valid until the next call. They are false if
// one is missing.
func (f *frame) takeArgs(ids []int64) ([]ref.Val, bool) {
	if cap(f.args) < len(ids) {
		f.args = make([]ref.Val, len(ids))
	}
	f.args = f.args[:len(ids)]
	for i := len(ids) - 1; i >= 0; i-- {
		value, ok := f.pop(ids[i])
		if !ok {
			return nil, false
		}
		f.args[i] = value
	}
	return f.args, true
}

// called counts the cost of a call with a result.
func (f *frame) called(c *call, result ref.Val) {
	if args, ok := f.takeArgs(c.args); ok {
		f.cost += c.cost(args, result)
	}
}
