package expression

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"

	"github.com/tidemark-dev/tidemark/internal/celenv"
)

// environmentKey selects an environment: which variables it declares.
type environmentKey struct {
	mode                                   environment.Type
	params, authorizer, patches, variables bool
}

func (v Variables) environment(mode environment.Type) environmentKey {
	return environmentKey{mode: mode, params: v.Params, authorizer: v.Authorizer, patches: v.Patches, variables: v.Composited != nil}
}

// compiler is an environment. It takes milliseconds to build, so all expressions with the same
// kinds of variables share one, even if the fields of their variable variables differ.
type compiler struct {
	*cel.Env
	planner *Planner
	deepest int // of the declared types: see celenv.Deepest

	mu sync.Mutex // held while an expression is compiled
	// variables is the type of the variable variables; nil if there is none. Its fields are those
	// of the expression that is being compiled: programs do not use them.
	variables *apiservercel.DeclType
}

// declare makes the variable variables have the fields of c, until release.
func (e *compiler) declare(c *Composition) (release func()) {
	if e.variables == nil {
		return func() {}
	}
	e.variables.Fields, release = c.fields()
	return release
}

// environments are those in use. There are at most 32.
var environments struct {
	mu  sync.Mutex
	all map[environmentKey]*compiler
}

func environmentOf(key environmentKey) (*compiler, error) {
	environments.mu.Lock()
	defer environments.mu.Unlock()
	if e := environments.all[key]; e != nil {
		return e, nil
	}
	e, err := newCompiler(key)
	if err != nil {
		return nil, fmt.Errorf("environment misconfigured: %w", err)
	}
	if environments.all == nil {
		environments.all = map[environmentKey]*compiler{}
	}
	environments.all[key] = e
	return e, nil
}

// newCompiler builds an environment, of the version that the server is compatible with. Each part
// has the version 1.0, so it is in all environments.
func newCompiler(key environmentKey) (*compiler, error) {
	always := version.MajorMinor(1, 0)
	request, namespace := requestType(), namespaceType()
	e := &compiler{deepest: celenv.Deepest(request, namespace)}
	var variables environment.VersionedOptions
	if key.variables {
		e.variables = apiservercel.NewObjectType("kubernetes.variables", map[string]*apiservercel.DeclField{})
		variables.EnvOptions = []cel.EnvOption{cel.Variable(Composited, e.variables.CelType())}
		variables.DeclTypes = []*apiservercel.DeclType{e.variables}
	}
	options := []cel.EnvOption{
		cel.Variable(Object, cel.DynType),
		cel.Variable(OldObject, cel.DynType),
		cel.Variable(NamespaceObject, namespace.CelType()),
		cel.Variable(Request, request.CelType()),
	}
	if key.params {
		options = append(options, cel.Variable(Params, cel.DynType))
	}
	if key.authorizer {
		options = append(options, cel.Variable(Authorizer, library.AuthorizerType), cel.Variable(RequestResource, library.ResourceCheckType))
	}
	all := []environment.VersionedOptions{
		{IntroducedVersion: always, EnvOptions: variables.EnvOptions, DeclTypes: append(variables.DeclTypes, namespace, request)},
		{IntroducedVersion: always, EnvOptions: options},
		environment.StrictCostOpt,
	}
	set, err := celenv.Base().Extend(all...)
	if err != nil {
		return nil, err
	}
	if key.patches {
		// The resolver wraps the types that are declared before it.
		set, err = set.Extend(environment.VersionedOptions{IntroducedVersion: always, EnvOptions: []cel.EnvOption{
			common.ResolverEnvOption(&mutation.DynamicTypeResolver{}),
			environment.UnversionedLib(library.JSONPatch),
		}})
		if err != nil {
			return nil, err
		}
	}
	if e.Env, err = set.Env(key.mode); err != nil {
		return nil, err
	}
	e.planner = NewPlanner(e.Env)
	return e, nil
}
