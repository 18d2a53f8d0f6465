package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/quantity"
)

// podResourceName checks the name of a Pod-level resource.
func podResourceName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	errs := check.ResourceName(name, at)
	if len(errs) == 0 && !ofPods(name) {
		errs = append(errs, field.NotSupported(at, name, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceHugePagesPrefix, corev1.ResourceMemory}))
	}
	return errs
}

// hugePages checks that a quantity is a multiple of the page size.
func (r *rules) hugePages(at *field.Path, name corev1.ResourceName, q resource.Quantity) {
	size, err := quantity.Parse(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	if err != nil || size.Sign() <= 0 || size.MilliValue()%1000 != 0 || size.Value() == 0 || q.Value()%size.Value() != 0 {
		r.Invalid(at, "", q.String(), fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name))
	}
}

// resources checks the resources of a container or a Pod. CheckName checks their names.
func (r *rules) resources(q *corev1.ResourceRequirements, at *field.Path, checkName func(corev1.ResourceName, *field.Path) field.ErrorList) {
	huge, usual := false, false
	var names [8]corev1.ResourceName
	amount := func(list string, name corev1.ResourceName, n resource.Quantity) {
		usual = usual || name == corev1.ResourceCPU || name == corev1.ResourceMemory
		if simpleAmount(name, n) {
			return
		}
		at := at.Child(list).Key(string(name))
		r.Add(checkName(name, at)...)
		r.Add(check.Quantity(nil, name, n, at)...)
		if check.IsHugePages(name) {
			huge = true
			r.hugePages(at, name, n)
		}
	}
	for _, name := range sortedNames(names[:0], q.Limits) {
		amount("limits", name, q.Limits[name])
	}
	for _, name := range sortedNames(names[:0], q.Requests) {
		amount("requests", name, q.Requests[name])
		r.underLimit(q.Limits, at, name, q.Requests[name])
	}
	if huge && !usual {
		r.Forbidden(at, "", "HugePages require cpu or memory")
	}
	r.claims(q.Claims, at)
}

// sortedNames appends the sorted names of a list to a slice, so that errors have an order.
func sortedNames(to []corev1.ResourceName, of corev1.ResourceList) []corev1.ResourceName {
	for name := range of {
		to = append(to, name)
	}
	slices.Sort(to)
	return to
}

// simpleAmount reports whether a quantity is of cpu or memory and not negative, as most are. It is
// a fast path.
func simpleAmount(name corev1.ResourceName, q resource.Quantity) bool {
	return (name == corev1.ResourceCPU || name == corev1.ResourceMemory) && q.Sign() >= 0
}

// underLimit checks that a request is at most the limit, or equal to it for resources that cannot
// be overcommitted.
func (r *rules) underLimit(limits corev1.ResourceList, at *field.Path, name corev1.ResourceName, q resource.Quantity) {
	limit, limited := limits[name]
	switch {
	case !limited && !mayOvercommit(name):
		r.Required(at, "limits", "Limit must be set for non overcommitable resources")
	case !limited:
	case q.Cmp(limit) != 0 && !mayOvercommit(name):
		r.Invalid(at, "requests", q.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))
	case q.Cmp(limit) > 0:
		r.Invalid(at, "requests", q.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
	}
}

// claims checks the resource claims of a container.
func (r *rules) claims(all []corev1.ResourceClaim, at *field.Path) {
	var keys, byRequest check.Seen[string] // names or name/request, and the names that have a request
	for i := range all {
		c, at := &all[i], at.Child("claims").Index(i)
		if c.Name == "" {
			r.Required(at, "", "")
			continue
		}
		if keys.Has(c.Name) {
			r.Duplicate(at, "", c.Name)
		} else {
			key := c.Name
			if c.Request != "" {
				r.Each(at, "request", c.Request, check.LabelFaults(c.Request))
				key += "/" + c.Request
			} else if byRequest.Has(c.Name) {
				r.Duplicate(at, "", c.Name)
			}
			if keys.Again(key) {
				r.Duplicate(at, "", key)
			}
			if c.Request != "" {
				byRequest.Again(c.Name)
			}
		}
		if !r.claimNames.Has(c.Name) {
			r.unknownClaim(at, c.Name)
		}
	}
}

func (r *rules) unknownClaim(at *field.Path, name string) {
	if r.noClaim == "" { // made once: there can be many claims, and many invalid names
		r.noClaim = "must be one of the names in pod.spec.resourceClaims"
		if names := slices.Sorted(slices.Values(r.claimNames.All())); len(names) == 0 {
			r.noClaim += " which is empty"
		} else {
			r.noClaim += ": " + strings.Join(names, ", ")
		}
	}
	err := field.NotFound(at, name)
	err.Detail = r.noClaim
	r.Add(err)
}

// resourceClaims checks the resource claims of a Pod.
func (r *rules) resourceClaims(at *field.Path) {
	all := r.spec.ResourceClaims
	if len(all) == 0 {
		return
	}
	if r.pod != nil && IsStatic(r.pod.Annotations) {
		for i := range all {
			r.Forbidden(field.NewPath(""), "", "static pods do not support resource claims")
			r.claimNames.Again(all[i].Name)
		}
		return
	}
	for i := range all {
		c, at := &all[i], at.Child("resourceClaims").Index(i)
		switch {
		case c.Name == "":
			r.Required(at, "name", "")
		case r.claimNames.Again(c.Name):
			r.Duplicate(at, "name", c.Name)
		default:
			r.Each(at, "name", c.Name, check.LabelFaults(c.Name))
		}
		switch claim, template := c.ResourceClaimName != nil, c.ResourceClaimTemplateName != nil; {
		case claim && template:
			r.Invalid(at, "", check.Bare(*c), "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
		case !claim && !template:
			r.Invalid(at, "", check.Bare(*c), "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
		}
		if n := c.ResourceClaimName; n != nil {
			r.Each(at, "resourceClaimName", *n, check.SubdomainFaults(*n))
		}
		if n := c.ResourceClaimTemplateName; n != nil {
			r.Each(at, "resourceClaimTemplateName", *n, check.SubdomainFaults(*n))
		}
	}
}

// IsStatic reports whether the annotations are those of the mirror Pod of a static Pod.
func IsStatic(annotations map[string]string) bool {
	_, ok := annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// podResources checks the Pod-level resources, and compares them with those of the containers.
func (r *rules) podResources(at *field.Path) {
	q := r.spec.Resources
	if q == nil {
		return
	}
	at = at.Child("resources")
	if IsWindows(r.spec) {
		r.Forbidden(at, "", "may not be set for a windows pod")
		return
	}
	if q.Claims != nil {
		r.Forbidden(at, "claims", "claims may not be set for Resources at pod-level")
	}
	r.resources(q, at, podResourceName)
	start := r.Len()
	for name, sum := range sumOfContainers(r.spec, requestsOf) {
		if have, ok := q.Requests[name]; ok && sum.Cmp(have) > 0 {
			r.Invalid(at.Child("requests").Key(string(name)), "", have.String(), fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", sum.String()))
		}
	}
	r.SortFrom(start)
	start = r.Len()
	for name, sum := range sumOfContainers(r.spec, limitsOf) {
		if have, ok := q.Limits[name]; ok && check.IsHugePages(name) && sum.Cmp(have) > 0 {
			r.Invalid(at.Child("limits").Key(string(name)), "", have.String(), fmt.Sprintf("must be greater than or equal to aggregate container limits of %s", sum.String()))
		}
	}
	r.SortFrom(start)
	for i := range r.spec.Containers {
		start := r.Len()
		for name, limit := range r.spec.Containers[i].Resources.Limits {
			if most, ok := q.Limits[name]; ok && limit.Cmp(most) > 0 {
				r.Invalid(at.Child("containers").Index(i).Key(string(name)), "limits", limit.String(), fmt.Sprintf("must be less than or equal to pod limits of %s", most.String()))
			}
		}
		r.SortFrom(start)
	}
}

// ValidateOverhead checks the overhead of a RuntimeClass like the limits of a container.
func ValidateOverhead(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs check.Errors
	r := rules{Errors: &errs, spec: &corev1.PodSpec{}}
	r.resources(&corev1.ResourceRequirements{Limits: list}, at, check.ContainerResourceName)
	return errs.List()
}
