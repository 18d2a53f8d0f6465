package expression

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// The cost of a call is counted after the call. If the time or the result of a call grows with the product
// of its arguments, the call could exhaust time or memory before its cost ends the evaluation. The
// functions here fail before such a call, with the same error.

// maxMade bounds the text that a function returns, in bytes. An expression that reads such a text exceeds
// its cost limit.
const maxMade = 10 * celconfig.PerCallLimit

// checks are called before the functions and overloads of these names. They report whether the call
// is within the limits. A wrong number or type of arguments is for the function to refuse.
var checks = map[string]func(args []ref.Val) bool{
	operators.Add:                         addsFew,
	overloads.AddList:                     addsFew,
	"sets.contains":                       comparesFew,
	"sets.intersects":                     comparesFew,
	"sets.equivalent":                     comparesFew,
	"list_sets_contains_list":             comparesFew,
	"list_sets_intersects_list":           comparesFew,
	"list_sets_equivalent_list":           comparesFew,
	"distinct":                            sortsFew,
	"list_distinct":                       sortsFew,
	"sort":                                sortsFew,
	"@sortByAssociatedKeys":               sortsFew,
	"lists.range":                         makesFew,
	"lists_range":                         makesFew,
	"replace":                             replacesLittle,
	"string_replace_string_string":        replacesLittle,
	"string_replace_string_string_int":    replacesLittle,
	"join":                                joinsLittle,
	"list_join":                           joinsLittle,
	"list_join_string":                    joinsLittle,
	"format":                              formatsLittle,
	"string_format":                       formatsLittle,
	"list_string_sort":                    sortsFew,
	"list_string_sortByAssociatedKeys":    sortsFew,
	"list_int_sort":                       sortsFew,
	"list_int_sortByAssociatedKeys":       sortsFew,
	"list_uint_sort":                      sortsFew,
	"list_uint_sortByAssociatedKeys":      sortsFew,
	"list_double_sort":                    sortsFew,
	"list_double_sortByAssociatedKeys":    sortsFew,
	"list_bool_sort":                      sortsFew,
	"list_bool_sortByAssociatedKeys":      sortsFew,
	"list_google.protobuf.Duration_sort":  sortsFew,
	"list_google.protobuf.Timestamp_sort": sortsFew,
	"list_bytes_sort":                     sortsFew,
	"list_bytes_sortByAssociatedKeys":     sortsFew,
	"list_duration_sort":                  sortsFew,
	"list_duration_sortByAssociatedKeys":  sortsFew,
	"list_timestamp_sort":                 sortsFew,
	"list_timestamp_sortByAssociatedKeys": sortsFew,
}

// limit returns a function that fails before it does something that costs too much.
func limit(f *functions.Overload) *functions.Overload {
	check := checks[f.Operator]
	if check == nil {
		return f
	}
	limited := *f
	if call := f.Unary; call != nil {
		limited.Unary = func(a ref.Val) ref.Val {
			require(check, a)
			return call(a)
		}
	}
	if call := f.Binary; call != nil {
		limited.Binary = func(a, b ref.Val) ref.Val {
			require(check, a, b)
			if f.Operator == operators.Add || f.Operator == overloads.AddList {
				return joined(call, a, b)
			}
			return call(a, b)
		}
	}
	if call := f.Function; call != nil {
		limited.Function = func(args ...ref.Val) ref.Val {
			require(check, args...)
			return call(args...)
		}
	}
	return &limited
}

// require ends the evaluation if a call is not within its limits.
func require(check func(args []ref.Val) bool, args ...ref.Val) {
	if !check(args) {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: tooExpensive})
	}
}

// addsFew bounds the sum of two lists.
func addsFew(args []ref.Val) bool {
	a, ok := args[0].(traits.Lister)
	if !ok || len(args) != 2 {
		return true
	}
	b, ok := args[1].(traits.Lister)
	return !ok || sizeOf(a)+sizeOf(b) <= celconfig.PerCallLimit
}

// joined adds two values. The sum of two lists is a tree of lists: it remembers its size, which
// would otherwise take a walk over the tree, and has no empty parts.
func joined(add functions.BinaryOp, a, b ref.Val) ref.Val {
	left, ok := a.(traits.Lister)
	right, isList := b.(traits.Lister)
	if _, mutable := a.(traits.MutableLister); !ok || !isList || mutable {
		return add(a, b)
	}
	n, m := sizeOf(left), sizeOf(right)
	switch {
	case n == 0:
		return b
	case m == 0:
		return a
	}
	sum, ok := add(a, b).(traits.Lister)
	if !ok {
		return add(a, b)
	}
	return &sumOfLists{Lister: sum, size: types.Int(n + m)}
}

// sumOfLists is the sum of two lists.
type sumOfLists struct {
	traits.Lister
	size types.Int
}

// Size returns the number of items.
func (s *sumOfLists) Size() ref.Val { return s.size }

// comparesFew bounds a comparison of each item of a list with each of another.
func comparesFew(args []ref.Val) bool {
	return len(args) != 2 || product(sizeOf(args[0]), sizeOf(args[1])) <= celconfig.PerCallLimit
}

// sortsFew bounds a list whose items are compared with each other.
func sortsFew(args []ref.Val) bool {
	n := sizeOf(args[len(args)-1])
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
		size = product(sizeOf(l), uint64(len(separator)))
	}
	return size <= maxMade && textsIn(l, maxMade-size)
}

// textsIn reports whether the texts in a list have at most that many bytes together.
func textsIn(l traits.Lister, room uint64) bool {
	for i := l.Iterator(); i.HasNext() == types.True; {
		text, ok := i.Next().(types.String)
		if ok && uint64(len(text)) > room {
			return false
		}
		room -= uint64(len(text))
	}
	return true
}

var precision = regexp.MustCompile(`%\.([0-9]+)`)

// formatsLittle bounds formatted text: by the texts among the arguments, and by the precision of
// numbers.
func formatsLittle(args []ref.Val) bool {
	if len(args) != 2 {
		return true
	}
	if text, ok := args[0].(types.String); ok {
		for _, p := range precision.FindAllStringSubmatch(string(text), -1) {
			if n, err := strconv.Atoi(p[1]); err != nil || n > 10_000 {
				return false
			}
		}
	}
	l, ok := args[1].(traits.Lister)
	return !ok || textsIn(l, maxMade)
}

// product is the product of two sizes, or the largest number.
func product(a, b uint64) uint64 {
	if a != 0 && b > math.MaxUint64/a {
		return math.MaxUint64
	}
	return a * b
}
