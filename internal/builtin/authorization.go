package builtin

import (
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// authorizationGroup has the reviews of access. They are not stored.
func authorizationGroup() resource.Group {
	return group("authorization.k8s.io", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "localsubjectaccessreviews", Kind: "LocalSubjectAccessReview"},
			New:   object[authorizationv1.LocalSubjectAccessReview], Namespaced: true, Verbs: onlyCreate,
		},
		{
			Names: resource.Names{Resource: "selfsubjectaccessreviews", Kind: "SelfSubjectAccessReview"},
			New:   object[authorizationv1.SelfSubjectAccessReview], Verbs: onlyCreate,
		},
		{
			Names: resource.Names{Resource: "selfsubjectrulesreviews", Kind: "SelfSubjectRulesReview"},
			New:   object[authorizationv1.SelfSubjectRulesReview], Verbs: onlyCreate,
		},
		{
			Names: resource.Names{Resource: "subjectaccessreviews", Kind: "SubjectAccessReview"},
			New:   object[authorizationv1.SubjectAccessReview], Verbs: onlyCreate,
		},
	}})
}
