package expression

import (
	"math"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// costs has the cost functions of an environment.
type costs struct {
	estimator interpreter.ActualCostEstimator
	trackers  map[string]interpreter.FunctionTracker // by overload
}

// call is a call of a function.
type call struct {
	function, overload string
	args               []int64
	tracker            interpreter.FunctionTracker // nil: the overload has none
	estimator          interpreter.ActualCostEstimator
}

func (c *costs) callOf(of interpreter.InterpretableCall, args []int64) *call {
	return &call{of.Function(), of.OverloadID(), args, c.trackers[of.OverloadID()], c.estimator}
}

// cost returns the cost of a call, as interpreter.CostTracker counts it.
func (c *call) cost(args []ref.Val, result ref.Val) uint64 {
	if c.tracker != nil {
		if cost := c.tracker(args, result); cost != nil {
			return *cost
		}
	}
	if cost := c.estimator.CallCost(c.function, c.overload, args, result); cost != nil {
		return *cost
	}
	switch c.overload {
	case overloads.StartsWithString, overloads.EndsWithString:
		return traversal(sizeOf(args[1]))
	case overloads.StringToBytes, overloads.BytesToString, overloads.ExtQuoteString, overloads.ExtFormatString:
		return traversal(sizeOf(args[0]))
	case overloads.InList:
		return sizeOf(args[1])
	case overloads.LessString, overloads.GreaterString, overloads.LessEqualsString, overloads.GreaterEqualsString,
		overloads.LessBytes, overloads.GreaterBytes, overloads.LessEqualsBytes, overloads.GreaterEqualsBytes,
		overloads.Equals, overloads.NotEquals:
		return traversal(min(sizeOf(args[0]), sizeOf(args[1])))
	case overloads.AddString, overloads.AddBytes:
		return traversal(sizeOf(args[0]) + sizeOf(args[1]))
	case overloads.Matches, overloads.MatchesString:
		expression := math.Ceil(float64(sizeOf(args[1])) * common.RegexStringLengthCostFactor)
		return traversal(1+sizeOf(args[0])) * uint64(expression)
	case overloads.ContainsString:
		return traversal(sizeOf(args[0])) * traversal(sizeOf(args[1]))
	}
	return 1
}

// traversal is the cost of reading a text.
func traversal(size uint64) uint64 {
	return uint64(math.Ceil(float64(size) * common.StringTraversalCostFactor))
}

// sizeOf is the size of a text, a list or a map, and 1 for other values.
func sizeOf(v ref.Val) uint64 {
	if s, ok := v.(traits.Sizer); ok {
		return uint64(s.Size().(types.Int))
	}
	if o, ok := v.(*types.Optional); ok && o.HasValue() {
		return sizeOf(o.GetValue())
	}
	return 1
}
