package oidc

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/tidemark-dev/tidemark/internal/celenv"
	exprs "github.com/tidemark-dev/tidemark/internal/expression"
)

// variable is the one variable that an expression sees.
type variable string

const (
	claimsVariable variable = "claims" // the claims of the token
	userVariable   variable = "user"   // the user that the claims are mapped to
)

// expression is a compiled CEL expression. It is safe for concurrent use.
type expression struct {
	text    string
	of      variable
	program *exprs.Planned
	ast     *cel.Ast
}

// compiler compiles the expressions of a variable.
type compiler struct {
	env     *cel.Env
	planner *exprs.Planner
}

// environments compile the expressions. They take tens of milliseconds to build, so a server
// without expressions builds none.
var environments = sync.OnceValues(func() (map[variable]compiler, error) {
	base := celenv.Base()
	all := map[variable]compiler{}
	for name, t := range map[variable]*apiservercel.DeclType{claimsVariable: claimsType(), userVariable: userType()} {
		set, err := base.Extend(environment.VersionedOptions{
			IntroducedVersion: version.MajorMinor(1, 0),
			EnvOptions:        []cel.EnvOption{cel.Variable(string(name), t.CelType())},
			DeclTypes:         []*apiservercel.DeclType{t},
		})
		if err != nil {
			return nil, err
		}
		env, err := set.Env(environment.StoredExpressions)
		if err != nil {
			return nil, err
		}
		all[name] = compiler{env, exprs.NewPlanner(env)}
	}
	return all, nil
})

// claimsType is the type of the variable claims. A claim can have any JSON type, which its expression has to expect.
func claimsType() *apiservercel.DeclType {
	return apiservercel.NewMapType(apiservercel.StringType, apiservercel.AnyType, -1)
}

// userType is the type of the variable user.
func userType() *apiservercel.DeclType {
	list := apiservercel.NewListType(apiservercel.StringType, -1)
	fields := map[string]*apiservercel.DeclField{}
	for name, t := range map[string]*apiservercel.DeclType{
		"username": apiservercel.StringType,
		"uid":      apiservercel.StringType,
		"groups":   list,
		"extra":    apiservercel.NewMapType(apiservercel.StringType, list, -1),
	} {
		fields[name] = apiservercel.NewDeclField(name, t, false, nil, nil)
	}
	return apiservercel.NewObjectType("kubernetes.UserInfo", fields)
}

// compile compiles an expression. A condition must be boolean; the type of other expressions is
// known only when they are evaluated.
func compile(path *field.Path, of variable, text string, condition bool) (*expression, *field.Error) {
	all, err := environments()
	if err != nil {
		return nil, field.InternalError(path, err)
	}
	ast, _, issues := celenv.Compile(all[of].env, text, celenv.Deepest(claimsType(), userType()))
	if issues != nil {
		return nil, field.Invalid(path, text, "compilation failed: "+celenv.Text(issues))
	}
	if condition && ast.OutputType() != cel.BoolType {
		return nil, field.Invalid(path, text, "must evaluate to bool")
	}
	program, err := all[of].planner.Plan(ast)
	if err != nil {
		return nil, field.InternalError(path, fmt.Errorf("program instantiation failed: %w", err))
	}
	return &expression{text: text, of: of, program: program, ast: ast}, nil
}

// evaluate returns the value of an expression. The environment limits its cost.
func (e *expression) evaluate(ctx context.Context, value ref.Val) (ref.Val, error) {
	vars, err := interpreter.NewActivation(map[string]any{string(e.of): value})
	if err != nil {
		return nil, err
	}
	v, _, err := e.program.Eval(ctx, vars)
	if err != nil {
		return nil, fmt.Errorf("expression '%s' resulted in error: %w", e.text, err)
	}
	return v, nil
}
