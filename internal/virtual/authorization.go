package virtual

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// subjectAccessReview reports whether a user is allowed to do something.
func (c *Config) subjectAccessReview(ctx context.Context, call *registry.VirtualRequest) (runtime.Object, error) {
	review := call.Sent.(*authorizationv1.SubjectAccessReview)
	errs := validateSubject(&review.Spec)
	errs = append(errs, emptyMetadata(&review.ObjectMeta, metav1.ObjectMeta{}, "must be empty")...)
	if err := invalidReview(errs); err != nil {
		return nil, err
	}
	return review, c.decide(ctx, subject(&review.Spec), access{review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes}, &review.Status)
}

// localSubjectAccessReview is subjectAccessReview for callers with access to one namespace.
func (c *Config) localSubjectAccessReview(ctx context.Context, call *registry.VirtualRequest) (runtime.Object, error) {
	review := call.Sent.(*authorizationv1.LocalSubjectAccessReview)
	spec, path := &review.Spec, field.NewPath("spec")
	errs := validateSubject(spec)
	errs = append(errs, emptyMetadata(&review.ObjectMeta, metav1.ObjectMeta{Namespace: review.Namespace}, "must be empty except for namespace")...)
	if a := spec.ResourceAttributes; a != nil && a.Namespace != review.Namespace {
		errs = append(errs, field.Invalid(path.Child("resourceAttributes", "namespace"), a.Namespace, "must match metadata.namespace"))
	}
	if a := spec.NonResourceAttributes; a != nil {
		errs = append(errs, field.Invalid(path.Child("nonResourceAttributes"), shown(a), "disallowed on this kind of request"))
	}
	if err := invalidReview(errs); err != nil {
		return nil, err
	}
	return review, c.decide(ctx, subject(spec), access{spec.ResourceAttributes, nil}, &review.Status)
}

// selfSubjectAccessReview reports whether the caller is allowed to do something.
func (c *Config) selfSubjectAccessReview(ctx context.Context, call *registry.VirtualRequest) (runtime.Object, error) {
	review := call.Sent.(*authorizationv1.SelfSubjectAccessReview)
	what := access{review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes}
	errs := append(what.validate(), validateSelectors(what.resource)...)
	errs = append(errs, emptyMetadata(&review.ObjectMeta, metav1.ObjectMeta{}, "must be empty")...)
	if err := invalidReview(errs); err != nil {
		return nil, err
	}
	return review, c.decide(ctx, call.By, what, &review.Status)
}

// selfSubjectRulesReview returns the rules for the caller in a namespace.
func (c *Config) selfSubjectRulesReview(ctx context.Context, call *registry.VirtualRequest) (runtime.Object, error) {
	namespace := call.Sent.(*authorizationv1.SelfSubjectRulesReview).Spec.Namespace
	if namespace == "" {
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	response := &authorizationv1.SelfSubjectRulesReview{}
	response.Status.ResourceRules = []authorizationv1.ResourceRule{}
	response.Status.NonResourceRules = []authorizationv1.NonResourceRule{}
	rules := c.Rules.Rules(ctx, call.By, namespace)
	for _, r := range rules.Resources {
		response.Status.ResourceRules = append(response.Status.ResourceRules, authorizationv1.ResourceRule{Verbs: r.Verbs, APIGroups: r.Groups, Resources: r.Resources, ResourceNames: r.Names})
	}
	for _, r := range rules.NonResources {
		response.Status.NonResourceRules = append(response.Status.NonResourceRules, authorizationv1.NonResourceRule{Verbs: r.Verbs, NonResourceURLs: r.Paths})
	}
	response.Status.Incomplete = rules.Incomplete
	if rules.Err != nil {
		response.Status.EvaluationError = rules.Err.Error()
	}
	return response, nil
}

// access is the attributes of a review: one of the two is set.
type access struct {
	resource *authorizationv1.ResourceAttributes
	path     *authorizationv1.NonResourceAttributes
}

// decide sets the status to the authorizer's decision. If the authorizer is too busy to decide, the error is 429: a client
// might cache a denial.
func (c *Config) decide(ctx context.Context, u *authn.User, what access, status *authorizationv1.SubjectAccessReviewStatus) error {
	a := authz.Attributes{User: u}
	var faults []string
	if r := what.resource; r != nil {
		a.IsResource, a.Verb, a.Namespace = true, r.Verb, r.Namespace
		a.Group, a.Version, a.Resource, a.Subresource, a.Name = r.Group, cmp.Or(r.Version, "*"), r.Resource, r.Subresource, r.Name
		faults = setSelectors(&a, r)
	} else {
		a.Verb, a.Path = what.path.Verb, what.path.Path
	}
	decision, reason, err := c.Authz.Authorize(ctx, &a)
	if decision != authz.Allow && errors.Is(err, authz.ErrBusy) {
		return authz.Undecided(err)
	}
	if err != nil {
		faults = slices.Insert(faults, 0, err.Error())
	}
	*status = authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authz.Allow, Denied: decision == authz.Deny, Reason: reason,
		EvaluationError: strings.Join(faults, "; "),
	}
	return nil
}

func subject(s *authorizationv1.SubjectAccessReviewSpec) *authn.User {
	u := &authn.User{Name: s.User, UID: s.UID, Groups: s.Groups}
	for key, values := range s.Extra {
		if u.Extra == nil {
			u.Extra = make(map[string][]string, len(s.Extra))
		}
		u.Extra[key] = values
	}
	return u
}

func validateSubject(s *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := access{s.ResourceAttributes, s.NonResourceAttributes}.validate()
	if s.User == "" && len(s.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), s.User, "at least one of user or group must be specified"))
	}
	return append(errs, validateSelectors(s.ResourceAttributes)...)
}

// validate requires one of the two.
func (what access) validate() field.ErrorList {
	if (what.resource == nil) == (what.path == nil) {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), shown(what.path), "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	}
	return nil
}

// emptyMetadata requires that metadata are as expected. Managed fields are ignored.
func emptyMetadata(meta *metav1.ObjectMeta, want metav1.ObjectMeta, text string) field.ErrorList {
	meta.ManagedFields = nil
	if equality.Semantic.DeepEqual(*meta, want) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, text)}
}

// invalidReview is the response to an invalid review. It names no kind, like kube-apiserver's.
func invalidReview(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return resource.Invalid(schema.GroupKind{Group: authorizationGroup}, "", errs)
}

// shown returns the attributes of a path as messages show them.
func shown(a *authorizationv1.NonResourceAttributes) any {
	if a == nil {
		return nil
	}
	return struct{ Path, Verb string }{a.Path, a.Verb}
}
