package devices

import (
	"fmt"
	"math"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/ext"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/tidemark-dev/tidemark/internal/celenv"
)

// selectors checks the selectors of an object. Stored expressions are compiled with the libraries
// of every version; new ones only with libraries that the previous minor version of Kubernetes has,
// too.
type selectors struct {
	stored bool
	work   int // spent on compiling so far
}

func (all *selectors) validate(s *resourcev1.DeviceSelector, path *field.Path) field.ErrorList {
	at := path.Child("cel")
	switch {
	case s.CEL == nil:
		return field.ErrorList{field.Required(at, "")}
	case len(s.CEL.Expression) > resourcev1.CELSelectorExpressionMaxLength:
		return field.ErrorList{field.TooLong(at.Child("expression"), "", resourcev1.CELSelectorExpressionMaxLength)}
	}
	return all.validateExpression(s.CEL.Expression, at.Child("expression"))
}

func (all *selectors) validateExpression(text string, path *field.Path) field.ErrorList {
	if all.work > celenv.MaxWorkOfAll {
		return field.ErrorList{field.Invalid(path, text, "compilation failed: "+celenv.ErrWorkOfAll.Error())}
	}
	mode := environment.NewExpressions
	if all.stored {
		mode = environment.StoredExpressions
	}
	set, err := selectorEnvironments()
	if err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	env, err := set.Env(mode)
	if err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	ast, work, issues := celenv.Compile(env, text, celenv.Deepest(deviceType))
	if all.work += work; issues != nil {
		return field.ErrorList{field.Invalid(path, text, "compilation failed: "+celenv.Text(issues))}
	}
	if t := ast.OutputType(); t != cel.BoolType && t != cel.AnyType {
		return field.ErrorList{field.Invalid(path, text, fmt.Sprintf("must evaluate to bool or the unknown type, not %v", t))}
	}
	if _, err := env.Program(ast, cel.CostLimit(resourcev1.CELSelectorExpressionMaxCost), cel.InterruptCheckFrequency(celconfig.CheckFrequency)); err != nil {
		return field.ErrorList{field.InternalError(path, &apiservercel.Error{Type: apiservercel.ErrorTypeInternal, Detail: "program instantiation failed: " + err.Error()})}
	}
	cost, err := env.EstimateCost(ast, &library.CostEstimator{SizeEstimator: deviceSizes{}})
	if err != nil {
		return field.ErrorList{field.InternalError(path, &apiservercel.Error{Type: apiservercel.ErrorTypeInternal, Detail: "cost estimation failed: " + err.Error()})}
	}
	if cost.Max > resourcev1.CELSelectorExpressionMaxCost {
		return field.ErrorList{field.Forbidden(path, "too complex, exceeds cost limit")}
	}
	return nil
}

// deviceVariable is the one variable of a selector.
const deviceVariable = "device"

// attributeType is the type of an attribute: any type, but of a limited size.
var attributeType = sized(apiservercel.AnyType, resourcev1.DeviceAttributeMaxValueLength)

// deviceType is the type of the variable device. The sizes bound the estimated costs.
var deviceType = newDeviceType()

func newDeviceType() *apiservercel.DeclType {
	const most = resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice
	domain := sized(apiservercel.StringType, resourcev1.DeviceMaxDomainLength)
	id := sized(apiservercel.StringType, resourcev1.DeviceMaxIDLength)
	byName := func(value *apiservercel.DeclType) *apiservercel.DeclType {
		return apiservercel.NewMapType(domain, apiservercel.NewMapType(id, value, most), most)
	}
	fields := map[string]*apiservercel.DeclField{}
	for name, t := range map[string]*apiservercel.DeclType{
		"driver":                   sized(apiservercel.StringType, resourcev1.DriverNameMaxLength),
		"allowMultipleAllocations": sized(apiservercel.BoolType, 1),
		"attributes":               byName(attributeType),
		"capacity":                 byName(apiservercel.QuantityDeclType),
	} {
		fields[name] = apiservercel.NewDeclField(name, t, true, nil, nil)
	}
	return apiservercel.NewObjectType("kubernetes.DRADevice", fields)
}

func sized(t *apiservercel.DeclType, most int64) *apiservercel.DeclType {
	bounded := *t
	bounded.MaxElements = most
	return &bounded
}

// selectorEnvironments returns the environments of selectors. They take milliseconds to make,
// so they are made with the first selector.
var selectorEnvironments = sync.OnceValues(func() (*environment.EnvSet, error) {
	return celenv.Base().Extend(
		environment.VersionedOptions{
			IntroducedVersion: version.MajorMinor(1, 31),
			EnvOptions:        []cel.EnvOption{ext.Bindings(ext.BindingsVersion(0))},
		},
		environment.VersionedOptions{
			IntroducedVersion: version.MajorMinor(1, 34),
			EnvOptions:        []cel.EnvOption{cel.Variable(deviceVariable, deviceType.CelType())},
			DeclTypes:         []*apiservercel.DeclType{deviceType},
		},
	)
})

// deviceSizes limits the sizes of the values that a selector can read from the device, for the
// estimated costs.
type deviceSizes struct{}

// EstimateSize returns the bounds of a part of the device; nil: unknown.
func (deviceSizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	path := element.Path()
	if len(path) == 0 || path[0] != deviceVariable {
		return nil
	}
	t := deviceType
	for _, name := range path[1:] {
		if t = within(t, name); t == nil {
			return nil
		}
	}
	if t.MaxElements < 0 {
		return &checker.SizeEstimate{Max: math.MaxUint64}
	}
	return &checker.SizeEstimate{Max: uint64(t.MaxElements)}
}

// within returns the type of a part of a value: a field, or the keys or values of a map.
func within(t *apiservercel.DeclType, name string) *apiservercel.DeclType {
	switch name {
	case "@items", "@values":
		return t.ElemType
	case "@keys":
		return t.KeyType
	}
	if f := t.Fields[name]; f != nil {
		return f.Type
	}
	if t.ElemType == attributeType { // a map of attributes, by any name
		return attributeType
	}
	return nil
}

// EstimateCallCost leaves the costs of calls to the libraries.
func (deviceSizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
