package builtin

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// authenticationGroup has the reviews of tokens and users. They are not stored.
func authenticationGroup() resource.Group {
	return group("authentication.k8s.io", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "selfsubjectreviews", Kind: "SelfSubjectReview"},
			New:   object[authenticationv1.SelfSubjectReview], Verbs: onlyCreate,
		},
		{
			Names: resource.Names{Resource: "tokenreviews", Kind: "TokenReview"},
			New:   object[authenticationv1.TokenReview], Verbs: onlyCreate,
		},
	}})
}

// tokenRequest is the type of the subresource serviceaccounts/token.
var tokenRequest = resource.Type{
	Names: resource.Names{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"},
	New:   object[authenticationv1.TokenRequest],
	Strategy: resource.Strategy{Default: func(o runtime.Object) {
		if s := &o.(*authenticationv1.TokenRequest).Spec; s.ExpirationSeconds == nil {
			s.ExpirationSeconds = ptr.To(int64(3600))
		}
	}},
}
