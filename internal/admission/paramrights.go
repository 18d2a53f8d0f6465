package admission

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const (
	policiesValidating = "validatingadmissionpolicies.admissionregistration.k8s.io"
	policiesMutating   = "mutatingadmissionpolicies.admissionregistration.k8s.io"
	bindingsValidating = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
	bindingsMutating   = "mutatingadmissionpolicybindings.admissionregistration.k8s.io"
)

// paramRights refuses policies and bindings whose author may not read their params: the message of an expression shows
// params to the clients whose requests the policy matches. A policy with a paramKind requires the right to get all objects
// of that kind. A binding with a paramRef requires the right to get the object, or to list those that it selects. An update
// that does not change these fields is not checked.
func paramRights(c *Config) registry.Plugin {
	if c.Authz == nil || c.Catalog == nil {
		return registry.Plugin{}
	}
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			if t.Subresource != "" || o != admissionv1.Create && o != admissionv1.Update {
				return false
			}
			switch t.Type.Collection {
			case policiesValidating, policiesMutating, bindingsValidating, bindingsMutating:
				return true
			}
			return false
		},
		Users: func(u *authn.User) bool { return u != nil && !authz.IsMaster(u) },
		Validate: func(ctx context.Context, a *registry.Attributes) error {
			next, last := paramsOf(a.Object), paramsOf(a.Old)
			var at *field.Path
			var err error
			switch {
			case next.policy == last.policy && equality.Semantic.DeepEqual(next.kind, last.kind) && equality.Semantic.DeepEqual(next.ref, last.ref):
			case next.kind != nil:
				at, err = field.NewPath("spec", "paramKind"), c.mayReadKind(ctx, a, next.kind)
			case next.ref != nil:
				at, err = field.NewPath("spec", "paramRef"), c.mayReadParams(ctx, a, &next)
			}
			switch {
			case authz.IsUndecided(err):
				return err
			case err != nil:
				return apierrors.NewInvalid(a.RequestedKind().GroupKind(), a.Name, field.ErrorList{field.Forbidden(at, err.Error())})
			}
			return nil
		},
	}
}

// params are the fields of a policy or a binding that name params.
type params struct {
	kind   *admissionregistrationv1.ParamKind // of a policy
	ref    *admissionregistrationv1.ParamRef  // of a binding
	policy string                             // of a binding with a ref
	from   string                             // the collection of that policy
}

func paramsOf(o runtime.Object) params {
	switch o := o.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return params{kind: o.Spec.ParamKind}
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		return params{kind: o.Spec.ParamKind}
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		if o.Spec.ParamRef != nil {
			return params{ref: o.Spec.ParamRef, policy: o.Spec.PolicyName, from: policiesValidating}
		}
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		if o.Spec.ParamRef != nil {
			return params{ref: o.Spec.ParamRef, policy: o.Spec.PolicyName, from: policiesMutating}
		}
	}
	return params{}
}

// mayReadKind returns an error unless the user may get all objects of a kind.
func (c *Config) mayReadKind(ctx context.Context, a *registry.Attributes, k *admissionregistrationv1.ParamKind) error {
	right, unclear := c.paramResource(k)
	right.Verb, right.Name, right.Namespace = "get", "*", "*"
	return c.mayRead(ctx, a, right, unclear, fmt.Sprintf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`, shown(a.User), k.Kind, k.APIVersion))
}

// mayReadParams returns an error unless the user may read the objects of a paramRef. If there is no policy that has the
// kind, that is the right to read all objects.
func (c *Config) mayReadParams(ctx context.Context, a *registry.Attributes, p *params) error {
	right, unclear := authz.Attributes{Group: "*", Version: "*", Resource: "*"}, ""
	kind, err := paramKindOf(a.State, p)
	switch {
	case err != nil:
		unclear = fmt.Sprintf("unable to get policy %s to determine minimum required permissions", p.policy)
	case kind != nil:
		right, unclear = c.paramResource(kind)
	}
	right.Verb, right.Name, right.Namespace = "get", p.ref.Name, p.ref.Namespace
	if p.ref.Name == "" {
		right.Verb = "list"
	}
	return c.mayRead(ctx, a, right, unclear, fmt.Sprintf("user %v does not have %q permission on the object referenced by paramRef", shown(a.User), right.Verb))
}

// mayRead returns an error unless the user has a right. Its message is refused, unless the right covers all resources
// because their kind is unclear; unclear then has the reason.
func (c *Config) mayRead(ctx context.Context, a *registry.Attributes, right authz.Attributes, unclear, refused string) error {
	switch ok, _, err := c.allowed(ctx, a, right); {
	case ok:
		return nil
	case err != nil:
		return err
	case unclear != "":
		return fmt.Errorf("%s and user %v does not have %q permission for all groups, versions and resources", unclear, shown(a.User), right.Verb)
	}
	return errors.New(refused)
}

// paramKindOf returns the paramKind of a binding's policy.
func paramKindOf(s *store.State, p *params) (*admissionregistrationv1.ParamKind, error) {
	o := s.Get(p.from, p.policy)
	if o == nil {
		return nil, errors.New("there is no such policy")
	}
	if p.from == policiesMutating {
		policy, err := registry.Decode[admissionregistrationv1.MutatingAdmissionPolicy](o)
		if err != nil {
			return nil, err
		}
		return policy.Spec.ParamKind, nil
	}
	policy, err := registry.Decode[admissionregistrationv1.ValidatingAdmissionPolicy](o)
	if err != nil {
		return nil, err
	}
	return policy.Spec.ParamKind, nil
}

// paramResource returns the resource of a kind, as the attributes of a right. If it cannot determine a part, that part is
// "*", and unclear has the reason.
func (c *Config) paramResource(k *admissionregistrationv1.ParamKind) (right authz.Attributes, unclear string) {
	right = authz.Attributes{Group: "*", Version: "*", Resource: "*"}
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	if err != nil {
		return right, fmt.Sprintf("unable to parse paramKind %v to determine minimum required permissions", *k)
	}
	right.Group, right.Version = gv.Group, gv.Version
	if v := c.Catalog().Lists(gv.Group, gv.Version); v != nil {
		for _, t := range v.Types {
			if t.Kind == k.Kind && t.Collection != "" {
				right.Resource = t.Resource
				return right, ""
			}
		}
	}
	return right, fmt.Sprintf("unable to resolve paramKind %v to determine minimum required permissions", *k)
}

// shown returns a user in the form of kube-apiserver's messages.
func shown(u *authn.User) string {
	return fmt.Sprintf("&{%s %s %v %v}", u.Name, u.UID, u.Groups, u.Extra)
}
