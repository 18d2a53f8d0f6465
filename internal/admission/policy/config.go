package policy

import (
	"github.com/tidemark-dev/tidemark/internal/admission/manifest"
	"github.com/tidemark-dev/tidemark/internal/admission/match"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// Config has the dependencies of a plugin of policies.
type Config struct {
	// Catalog has the kinds of params.
	Catalog func() *resource.Catalog
	// Files has the policies and bindings of files; nil: there are none.
	Files *manifest.Directory
	// Authz decides for the variable authorizer; nil: expressions that use it fail.
	Authz authz.Authorizer
	// Metrics counts the checks of policies; nil: they are not counted.
	Metrics *Metrics
	// Conditions counts match conditions; nil: they are not counted.
	Conditions *match.Metrics
}
