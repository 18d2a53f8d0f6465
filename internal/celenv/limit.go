package celenv

import (
	"math"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// The cost of a call is counted after the call. If the time or the result of a call grows with the
// product of its arguments, or with the parts of a value that can be reached in many ways, the call
// could exhaust time or memory before its cost ends the evaluation. The functions here fail before
// such a call, with the same error. Some also cost more than the libraries charge, because the
// libraries ignore the size of their input or result.

// maxMade bounds the text that a function returns, and the values that it reads: see Fits. An expression
// that reads such a text exceeds its cost limit.
const maxMade = 10 * celconfig.PerCallLimit

// pairs are called before the functions of two arguments of these names, and checks before those of other
// functions. They report whether the call is within the limits. A wrong number or type of arguments is for
// the function to refuse.
var (
	pairs = map[string]func(a, b ref.Val) bool{
		operators.Add:       addsFew,
		operators.Equals:    readsFew,
		operators.NotEquals: readsFew,
		operators.In:        func(item, list ref.Val) bool { return searchesFew(list, item) },
		"indexOf":           searchesFew,
		"lastIndexOf":       searchesFew,
		"includes":          includesFew,
		"sets.contains":     comparesFew,
		"sets.intersects":   comparesFew,
		"sets.equivalent":   comparesFew,
		"format":            func(_, args ref.Val) bool { return Fits(args) },
	}
	checks = map[string]func(args []ref.Val) bool{
		"distinct":              func(args []ref.Val) bool { return sortsFew(args) && Fits(args[0]) },
		"sort":                  sortsFew,
		"@sortByAssociatedKeys": sortsFew,
		"flatten":               func(args []ref.Val) bool { return Fits(args[0]) },
		"lists.range":           makesFew,
		"replace":               replacesLittle,
		"join":                  joinsLittle,
	}
)

// addDynamic is the overload of an addition of operands of any type, for which the libraries charge 1.
const addDynamic = "add_dynamic"

// limitOptions make programs check calls, and charge them. bindings has the functions by name and overload.
func limitOptions(bindings map[string]*functions.Overload) []cel.ProgramOption {
	var costs []interpreter.CostTrackerOption
	for id, cost := range map[string]interpreter.FunctionTracker{
		addDynamic:                         costOfAdd,
		overloads.AddList:                  costOfUnion,
		overloads.Equals:                   costOfEqual,
		overloads.NotEquals:                costOfEqual,
		overloads.InList:                   func(args []ref.Val, _ ref.Val) *uint64 { return costOfSearch(args[1], args[0]) },
		"list_a_index_of_int":              func(args []ref.Val, _ ref.Val) *uint64 { return costOfSearch(args[0], args[1]) },
		"list_a_last_index_of_int":         func(args []ref.Val, _ ref.Val) *uint64 { return costOfSearch(args[0], args[1]) },
		"list_includes_dyn_dyn":            costOfIncludes,
		"list_sets_contains_list":          costOfPairs,
		"list_sets_intersects_list":        costOfPairs,
		"list_sets_equivalent_list":        costOfPairs,
		"list_distinct":                    func(args []ref.Val, _ ref.Val) *uint64 { return costOfPairs([]ref.Val{args[0], args[0]}, nil) },
		"list_flatten":                     costOfItems,
		"list_flatten_int":                 costOfItems,
		"list_slice":                       costOfItems,
		"list_reverse":                     costOfItems,
		"lists_range":                      costOfItems,
		"string_split_string":              costOfTexts,
		"string_split_string_int":          costOfTexts,
		"string_replace_string_string":     costOfTexts,
		"string_replace_string_string_int": costOfTexts,
		"string_format":                    costOfFormat,
	} {
		costs = append(costs, interpreter.OverloadCostTracker(id, cost))
	}
	return []cel.ProgramOption{
		cel.CustomDecorator(func(i interpreter.Interpretable) (interpreter.Interpretable, error) { return limited(i, bindings), nil }),
		cel.CostTrackerOptions(costs...),
	}
}

// limited returns a step that checks a call before it, if the function has a limit.
func limited(i interpreter.Interpretable, bindings map[string]*functions.Overload) interpreter.Interpretable {
	of, ok := i.(interpreter.InterpretableCall)
	if !ok {
		return i
	}
	args := of.Args()
	if check := pairs[of.Function()]; check != nil && len(args) == 2 {
		if call, id := pairOf(of, bindings); call != nil {
			return &pair{InterpretableCall: of, id: id, a: args[0], b: args[1], check: check, call: call}
		}
	}
	check, bound := checks[of.Function()], boundTo(of, bindings)
	if check == nil || bound == nil {
		return i
	}
	return interpreter.NewCall(of.ID(), of.Function(), of.OverloadID(), args, func(args ...ref.Val) ref.Val {
		require(check(args))
		switch {
		case len(args) == 1 && bound.Unary != nil:
			return bound.Unary(args[0])
		case len(args) == 2 && bound.Binary != nil:
			return bound.Binary(args[0], args[1])
		case bound.Function != nil:
			return bound.Function(args...)
		}
		return types.NoSuchOverloadErr()
	})
}

// boundTo returns the function that a call calls, as the planner finds it; nil if there is none.
func boundTo(of interpreter.InterpretableCall, bindings map[string]*functions.Overload) *functions.Overload {
	if bound := bindings[of.OverloadID()]; bound != nil {
		return bound
	}
	return bindings[of.Function()]
}

// pairOf returns the function of two arguments that a call calls, and its overload.
func pairOf(of interpreter.InterpretableCall, bindings map[string]*functions.Overload) (call functions.BinaryOp, id string) {
	switch of.Function() {
	case operators.Equals:
		return types.Equal, of.OverloadID()
	case operators.NotEquals:
		return func(a, b ref.Val) ref.Val { return types.Bool(types.Equal(a, b) != types.True) }, of.OverloadID()
	}
	bound := boundTo(of, bindings)
	if bound == nil {
		return nil, ""
	}
	call = bound.Binary
	if call == nil && bound.Function != nil {
		call = func(a, b ref.Val) ref.Val { return bound.Function(a, b) }
	}
	if call == nil {
		return nil, ""
	}
	if own := call; bound.OperandTrait != 0 {
		call = func(a, b ref.Val) ref.Val {
			if a.Type().HasTrait(bound.OperandTrait) {
				return own(a, b)
			}
			if to, ok := a.(traits.Receiver); ok {
				return to.Receive(of.Function(), of.OverloadID(), []ref.Val{b})
			}
			return types.NewErr("no such overload: %s", of.Function())
		}
	}
	if of.Function() != operators.Add {
		return call, of.OverloadID()
	}
	add := call
	call = func(a, b ref.Val) ref.Val { return joined(add, a, b) }
	if of.OverloadID() == "" {
		return call, addDynamic
	}
	return call, of.OverloadID()
}

// pair is a call of a function of two arguments with a limit.
type pair struct {
	interpreter.InterpretableCall
	id    string // the overload
	a, b  interpreter.InterpretableV2
	check func(a, b ref.Val) bool
	call  functions.BinaryOp
}

// OverloadID implements interpreter.InterpretableCall.
func (p *pair) OverloadID() string { return p.id }

// Eval implements interpreter.Interpretable.
func (p *pair) Eval(vars interpreter.Activation) ref.Val { return p.Exec(interpreter.AsFrame(vars)) }

// Exec implements interpreter.InterpretableV2.
func (p *pair) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	a, b := p.a.Exec(frame), p.b.Exec(frame)
	switch {
	case types.IsUnknownOrError(a):
		return a
	case types.IsUnknownOrError(b):
		return b
	}
	require(p.check(a, b))
	return types.LabelErrNode(p.ID(), p.call(a, b))
}

// require ends the evaluation if a call is not within its limits.
func require(within bool) {
	if !within {
		tooExpensive()
	}
}

// addsFew bounds the sum of two lists, texts or bytes.
func addsFew(a, b ref.Val) bool {
	switch a.(type) {
	case types.String, types.Bytes:
		return sizeOfValue(a)+sizeOfValue(b) <= maxMade
	case traits.Lister:
		return sizeOfValue(a)+sizeOfValue(b) <= celconfig.PerCallLimit
	}
	return true
}

// joined adds two values. The sum of two lists is a tree of lists: it remembers its size, which
// would otherwise take a walk over the tree, and has no empty parts.
func joined(add functions.BinaryOp, a, b ref.Val) ref.Val {
	left, ok := a.(traits.Lister)
	right, isList := b.(traits.Lister)
	if _, mutable := a.(traits.MutableLister); !ok || !isList || mutable {
		return add(a, b)
	}
	sum, ok := add(a, b).(traits.Lister)
	if !ok {
		return add(a, b)
	}
	if isUnion(sum) { // what both have is in it once
		return sum
	}
	n, m := sizeOfValue(left), sizeOfValue(right)
	switch {
	case n == 0:
		return b
	case m == 0:
		return a
	}
	return &sumOfLists{Lister: sum, left: left, right: right, split: types.Int(n), size: types.Int(n + m)}
}

// readsFew bounds a comparison of two values. If one of them comes from the input, the comparison reads no
// more than that one has.
func readsFew(a, b ref.Val) bool {
	return !isMade(a) || !isMade(b) || Fits(a) || Fits(b)
}

// searchesFew bounds the search for an item in a list.
func searchesFew(list, item ref.Val) bool { return !isContainer(item) || !isMade(list) || Fits(list) }

// includesFew bounds the same for a value that may be no list: then it is compared with the item.
func includesFew(of, item ref.Val) bool {
	if _, ok := of.(traits.Lister); !ok {
		return readsFew(of, item)
	}
	return searchesFew(of, item)
}

// comparesFew bounds a comparison of each item of a list with each of another.
func comparesFew(a, b ref.Val) bool {
	return product(sizeOfValue(a), sizeOfValue(b)) <= celconfig.PerCallLimit && (!isMade(a) || Fits(a)) && (!isMade(b) || Fits(b))
}

// sortsFew bounds a list whose items are compared with each other.
func sortsFew(args []ref.Val) bool {
	n := sizeOfValue(args[len(args)-1])
	return product(2*n, n) <= celconfig.PerCallLimit
}

// makesFew bounds the length of a new list.
func makesFew(args []ref.Val) bool {
	n, ok := args[0].(types.Int)
	return !ok || n <= celconfig.PerCallLimit
}

// replacesLittle bounds the text that a replacement makes.
func replacesLittle(args []ref.Val) bool {
	if len(args) < 3 {
		return true
	}
	text, isText := args[0].(types.String)
	old, isOld := args[1].(types.String)
	with, isNew := args[2].(types.String)
	if !isText || !isOld || !isNew || len(with) <= len(old) {
		return true
	}
	count := uint64(utf8.RuneCountInString(string(text)) + 1)
	if old != "" {
		count = uint64(strings.Count(string(text), string(old)))
	}
	if len(args) == 4 {
		if n, ok := args[3].(types.Int); ok && n >= 0 {
			count = min(count, uint64(n))
		}
	}
	return product(count, uint64(len(with))) <= maxMade
}

// joinsLittle bounds the text of joined texts.
func joinsLittle(args []ref.Val) bool {
	l, ok := args[0].(traits.Lister)
	if !ok {
		return true
	}
	size := uint64(0)
	if len(args) == 2 {
		separator, _ := args[1].(types.String)
		size = product(sizeOfValue(l), uint64(len(separator)))
	}
	return size <= maxMade && Fits(l)
}

// costOfAdd is the cost of the addition of operands of any type.
func costOfAdd(args []ref.Val, result ref.Val) *uint64 {
	if union := costOfUnion(args, result); union != nil {
		return union
	}
	switch args[0].(type) {
	case types.String, types.Bytes:
		return cost(traversal(sizeOfValue(args[0]) + sizeOfValue(args[1])))
	}
	return cost(1)
}

// costOfUnion is the cost of the sum of two lists that a schema calls sets or maps, which reads all of their items;
// nil, which is the cost of the libraries, for others.
func costOfUnion(args []ref.Val, result ref.Val) *uint64 {
	if !isUnion(result) {
		return nil
	}
	return cost(sizeOfValue(args[0]) + sizeOfValue(args[1]))
}

// costOfEqual is the cost of a comparison of two values that the expression made; nil, which is the cost of
// the libraries, for others.
func costOfEqual(args []ref.Val, _ ref.Val) *uint64 {
	if !isMade(args[0]) || !isMade(args[1]) {
		return nil
	}
	return cost(traversal(min(parts(args[0]), parts(args[1]))))
}

// costOfSearch is the same for the search for an item in a list.
func costOfSearch(list, item ref.Val) *uint64 {
	if !isContainer(item) || !isMade(list) {
		return nil
	}
	return cost(max(sizeOfValue(list), traversal(parts(list))))
}

// costOfIncludes is the same for a value that may be no list.
func costOfIncludes(args []ref.Val, result ref.Val) *uint64 {
	if _, ok := args[0].(traits.Lister); !ok {
		return costOfEqual(args, result)
	}
	return costOfSearch(args[0], args[1])
}

// costOfPairs is the cost of a comparison of each item of a list with each of another.
func costOfPairs(args []ref.Val, _ ref.Val) *uint64 {
	return cost(traversal(product(sizeOfValue(args[0]), sizeOfValue(args[1]))))
}

// costOfItems is the cost of a function that makes a list.
func costOfItems(_ []ref.Val, result ref.Val) *uint64 { return cost(sizeOfValue(result)) }

// costOfTexts is the cost of a function that makes strings from one: that of the libraries, or more
// for a large result.
func costOfTexts(args []ref.Val, result ref.Val) *uint64 {
	made := sizeOfValue(result)
	if _, ok := result.(types.String); ok {
		made = traversal(made)
	}
	return cost(max(uint64(math.Ceil(float64(sizeOfValue(args[0]))*2*common.StringTraversalCostFactor)), made))
}

// costOfFormat is the cost of a formatted text.
func costOfFormat(args []ref.Val, result ref.Val) *uint64 {
	return cost(traversal(max(sizeOfValue(args[0]), sizeOfValue(result))))
}

func cost(n uint64) *uint64 { n = max(n, 1); return &n }

// traversal is the cost of reading a text.
func traversal(size uint64) uint64 {
	return uint64(math.Ceil(float64(size) * common.StringTraversalCostFactor))
}

// sizeOfValue is the size of a text, a list or a map, and 1 for other values.
func sizeOfValue(v ref.Val) uint64 {
	if s, ok := v.(traits.Sizer); ok {
		if n, ok := s.Size().(types.Int); ok {
			return uint64(n)
		}
	}
	return 1
}

// product is the product of two sizes, or the largest number.
func product(a, b uint64) uint64 {
	if a != 0 && b > math.MaxUint64/a {
		return math.MaxUint64
	}
	return a * b
}
