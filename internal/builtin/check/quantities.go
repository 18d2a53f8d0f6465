package check

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// RoundUp rounds quantities up to thousandths, the finest that the API stores.
func RoundUp(list corev1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q
	}
}

// Quantity appends the errors of a quantity of a resource to errs.
func Quantity(errs field.ErrorList, name corev1.ResourceName, q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() < 0 {
		errs = append(errs, field.Invalid(path, q.String(), validation.IsNegativeErrorMsg))
	}
	if isCounted(name) && q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(path, q, "must be an integer"))
	}
	return errs
}

// Positive checks that a quantity is positive.
func Positive(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() <= 0 {
		return field.ErrorList{field.Invalid(path, q.String(), "must be greater than zero")}
	}
	return nil
}

// countedResources are counts of objects, which must be integers.
var countedResources = []corev1.ResourceName{
	corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
	corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
	corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
}

func isCounted(name corev1.ResourceName) bool {
	return slices.Contains(countedResources, name) || IsExtended(name)
}

// IsExtended reports whether a name is that of an extended resource.
func IsExtended(name corev1.ResourceName) bool {
	if OfKubernetes(name) || strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) {
		return false
	}
	return len(utilvalidation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// OfKubernetes reports whether a resource name is unqualified or in the kubernetes.io domain.
func OfKubernetes(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// IsHugePages reports whether a resource is huge pages, of any size.
func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// quotaResources are the unqualified names that a quota can limit, except for huge pages.
var quotaResources = append([]corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsStorage, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
}, countedResources...)

// IsQuotaResource reports whether an unqualified name is one that a quota can limit.
func IsQuotaResource(name corev1.ResourceName) bool {
	return slices.Contains(quotaResources, name) || IsHugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// ResourceName checks the name of a resource.
func ResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if slices.Contains(quotaResources, name) {
		return nil
	}
	errs := QualifiedName(string(name), path)
	if len(errs) == 0 && !strings.Contains(string(name), "/") && !IsQuotaResource(name) && name != corev1.ResourceStorage {
		errs = append(errs, field.Invalid(path, name, "must be a standard resource type or fully qualified"))
	}
	return errs
}

// ContainerResourceName checks the name of a resource of a container.
func ContainerResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := ResourceName(name, path)
	switch {
	case !strings.Contains(string(name), "/"):
		known := name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || IsHugePages(name)
		if !known {
			errs = append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
		}
	case !OfKubernetes(name) && !IsExtended(name):
		errs = append(errs, field.Invalid(path, name, "doesn't follow extended resource name standard"))
	}
	return errs
}
