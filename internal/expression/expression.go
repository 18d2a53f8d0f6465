// Package expression compiles and evaluates the CEL expressions of admission: match conditions of
// webhooks, and the expressions of admission policies.
//
// Expressions see the variables object, oldObject, request and namespaceObject, and those that
// [Variables] adds. They compile in kube-apiserver's environments, with its libraries, texts and
// cost limits. A [Program] is compiled once for equal arguments. An [Evaluation] evaluates programs
// for one request, within one budget of cost.
package expression

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/tidemark-dev/tidemark/internal/celenv"
)

// Names of variables.
const (
	Object          = "object"
	OldObject       = "oldObject"
	Params          = "params"
	Request         = "request"
	NamespaceObject = "namespaceObject"
	Authorizer      = "authorizer"
	RequestResource = "authorizer.requestResource"
	Composited      = "variables"
)

// Budgets of an Evaluation, in units of cost. A single expression or variable may cost a million.
const (
	// Budget is that of the expressions of a policy for one binding and param.
	Budget = celconfig.RuntimeCELCostBudget
	// MatchConditionsBudget is that of the match conditions of a webhook or policy.
	MatchConditionsBudget = celconfig.RuntimeCELCostBudgetMatchConditions
)

// Modes of compiling.
const (
	// New is for expressions that a request adds or changes: they must not use features that an
	// older version of Kubernetes lacks.
	New = environment.NewExpressions
	// Stored is for all others.
	Stored = environment.StoredExpressions
)

// MaxWorkOfAll bounds the sum of Work of the programs of an object.
const MaxWorkOfAll = celenv.MaxWorkOfAll

// ErrWorkOfAll is the error of an object whose programs take more than that.
var ErrWorkOfAll = celenv.ErrWorkOfAll

// Fits reports whether the result of a program is small enough to be converted: see celenv.Fits.
func Fits(v ref.Val) bool { return celenv.Fits(v) }

// Variables are declared in addition to object, oldObject, request and namespaceObject.
type Variables struct {
	// Params declares params, of any type.
	Params bool
	// Authorizer declares authorizer and authorizer.requestResource.
	Authorizer bool
	// Patches declares the types of mutations: Object, JSONPatch, and jsonpatch.escapeKey.
	Patches bool
	// Composited declares variables, with these fields. Nil declares none, and not the name
	// either.
	Composited *Composition
}

// Program is an expression that was compiled, or that failed to compile. It is immutable, and safe
// for concurrent use.
type Program struct {
	text   string
	work   int
	output *cel.Type
	run    *Planned
	err    *apiservercel.Error
}

// Text returns the expression.
func (p *Program) Text() string { return p.text }

// Work returns the work to compile the expression: see celenv.MaxWork.
func (p *Program) Work() int { return p.work }

// Output returns the type of the result; nil if the expression did not compile.
func (p *Program) Output() *cel.Type { return p.output }

// Err returns why the expression did not compile.
func (p *Program) Err() *apiservercel.Error { return p.err }

// Compile compiles an expression. Its type must be one of returns, if there are any. The Program is
// never nil: one that failed to compile fails with that error when it is evaluated. Equal arguments
// share a Program.
func Compile(text string, v Variables, mode environment.Type, returns ...*cel.Type) (*Program, *apiservercel.Error) {
	key := programKey{text: text, env: v.environment(mode), declared: v.Composited.signature(), returns: fmt.Sprint(returns)}
	p, ok := programs.get(key)
	if !ok {
		p = compile(key.env, v.Composited, text, returns)
		programs.put(key, p)
	}
	return p, p.err
}

func compile(key environmentKey, composited *Composition, text string, returns []*cel.Type) *Program {
	work := 0
	failed := func(kind apiservercel.ErrorType, cause error, format string, args ...any) *Program {
		return &Program{text: text, work: work, err: &apiservercel.Error{Type: kind, Detail: fmt.Sprintf(format, args...), Cause: cause}}
	}
	env, err := environmentOf(key)
	if err != nil {
		return failed(apiservercel.ErrorTypeInternal, nil, "unexpected error loading CEL environment: %v", err)
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	defer env.declare(composited)()
	var ast *cel.Ast
	var issues *cel.Issues
	ast, work, issues = celenv.Compile(env.Env, text, max(env.deepest, composited.largest()))
	if issues != nil {
		return failed(apiservercel.ErrorTypeInvalid, apiservercel.NewCompilationError(issues), "compilation failed: %s", celenv.Text(issues))
	}
	if !oneOf(ast.OutputType(), returns) {
		want := fmt.Sprintf("one of %v", returns)
		if len(returns) == 1 {
			want = returns[0].String()
		}
		return failed(apiservercel.ErrorTypeInvalid, nil, "must evaluate to %s but got %v", want, ast.OutputType())
	}
	program, err := env.planner.Plan(ast)
	if err != nil {
		return failed(apiservercel.ErrorTypeInternal, nil, "program instantiation failed: %v", err)
	}
	return &Program{text: text, work: work, output: ast.OutputType(), run: program}
}

// oneOf reports whether a type is one of all, or all are empty.
func oneOf(t *cel.Type, all []*cel.Type) bool {
	for _, one := range all {
		if t.IsExactType(one) {
			return true
		}
	}
	return len(all) == 0
}
