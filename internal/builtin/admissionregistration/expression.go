package admissionregistration

import (
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/tidemark-dev/tidemark/internal/expression"
)

// expressions checks the expressions of an object. Expressions that the stored object already has
// are compiled with the libraries of every version; new ones only with libraries that the previous
// minor version of Kubernetes has, too.
type expressions struct {
	vars expression.Variables
	work int // spent on compiling so far
	// The expressions of the stored object, by their field; empty for a new object.
	conditions, validations, messages, annotations, applied []string
}

// mode returns how to compile an expression, given the stored ones.
func mode(text string, stored []string) environment.Type {
	if slices.Contains(stored, text) {
		return expression.Stored
	}
	return expression.New
}

// check compiles an expression. Its error shows value as the invalid value.
func (e *expressions) check(text, value string, v expression.Variables, m environment.Type, path *field.Path, returns ...*cel.Type) field.ErrorList {
	if e.work > expression.MaxWorkOfAll {
		return tooMuchWork(value, path)
	}
	p, err := expression.Compile(text, v, m, returns...)
	e.work += p.Work()
	return compileError(err, value, path)
}

func tooMuchWork(value string, path *field.Path) field.ErrorList {
	return field.ErrorList{field.Invalid(path, value, "compilation failed: "+expression.ErrWorkOfAll.Error())}
}

func compileError(err *apiservercel.Error, value string, path *field.Path) field.ErrorList {
	switch {
	case err == nil:
		return nil
	case err.Type == apiservercel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(path, value, err.Detail)}
	case err.Type == apiservercel.ErrorTypeRequired:
		return field.ErrorList{field.Required(path, err.Detail)}
	}
	return field.ErrorList{field.InternalError(path, err)}
}

// condition checks a match condition, which cannot use composited variables.
func (e *expressions) condition(text string, path *field.Path) field.ErrorList {
	v := e.vars
	v.Composited = nil
	text = strings.TrimSpace(text)
	return e.check(text, text, v, mode(text, e.conditions), path, cel.BoolType)
}

// compose adds a variable for the expressions that follow.
func (e *expressions) compose(v *admissionregistrationv1.Variable, path *field.Path) field.ErrorList {
	if e.work > expression.MaxWorkOfAll {
		return tooMuchWork(v.Expression, path)
	}
	next, err := e.vars.Composited.With(v.Name, v.Expression, e.vars, mode(v.Expression, e.validations))
	e.work += next.Work() - e.vars.Composited.Work()
	e.vars.Composited = next
	return compileError(err, v.Expression, path)
}

func (e *expressions) validation(text string, path *field.Path) field.ErrorList {
	return e.check(text, text, e.vars, mode(text, e.validations), path, cel.BoolType)
}

// message checks a messageExpression, which cannot use the authorizer.
func (e *expressions) message(text string, path *field.Path) field.ErrorList {
	v := e.vars
	v.Authorizer = false
	return e.check(text, text, v, mode(text, e.messages), path, cel.StringType)
}

func (e *expressions) annotation(text string, path *field.Path) field.ErrorList {
	return e.check(strings.TrimSpace(text), text, e.vars, mode(text, e.annotations), path, cel.StringType, cel.NullType)
}

// patch checks an expression of a mutation. As in kube-apiserver, both sorts of patches are
// compared with the stored apply configurations.
func (e *expressions) patch(text string, returns *cel.Type, path *field.Path) field.ErrorList {
	v := e.vars
	v.Patches = true
	trimmed := strings.TrimSpace(text)
	return e.check(trimmed, trimmed, v, mode(text, e.applied), path, returns)
}

// The result types of the expressions of mutations.
var (
	appliedType = cel.ObjectType("Object")
	patchesType = cel.ListType(cel.ObjectType("JSONPatch"))
)

func conditionTexts(all []admissionregistrationv1.MatchCondition) []string {
	var texts []string
	for i := range all {
		texts = append(texts, all[i].Expression)
	}
	return texts
}

// newExpressions returns the check of a policy with or without parameters.
func newExpressions(params *admissionregistrationv1.ParamKind, composited bool) *expressions {
	e := &expressions{vars: expression.Variables{Params: params != nil, Authorizer: true}}
	if composited {
		e.vars.Composited = &expression.Composition{}
	}
	return e
}
