package webhook

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/tidemark-dev/tidemark/internal/authz"
)

// specOf returns the spec of the review that is sent to the service. Selectors are sent as
// requirements. An invalid selector is left out: without it, the service decides about more than
// the request.
func specOf(a *authz.Attributes) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{User: a.User.Name, UID: a.User.UID, Groups: a.User.Groups}
	if a.User.Extra != nil {
		spec.Extra = make(map[string]authorizationv1.ExtraValue, len(a.User.Extra))
	}
	for name, values := range a.User.Extra {
		spec.Extra[name] = values
	}
	if !a.IsResource {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.Path, Verb: a.Verb}
		return spec
	}
	r := &authorizationv1.ResourceAttributes{
		Namespace: a.Namespace, Verb: a.Verb, Group: a.Group, Version: a.Version,
		Resource: a.Resource, Subresource: a.Subresource, Name: a.Name,
	}
	if all := fieldRequirements(a); len(all) > 0 {
		r.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: all}
	}
	if all := labelRequirements(a); len(all) > 0 {
		r.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: all}
	}
	spec.ResourceAttributes = r
	return spec
}

func fieldRequirements(a *authz.Attributes) []metav1.FieldSelectorRequirement {
	parsed, _ := a.FieldRequirements()
	var all []metav1.FieldSelectorRequirement
	for _, r := range parsed {
		one := metav1.FieldSelectorRequirement{Key: r.Field, Values: []string{r.Value}}
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals, selection.In:
			one.Operator = metav1.FieldSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			one.Operator = metav1.FieldSelectorOpNotIn
		default:
			continue
		}
		all = append(all, one)
	}
	return all
}

func labelRequirements(a *authz.Attributes) []metav1.LabelSelectorRequirement {
	parsed, _ := a.LabelRequirements()
	var all []metav1.LabelSelectorRequirement
	for i := range parsed {
		r := &parsed[i]
		one := metav1.LabelSelectorRequirement{Key: r.Key()}
		if values := r.ValuesUnsorted(); len(values) > 0 {
			one.Values = values
		}
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			one.Operator = metav1.LabelSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			one.Operator = metav1.LabelSelectorOpNotIn
		case selection.Exists:
			one.Operator = metav1.LabelSelectorOpExists
		case selection.DoesNotExist:
			one.Operator = metav1.LabelSelectorOpDoesNotExist
		default:
			continue // greater and less than
		}
		all = append(all, one)
	}
	return all
}

// betaSpec is the spec in version v1beta1, whose groups have another name.
func betaSpec(in *authorizationv1.SubjectAccessReviewSpec) authorizationv1beta1.SubjectAccessReviewSpec {
	out := authorizationv1beta1.SubjectAccessReviewSpec{User: in.User, Groups: in.Groups, UID: in.UID}
	if in.Extra != nil {
		out.Extra = make(map[string]authorizationv1beta1.ExtraValue, len(in.Extra))
	}
	for name, values := range in.Extra {
		out.Extra[name] = authorizationv1beta1.ExtraValue(values)
	}
	if p := in.NonResourceAttributes; p != nil {
		out.NonResourceAttributes = &authorizationv1beta1.NonResourceAttributes{Path: p.Path, Verb: p.Verb}
	}
	if r := in.ResourceAttributes; r != nil {
		out.ResourceAttributes = &authorizationv1beta1.ResourceAttributes{
			Namespace: r.Namespace, Verb: r.Verb, Group: r.Group, Version: r.Version, Resource: r.Resource,
			Subresource: r.Subresource, Name: r.Name, FieldSelector: r.FieldSelector, LabelSelector: r.LabelSelector,
		}
	}
	return out
}
