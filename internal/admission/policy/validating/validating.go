// Package validating is the admission plugin ValidatingAdmissionPolicy: stored policies of CEL
// expressions refuse requests, warn of them, or annotate their audit events.
package validating

import (
	"context"
	"fmt"
	"net/http"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/admission/match"
	"github.com/tidemark-dev/tidemark/internal/admission/policy"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// plugin evaluates the policies of a request.
type plugin struct {
	policy.Config
	policies *policy.Policies[*compiled]
}

// Plugin returns the plugin.
func Plugin(c policy.Config) registry.Plugin {
	p := &plugin{Config: c}
	p.policies = policy.New(policy.Kind[*compiled]{
		Policies: "validatingadmissionpolicies.admissionregistration.k8s.io",
		Bindings: "validatingadmissionpolicybindings.admissionregistration.k8s.io",
		Policy:   p.read, Binding: readBinding, Catalog: c.Catalog, Files: c.Files,
	})
	return registry.Plugin{Handles: p.policies.Handles, Validate: p.validate}
}

func (p *plugin) read(o *store.Object) (policy.Definition, func() *compiled, error) {
	v, err := registry.Decode[admissionregistrationv1.ValidatingAdmissionPolicy](o)
	if err != nil {
		return policy.Definition{}, nil, err
	}
	d := policy.Definition{
		Name: v.Name, ParamKind: v.Spec.ParamKind, Constraints: v.Spec.MatchConstraints,
		Ignore: v.Spec.FailurePolicy != nil && *v.Spec.FailurePolicy == admissionregistrationv1.Ignore,
	}
	return d, func() *compiled { return compile(v.Name, &v.Spec, p.Conditions) }, nil
}

func readBinding(o *store.Object) (*policy.Binding, error) {
	b, err := registry.Decode[admissionregistrationv1.ValidatingAdmissionPolicyBinding](o)
	if err != nil {
		return nil, err
	}
	return &policy.Binding{
		Name: b.Name, Policy: b.Spec.PolicyName, Params: b.Spec.ParamRef, Resources: b.Spec.MatchResources, Actions: b.Spec.ValidationActions,
	}, nil
}

// invocation is a policy with a binding and a param.
type invocation = policy.Invocation[*compiled]

// validate evaluates all policies that apply to a request, in the order of their names, and refuses
// it with the first denial. Others still warn and annotate.
func (p *plugin) validate(ctx context.Context, a *registry.Attributes) error {
	r := &request{plugin: p, a: a}
	var annotated *policy.Policy[*compiled]
	for i, err := range p.policies.Each(ctx, a) {
		if i.Policy != annotated {
			r.publish(annotated)
			annotated = i.Policy
		}
		if err == nil {
			err = r.evaluate(ctx, &i)
		}
		if err != nil && !i.Policy.Ignore {
			r.deny(&i, err.Error(), "")
		}
	}
	r.publish(annotated)
	r.publishFailures()
	for i := range r.inputs {
		if err := r.inputs[i].input.Undecided(r.denied); err != nil {
			return err
		}
	}
	return r.denial()
}

// request is the evaluation of the policies of one request.
type request struct {
	*plugin
	a *registry.Attributes
	// inputs are the variables of expressions, by the form of the request.
	inputs []formInput
	// annotations are the audit annotations of the policy that is evaluated, nil if there are none.
	annotations *annotations
	failures    []failure // those with the action Audit, of all policies

	denied  bool
	message string
	reason  metav1.StatusReason
}

type formInput struct {
	form  registry.Form
	input *match.Input
}

// input returns the variables of expressions for a form. It makes them once for a request.
func (r *request) input(ctx context.Context, f registry.Form) (*match.Input, error) {
	for i := range r.inputs {
		if r.inputs[i].form == f {
			return r.inputs[i].input, nil
		}
	}
	v, err := r.a.Lean(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("failed to configure binding: failed to convert object version: %w", err)
	}
	in := match.NewInput(ctx, r.a, v, r.Authz)
	r.inputs = append(r.inputs, formInput{f, in})
	return in, nil
}

// evaluate evaluates a policy, and applies the actions of the binding. It returns errors of the
// configuration.
func (r *request) evaluate(ctx context.Context, i *invocation) error {
	in, err := r.input(ctx, i.Form)
	if err != nil {
		return err
	}
	params, err := i.Param.Value(ctx)
	if err != nil {
		return err
	}
	in.SetParams(params)
	var result result
	i.Policy.Compiled().evaluate(ctx, r.a, in, &result)
	for d := range result.decisions {
		r.act(i, &result.decisions[d])
	}
	for _, one := range result.annotations {
		if one.err == "" {
			r.annotate(one)
			continue
		}
		r.deny(i, one.err, "")
		r.observe(i, deny, one.err, one.took)
	}
	return nil
}

// act applies the actions of the binding to a failed validation.
func (r *request) act(i *invocation, d *decision) {
	if d.admitted {
		r.observe(i, allow, d.message, d.took)
		return
	}
	for _, action := range i.Binding.Actions {
		switch action {
		case admissionregistrationv1.Deny:
			r.deny(i, d.message, d.reason)
			r.observe(i, deny, d.message, d.took)
		case admissionregistrationv1.Audit:
			r.annotateFailure(i, d)
			r.observe(i, audit, d.message, d.took)
		case admissionregistrationv1.Warn:
			r.a.Warn(fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s", i.Policy.Name, i.Binding.Name, d.message))
			r.observe(i, warn, d.message, d.took)
		}
	}
}

// deny refuses the request, unless an earlier denial has.
func (r *request) deny(i *invocation, message string, reason metav1.StatusReason) {
	if r.denied {
		return
	}
	r.denied, r.reason = true, reason
	if i.Binding != nil {
		r.message = fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", i.Policy.Name, i.Binding.Name, message)
	} else {
		r.message = fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", i.Policy.Name, message)
	}
}

// codes are the codes of the reasons that a validation can have.
var codes = map[metav1.StatusReason]int32{
	metav1.StatusReasonForbidden:             http.StatusForbidden,
	metav1.StatusReasonUnauthorized:          http.StatusUnauthorized,
	metav1.StatusReasonRequestEntityTooLarge: http.StatusRequestEntityTooLarge,
	metav1.StatusReasonInvalid:               http.StatusUnprocessableEntity,
}

// denial returns the error that refuses the request, nil if nothing does.
func (r *request) denial() error {
	if !r.denied {
		return nil
	}
	err := r.a.Forbidden("%s", r.message)
	status, ok := err.(*apierrors.StatusError)
	if !ok {
		return err
	}
	s := &status.ErrStatus
	s.Reason, s.Code = r.reason, codes[r.reason]
	if s.Reason == "" {
		s.Reason = metav1.StatusReasonInvalid
	}
	if s.Code == 0 {
		s.Code = http.StatusUnprocessableEntity
	}
	s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Message: r.message})
	return status
}
