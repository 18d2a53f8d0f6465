// Package mutating is the admission plugin MutatingAdmissionPolicy: stored policies of CEL
// expressions change the objects of requests, by apply configurations and JSON patches.
//
// Policies apply one after the other, in the order of their names, bindings and params. Each uses
// the result of the preceding ones. When the mutating plugins run again, policies with the
// reinvocation policy IfNeeded apply again.
package mutating

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/admission/match"
	"github.com/tidemark-dev/tidemark/internal/admission/policy"
	"github.com/tidemark-dev/tidemark/internal/expression"
	"github.com/tidemark-dev/tidemark/internal/patch"
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
		Policies: "mutatingadmissionpolicies.admissionregistration.k8s.io",
		Bindings: "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
		Policy:   p.read, Binding: readBinding, Catalog: c.Catalog, Files: c.Files,
	})
	return registry.Plugin{
		Handles: func(s *store.State, t registry.Target, o registry.Operation) bool {
			return o != admissionv1.Delete && p.policies.Handles(s, t, o)
		},
		Mutate: p.mutate,
	}
}

func (p *plugin) read(o *store.Object) (policy.Definition, func() *compiled, error) {
	v, err := registry.Decode[admissionregistrationv1.MutatingAdmissionPolicy](o)
	if err != nil {
		return policy.Definition{}, nil, err
	}
	d := policy.Definition{Name: v.Name, ParamKind: v.Spec.ParamKind, Constraints: v.Spec.MatchConstraints, Ignore: ignores(&v.Spec)}
	return d, func() *compiled { return compile(v.Name, &v.Spec, p.Conditions) }, nil
}

func readBinding(o *store.Object) (*policy.Binding, error) {
	b, err := registry.Decode[admissionregistrationv1.MutatingAdmissionPolicyBinding](o)
	if err != nil {
		return nil, err
	}
	return &policy.Binding{Name: b.Name, Policy: b.Spec.PolicyName, Params: b.Spec.ParamRef, Resources: b.Spec.MatchResources}, nil
}

// invocation is a policy with a binding and a param.
type invocation = policy.Invocation[*compiled]

// mutate applies all policies to the object of a request. Which policies apply depends on the object
// as it is before the first of them.
func (p *plugin) mutate(ctx context.Context, a *registry.Attributes) error {
	r := &request{plugin: p, a: a}
	var all []invocation
	for i, err := range p.policies.Each(ctx, a) {
		if err != nil {
			r.fail(&i, err, "")
			continue
		}
		all = append(all, i)
	}
	if len(all) > 0 {
		if err := r.applyAll(ctx, all); err != nil {
			return err
		}
	}
	return r.denial()
}

// request is the evaluation of the policies of one request, in one run of the mutating plugins.
type request struct {
	*plugin
	a *registry.Attributes

	// causes are the errors of policies, and reason is that of the first one.
	causes []metav1.StatusCause
	reason metav1.StatusReason
}

// applyAll applies policies one after the other. The error is one that refuses the request whatever
// the failure policy is.
func (r *request) applyAll(ctx context.Context, all []invocation) error {
	h := historyOf(r.a)
	if r.a.Reinvoking && h.changed(r.a.Object) {
		h.repeat()
	}
	patched := false
	for i := range all {
		did, err := r.apply(ctx, &all[i], h)
		if err != nil {
			return err
		}
		patched = patched || did
	}
	if patched {
		h.repeat()
		r.a.Reinvoke()
	}
	h.remember(r.a.Object)
	return nil
}

// apply applies the mutations of a policy, and reports whether any of them succeeded.
func (r *request) apply(ctx context.Context, i *invocation, h *history) (patched bool, err error) {
	c := i.Policy.Compiled()
	in, v, err := r.input(ctx, i)
	if err != nil {
		r.fail(i, err, "")
		return false, nil
	}
	matches, err := c.conditions.Match(ctx, r.a, in)
	if undecided := in.Undecided(err != nil && !i.Policy.Ignore); undecided != nil {
		return false, undecided
	}
	if err != nil {
		r.fail(i, err, metav1.StatusReasonInvalid)
		return false, nil
	}
	key := keyOf(i)
	if !matches || r.a.Reinvoking && !h.again[key] {
		return false, nil
	}
	for m := range c.mutations {
		if v.Object == nil {
			break
		}
		start := time.Now()
		err := r.one(ctx, &c.mutations[m], c.composition, in, v)
		if undecided := in.Undecided(err != nil && !i.Policy.Ignore); undecided != nil {
			return patched, undecided
		}
		r.observe(i, err, time.Since(start))
		if status := (*apierrors.StatusError)(nil); errors.As(err, &status) {
			return patched, status
		}
		if err != nil {
			r.fail(i, err, metav1.StatusReasonInvalid)
			continue
		}
		patched = true
		if in, v, err = r.input(ctx, i); err != nil {
			return patched, err
		}
	}
	if c.again {
		h.ran[key] = true
	}
	return patched, nil
}

// input returns the variables of expressions for the current object.
func (r *request) input(ctx context.Context, i *invocation) (*match.Input, *registry.Versioned, error) {
	v, err := r.a.In(ctx, i.Form)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to configure binding: %w", err)
	}
	in := match.NewInput(ctx, r.a, v, r.Authz)
	params, err := i.Param.Value(ctx)
	if err != nil {
		return nil, nil, err
	}
	in.SetParams(params)
	return in, v, nil
}

// one evaluates a mutation, within a budget of its own, and changes the object.
func (r *request) one(ctx context.Context, m *mutation, c *expression.Composition, in *match.Input, v *registry.Versioned) (err error) {
	defer func() { // the libraries can panic for unusual values
		if p := recover(); p != nil {
			err = fmt.Errorf("the patch cannot be applied: %v", p)
		}
	}()
	if err := m.program.Err(); err != nil {
		return err
	}
	value, err := expression.NewEvaluation(ctx, &in.Input, c, expression.Budget).Eval(m.program)
	if err != nil {
		return err
	}
	if !expression.Fits(value) { // the conversion to JSON would take long
		return fmt.Errorf("the patch would be larger than %d bytes", patch.MaxBytes)
	}
	return m.change(ctx, r.a, v, value)
}

// maxCauses bounds the errors that a request keeps: a policy may have thousands of params.
const maxCauses = 100

// fail records the error of a policy, unless its failure policy ignores errors. Without a reason,
// the request is forbidden.
func (r *request) fail(i *invocation, err error, reason metav1.StatusReason) {
	if i.Policy.Ignore {
		return
	}
	if len(r.causes) == 0 {
		r.reason = reason
	}
	text := fmt.Sprintf("policy %q denied request: %s", i.Policy.Name, err)
	if i.Binding != nil {
		text = fmt.Sprintf("policy '%s' with binding '%s' denied request: %s", i.Policy.Name, i.Binding.Name, err)
	}
	if len(r.causes) < maxCauses {
		r.causes = append(r.causes, metav1.StatusCause{Message: text})
	}
}

// denial returns the error that refuses the request, nil if nothing does.
func (r *request) denial() error {
	if len(r.causes) == 0 {
		return nil
	}
	err := r.a.Forbidden("admission request denied by policy")
	status := (*apierrors.StatusError)(nil)
	if !errors.As(err, &status) {
		return err
	}
	s := &status.ErrStatus
	s.Message = r.causes[0].Message
	if r.reason != "" {
		s.Reason = r.reason
	}
	s.Details.Causes = append(s.Details.Causes, r.causes...)
	return status
}

// history records the policies that ran for a request, in all runs of the mutating plugins.
type history struct {
	// ran are the policies that may have to apply again, again those that have to.
	ran, again map[key]bool
	// last is the object after the last run, nil if no policy can depend on it.
	last runtime.Object
}

// key identifies a policy with a binding and a param.
type key struct{ policy, binding, param string }

func keyOf(i *invocation) key {
	k := key{policy: i.Policy.Name, binding: i.Binding.Name}
	if i.Param != nil {
		k.param = i.Param.Key
	}
	return k
}

type historyKey struct{}

func historyOf(a *registry.Attributes) *history {
	return a.Local(historyKey{}, func() any { return &history{ran: map[key]bool{}, again: map[key]bool{}} }).(*history)
}

// repeat makes the policies that ran apply again in the next run.
func (h *history) repeat() {
	for k := range h.ran {
		h.again[k] = true
	}
	clear(h.ran)
}

// changed reports whether the object has changed since the last run.
func (h *history) changed(o runtime.Object) bool {
	return h.last == nil || !equality.Semantic.DeepEqual(h.last, o)
}

// remember keeps the object, if a policy depends on whether it changes.
func (h *history) remember(o runtime.Object) {
	h.last = nil
	if len(h.ran) > 0 && o != nil {
		h.last = o.DeepCopyObject()
	}
}
