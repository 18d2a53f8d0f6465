// Package celenv has the environment of all CEL expressions: that of kube-apiserver, with limits for the
// functions whose work grows faster than their input and its estimated cost.
package celenv

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/tidemark-dev/tidemark/internal/quantity"
)

// maxPrecision is the maximum number of decimals in format(): cel-go allows a million for each number,
// at no estimated cost.
const maxPrecision = 100

// Base returns the base environments. The first call also replaces those of Kubernetes' libraries, which
// compile the rules of custom resource definitions and take no environment as a parameter. [CheckRules] and
// [DisableCostlyRules] check these rules before. Other expressions are compiled with [Compile]. It is safe
// for concurrent use.
func Base() *environment.EnvSet { return base() }

var base = sync.OnceValue(func() *environment.EnvSet {
	set := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	format, err := formatOf(set.StoredExpressionsEnv())
	if err != nil {
		panic(err)
	}
	bindings := map[string]*functions.Overload{}
	bounded, err := set.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Function("quantity", cel.Overload("string_to_quantity", []*cel.Type{cel.StringType}, apiservercel.QuantityType, cel.UnaryBinding(toQuantity))),
			cel.Function("isQuantity", cel.Overload("is_quantity_string", []*cel.Type{cel.StringType}, cel.BoolType, cel.UnaryBinding(isQuantity))),
			cel.Function("format", cel.MemberOverload("string_format", []*cel.Type{cel.StringType, cel.ListType(cel.DynType)}, cel.StringType, cel.FunctionBinding(format))),
			copyingMacros(set.StoredExpressionsEnv()),
		},
		ProgramOptions: append(regexOptions(), limitOptions(bindings)...),
	})
	if err == nil {
		err = bind(bounded.StoredExpressionsEnv(), bindings)
	}
	if err != nil {
		panic(err) // the overloads are those of the library
	}
	*set = *bounded
	return set
})

// bind adds the functions of an environment that have a limit, by name and overload.
func bind(env *cel.Env, to map[string]*functions.Overload) error {
	for name, f := range env.Functions() {
		if pairs[name] == nil && checks[name] == nil {
			continue
		}
		bindings, err := f.Bindings()
		if err != nil {
			return err
		}
		for _, b := range bindings {
			to[b.Operator] = b
		}
	}
	return nil
}

func toQuantity(arg ref.Val) ref.Val {
	text, ok := arg.Value().(string)
	if !ok {
		return types.MaybeNoSuchOverloadErr(arg)
	}
	q, err := quantity.Parse(text)
	if err != nil {
		return types.WrapErr(err)
	}
	return apiservercel.Quantity{Quantity: &q}
}

func isQuantity(arg ref.Val) ref.Val {
	text, ok := arg.Value().(string)
	if !ok {
		return types.MaybeNoSuchOverloadErr(arg)
	}
	_, err := quantity.Parse(text)
	return types.Bool(err == nil)
}

// formatOf returns the library's function format with a limit on precisions.
func formatOf(env *cel.Env) (func(args ...ref.Val) ref.Val, error) {
	bindings, err := env.Functions()["format"].Bindings()
	if err != nil {
		return nil, err
	}
	for _, b := range bindings {
		if b.Operator != "string_format" {
			continue
		}
		return func(args ...ref.Val) ref.Val {
			if text, ok := args[0].(types.String); ok {
				if err := checkPrecisions(string(text)); err != nil {
					return types.WrapErr(err)
				}
			}
			return b.Function(args...)
		}, nil
	}
	return nil, fmt.Errorf("the CEL library has no function string_format")
}

// checkPrecisions refuses a format with too large a precision, such as %.1000000f.
func checkPrecisions(format string) error {
	for i := 0; i+1 < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		if i++; format[i] != '.' { // a verb, or a literal %
			continue
		}
		end := i + 1
		for end < len(format) && '0' <= format[end] && format[end] <= '9' {
			end++
		}
		if n, err := strconv.Atoi(format[i+1 : end]); end > i+1 && (err != nil || n > maxPrecision) {
			return fmt.Errorf("the precision in %q is larger than %d", format[i-1:end], maxPrecision)
		}
		i = end - 1
	}
	return nil
}
