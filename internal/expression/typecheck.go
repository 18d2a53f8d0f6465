package expression

import (
	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/tidemark-dev/tidemark/internal/celenv"
)

// TypeChecker finds expressions that do not fit the types of objects and params. They compile, since both
// have type dyn for [Compile], and fail when they are evaluated. A TypeChecker is not safe for concurrent
// use.
type TypeChecker struct {
	env       *cel.Env
	deepest   int // of the declared types: see celenv.Deepest
	variables *apiservercel.DeclType
}

// Types are the types for a TypeChecker.
type Types struct {
	// Name and Object are the kind and the schema of object and oldObject. Without a schema they
	// have type dyn.
	Name   string
	Object *spec.Schema
	// Params declares params. ParamsName and ParamsObject are their kind and schema.
	Params       bool
	ParamsName   string
	ParamsObject *spec.Schema
}

// NewTypeChecker returns a TypeChecker. It takes milliseconds.
func NewTypeChecker(t Types) (*TypeChecker, error) {
	request, namespace := requestType(), namespaceType()
	typed := &TypeChecker{variables: apiservercel.NewObjectType("kubernetes.variables", map[string]*apiservercel.DeclField{})}
	declared := []*apiservercel.DeclType{namespace, request, typed.variables}
	options := []cel.EnvOption{
		cel.Variable(NamespaceObject, namespace.CelType()),
		cel.Variable(Request, request.CelType()),
		cel.Variable(Composited, typed.variables.CelType()),
		cel.Variable(Authorizer, library.AuthorizerType),
	}
	add := func(name string, s *spec.Schema, variables ...string) {
		of := cel.DynType
		if d := declTypeOf(name, s); d != nil {
			declared, of = append(declared, d), d.CelType()
		}
		for _, v := range variables {
			options = append(options, cel.Variable(v, of))
		}
	}
	add(t.Name, t.Object, Object, OldObject)
	if t.Params {
		add(t.ParamsName+"Params", t.ParamsObject, Params)
	}
	always := version.MajorMinor(1, 0)
	set, err := celenv.Base().Extend(
		environment.VersionedOptions{IntroducedVersion: always, EnvOptions: options, DeclTypes: declared})
	if err != nil {
		return nil, err
	}
	typed.deepest = celenv.Deepest(declared...)
	typed.env, err = set.Env(Stored)
	return typed, err
}

func declTypeOf(name string, s *spec.Schema) *apiservercel.DeclType {
	if s == nil {
		return nil
	}
	d := common.SchemaDeclType(&openapi.Schema{Schema: s}, true)
	if d == nil {
		return nil
	}
	return d.MaybeAssignTypeName(name)
}

// Variable adds a composited variable, which later expressions can use. One that does not compile has
// type dyn. Variable returns the work of the check, in the unit of celenv.MaxWork.
func (t *TypeChecker) Variable(name, text string) (work int) {
	of := apiservercel.DynType
	ast, work, issues := celenv.Compile(t.env, text, t.deepest)
	if issues == nil {
		of = declType(ast.OutputType())
	}
	t.deepest = max(t.deepest, celenv.Deepest(of))
	t.variables.Fields[name] = apiservercel.NewDeclField(name, of, true, nil, nil)
	return work
}

// Check returns the errors of an expression, empty if there are none, and the work of the check.
func (t *TypeChecker) Check(text string) (wrong string, work int) {
	_, work, issues := celenv.Compile(t.env, text, t.deepest)
	if issues != nil {
		return celenv.Text(issues), work
	}
	return "", work
}
