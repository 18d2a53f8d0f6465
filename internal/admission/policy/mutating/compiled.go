package mutating

import (
	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/admission/match"
	"github.com/tidemark-dev/tidemark/internal/expression"
)

// compiled is a compiled policy. It is immutable.
type compiled struct {
	composition *expression.Composition
	conditions  *match.Conditions
	mutations   []mutation
	// again: the policy runs a second time if the object changes after it.
	again bool
}

// mutation is an expression that makes a patch.
type mutation struct {
	program *expression.Program
	// change applies the patch that the expression made.
	change change
}

// compile compiles a policy. Expressions that do not compile fail when they are evaluated.
func compile(name string, s *admissionregistrationv1.MutatingAdmissionPolicySpec, m *match.Metrics) *compiled {
	c := &compiled{again: s.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy}
	v := expression.Variables{Params: s.ParamKind != nil, Authorizer: true, Composited: new(expression.Composition)}
	for i := range s.Variables {
		v.Composited, _ = v.Composited.With(s.Variables[i].Name, s.Variables[i].Expression, v, expression.Stored)
	}
	c.composition = v.Composited
	c.conditions = match.NewConditions(match.Owner{Kind: "policy", Type: "validate", Name: name, Ignore: ignores(s), Metrics: m}, s.MatchConditions, v)
	v.Patches = true
	for i := range s.Mutations {
		switch one := &s.Mutations[i]; {
		case one.JSONPatch != nil && one.PatchType == admissionregistrationv1.PatchTypeJSONPatch:
			c.add(one.JSONPatch.Expression, v, patchObject, cel.ListType(cel.ObjectType("JSONPatch")))
		case one.ApplyConfiguration != nil && one.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration:
			c.add(one.ApplyConfiguration.Expression, v, configureObject, cel.ObjectType("Object"))
		}
	}
	return c
}

func (c *compiled) add(text string, v expression.Variables, f change, returns *cel.Type) {
	p, _ := expression.Compile(text, v, expression.Stored, returns)
	c.mutations = append(c.mutations, mutation{p, f})
}

func ignores(s *admissionregistrationv1.MutatingAdmissionPolicySpec) bool {
	return s.FailurePolicy != nil && *s.FailurePolicy == admissionregistrationv1.Ignore
}
