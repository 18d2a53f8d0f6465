package celenv

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/tidemark-dev/tidemark/internal/regex"
)

// Matching a text may take as many steps for each byte as the compiled pattern has instructions. cel-go and
// Kubernetes' libraries charge for the length of the pattern, but a{1,1000} has a thousand instructions. So
// a call of a function with a pattern costs the larger of both amounts. It fails before it matches if that
// is more than an expression may cost.

const (
	// stepsPerCost is the number of steps for one unit of cost. They take up to a quarter of a microsecond.
	stepsPerCost = 40
	// repeatsPerCost is the same for each result of findAll, for which a search takes up to as many steps as
	// for the whole text. Most searches take far fewer.
	repeatsPerCost = 4 * stepsPerCost
	// compileCost is the cost to compile one instruction of a pattern that an expression computes.
	compileCost = 4
	// parsedPerCost is the number of character ranges that the parser visits for one unit of cost.
	parsedPerCost = 2
	// maxSizeOfAll is the maximum total size of the constant patterns of an expression. Their programs
	// take some MiB while the expression is in use.
	maxSizeOfAll = 50_000
	// maxComputed is the maximum length of a pattern that an expression computes.
	maxComputed = 64 << 10
)

// overload is a function with a pattern as its second argument.
type overload struct {
	function, id string
	member       bool
	args         int
	free         bool // the libraries charge a cost of 1 for it
}

var patternOverloads = []overload{
	{function: "matches", id: "matches", args: 2, free: true},
	{function: "matches", id: "matches_string", member: true, args: 2},
	{function: "find", id: "string_find_string", member: true, args: 2},
	{function: "findAll", id: "string_find_all_string", member: true, args: 2},
	{function: "findAll", id: "string_find_all_string_int", member: true, args: 3},
}

// computed begins the IDs of overloads whose pattern is not a constant. Their calls are also charged for its
// compilation.
const computed = "computed_"

// constantPattern returns the pattern of a call, nil if it is no constant or the function has none.
func constantPattern(call ast.CallExpr) (at ast.Expr, text string) {
	args := call.Args()
	if call.IsMemberFunction() {
		args = append([]ast.Expr{call.Target()}, args...)
	}
	known := slices.ContainsFunc(patternOverloads, func(o overload) bool {
		return o.function == call.FunctionName() && o.member == call.IsMemberFunction() && o.args == len(args)
	})
	if !known || args[1].Kind() != ast.LiteralKind {
		return nil, ""
	}
	literal, ok := args[1].AsLiteral().(types.String)
	if !ok {
		return nil, ""
	}
	return args[1], string(literal)
}

// regexOptions returns options that replace the functions with a pattern, and their costs.
func regexOptions() []cel.ProgramOption {
	var constants []*interpreter.RegexOptimization
	var costs []interpreter.CostTrackerOption
	for _, o := range patternOverloads {
		constants = append(constants, &interpreter.RegexOptimization{
			Function: o.function, OverloadID: o.id, // cel-go and the library have none, so this one is preferred
			RegexIndex: 1,
			Factory: func(call interpreter.InterpretableCall, text string) (interpreter.InterpretableCall, error) {
				p, err := compile(text)
				if err != nil {
					return nil, err
				}
				return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
					return p.call(o, args)
				}), nil
			},
		})
		costs = append(costs,
			interpreter.OverloadCostTracker(o.id, func(args []ref.Val, result ref.Val) *uint64 { return o.cost(args, result, false) }),
			interpreter.OverloadCostTracker(computed+o.id, func(args []ref.Val, result ref.Val) *uint64 { return o.cost(args, result, true) }))
	}
	return []cel.ProgramOption{cel.OptimizeRegex(constants...), cel.CustomDecorator(computedPattern), cel.CostTrackerOptions(costs...)}
}

// computedPattern replaces calls whose pattern is not a constant.
func computedPattern(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i, nil
	}
	n := slices.IndexFunc(patternOverloads, func(o overload) bool { return o.id == call.OverloadID() && o.function == call.Function() })
	if n < 0 || len(call.Args()) != patternOverloads[n].args {
		return i, nil
	}
	if c, ok := call.Args()[1].(interpreter.InterpretableConst); ok && c.Value().Type() == types.StringType {
		return i, nil
	}
	return interpreter.NewCall(call.ID(), call.Function(), computed+call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
		text, ok := args[1].Value().(string)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[1])
		}
		if len(text) > maxComputed {
			return types.NewErr("a computed pattern must have at most %d bytes", maxComputed)
		}
		p, err := compile(text)
		if err != nil {
			return types.WrapErr(err)
		}
		return p.call(patternOverloads[n], args)
	}), nil
}

// pattern is a compiled pattern.
type pattern struct {
	*regexp.Regexp
	size int
}

func compile(text string) (*pattern, error) {
	size, err := sizeOf(text)
	if err != nil {
		return nil, err
	}
	if size > regex.MaxSize {
		return nil, tooLarge(size)
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return &pattern{compiled, size}, nil
}

func tooLarge(size int) error {
	return fmt.Errorf("a pattern must have at most %d instructions when it is compiled, but has %d", regex.MaxSize, size)
}

// call calls a function with the pattern. It ends the evaluation if the call costs more than an expression may cost.
func (p *pattern) call(o overload, args []ref.Val) ref.Val {
	text, ok := args[0].Value().(string)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	steps := p.size * (len(text) + 1)
	if steps > celconfig.PerCallLimit*stepsPerCost {
		tooExpensive()
	}
	switch o.function {
	case "matches":
		return types.Bool(p.MatchString(text))
	case "find":
		return types.String(p.FindString(text))
	}
	limit := -1
	if len(args) == 3 {
		n, ok := args[2].(types.Int)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[2])
		}
		limit = int(n)
	}
	most := celconfig.PerCallLimit * repeatsPerCost / steps
	if limit >= 0 {
		most = min(most, limit)
	}
	all := p.FindAllString(text, most)
	if len(all) == most && most != limit {
		tooExpensive()
	}
	return types.NewStringList(types.DefaultTypeAdapter, all)
}

// tooExpensive ends the evaluation as the cost of the call would.
func tooExpensive() {
	panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "operation cancelled: actual cost limit exceeded"})
}

// cost returns the cost of a call: that of the libraries, or more for a pattern with many instructions.
func (o overload) cost(args []ref.Val, result ref.Val, computed bool) *uint64 {
	if len(args) < 2 {
		return nil
	}
	text, isText := args[0].Value().(string)
	pattern, isPattern := args[1].Value().(string)
	if !isText || !isPattern {
		return nil
	}
	size, err := sizeOf(pattern)
	if err != nil {
		size = 1
	}
	steps := uint64(size) * uint64(len(text)+1)
	cost := max(1, steps/stepsPerCost)
	if !o.free {
		characters := func(s string) float64 { return float64(utf8.RuneCountInString(s)) }
		cost = max(cost, uint64(math.Ceil((characters(text)+1)*common.StringTraversalCostFactor)*math.Ceil(characters(pattern)*common.RegexStringLengthCostFactor)))
	}
	if list, ok := result.(traits.Lister); ok && o.function == "findAll" {
		cost += steps * uint64(list.Size().(types.Int)) / repeatsPerCost
	}
	if computed {
		cost += uint64(compileCost * size)
	}
	if computed && !errors.Is(err, regex.ErrParseWork) { // it has been parsed
		cost += uint64(regex.ParseWork(pattern) / parsedPerCost)
	}
	return &cost
}

// sizes caches the sizes of patterns. It is cleared when it is full.
var sizes struct {
	sync.Map              // from string to int
	n        atomic.Int64 // the approximate number of entries
}

const (
	// maxSizes is the maximum number of entries of sizes.
	maxSizes = 1000
	// maxSized is the maximum length of a pattern in sizes.
	maxSized = 4 << 10
)

// sizeOf returns the size of a pattern. The cost of each call needs it.
func sizeOf(text string) (int, error) {
	if len(text) > maxSized {
		return regex.Size(text)
	}
	if size, ok := sizes.Load(text); ok {
		return size.(int), nil
	}
	size, err := regex.Size(text)
	if err != nil {
		return 0, err
	}
	if sizes.n.Add(1) > maxSizes {
		sizes.Clear()
		sizes.n.Store(1)
	}
	sizes.Store(text, size)
	return size, nil
}
