package devices

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DefaultClass removes white space from the parameters of drivers.
func DefaultClass(c *resourcev1.DeviceClass) {
	for i := range c.Spec.Config {
		compact(&c.Spec.Config[i].DeviceConfiguration)
	}
}

// ValidateClass checks the selectors and the configuration of a class.
func ValidateClass(c *resourcev1.DeviceClass) field.ErrorList { return validateClass(c, false) }

// ValidateClassUpdate checks the new object like a created one.
func ValidateClassUpdate(c, old *resourcev1.DeviceClass) field.ErrorList {
	return validateClass(c, equality.Semantic.DeepEqual(c.Spec.Selectors, old.Spec.Selectors))
}

// validateClass checks a class. Stored selectors are unchanged by an update.
func validateClass(c *resourcev1.DeviceClass, stored bool) field.ErrorList {
	path := field.NewPath("spec")
	errs := each(c.Spec.Selectors, resourcev1.DeviceSelectorsMaxSize, path.Child("selectors"), (&selectors{stored: stored}).validate)
	errs = append(errs, each(c.Spec.Config, resourcev1.DeviceConfigMaxSize, path.Child("config"),
		func(c *resourcev1.DeviceClassConfiguration, path *field.Path) field.ErrorList {
			return validateConfiguration(&c.DeviceConfiguration, path)
		})...)
	if name := c.Spec.ExtendedResourceName; name != nil && !isExtended(*name) {
		errs = append(errs, field.Invalid(path.Child("extendedResourceName"), *name, "must be a valid extended resource name").WithOrigin("format=k8s-extended-resource-name"))
	}
	return errs
}

// isExtended reports whether a name is that of an extended resource: it has a domain, not one
// of Kubernetes, and a quota can limit requests of it.
func isExtended(name string) bool {
	if !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) || strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) {
		return false
	}
	return len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}
