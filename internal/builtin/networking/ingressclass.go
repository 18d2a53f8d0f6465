package networking

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxController is the maximum length of the name of a controller in bytes.
const maxController = 250

// DefaultIngressClass sets the default scope of the parameters.
func DefaultIngressClass(c *networkingv1.IngressClass) {
	if p := c.Spec.Parameters; p != nil && p.Scope == nil {
		scope := networkingv1.IngressClassParametersReferenceScopeCluster
		p.Scope = &scope
	}
}

// ValidateIngressClass checks the controller and the parameters.
func ValidateIngressClass(c *networkingv1.IngressClass) (errs field.ErrorList) {
	path := field.NewPath("spec")
	if len(c.Spec.Controller) > maxController {
		errs = append(errs, field.TooLong(path.Child("controller"), "", maxController))
	}
	errs = append(errs, utilvalidation.IsDomainPrefixedPath(path.Child("controller"), c.Spec.Controller)...)
	if p := c.Spec.Parameters; p != nil {
		errs = append(errs, validateParameters(p, path.Child("parameters"))...)
	}
	return errs
}

// ValidateIngressClassUpdate checks the new object, and that the controller does not change.
func ValidateIngressClassUpdate(c, old *networkingv1.IngressClass) field.ErrorList {
	errs := validation.ValidateImmutableField(c.Spec.Controller, old.Spec.Controller, field.NewPath("spec", "controller"))
	return append(errs, ValidateIngressClass(c)...)
}

func validateParameters(p *networkingv1.IngressClassParametersReference, path *field.Path) field.ErrorList {
	errs := validateReference(p.APIGroup, p.Kind, p.Name, path)
	const inCluster, inNamespace = networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace
	scopes, at := []string{inCluster, inNamespace}, path.Child("namespace")
	switch {
	case p.Scope == nil:
		errs = append(errs, field.Required(path.Child("scope"), ""))
	case !slices.Contains(scopes, *p.Scope):
		errs = append(errs, field.NotSupported(path.Child("scope"), *p.Scope, scopes))
	case *p.Scope == inNamespace && p.Namespace == nil:
		errs = append(errs, field.Required(at, "`parameters.scope` is set to 'Namespace'"))
	case *p.Scope == inNamespace:
		for _, fault := range validation.ValidateNamespaceName(*p.Namespace, false) {
			errs = append(errs, field.Invalid(at, *p.Namespace, fault))
		}
	case p.Namespace != nil:
		errs = append(errs, field.Forbidden(at, "`parameters.scope` is set to 'Cluster'"))
	}
	return errs
}
