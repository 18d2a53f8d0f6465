package devices

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/claimspec"
)

// DefaultClaim sets the defaults of requests and tolerations, and compacts raw JSON.
func DefaultClaim(c *resourcev1.ResourceClaim) {
	defaultSpec(&c.Spec)
	if a := c.Status.Allocation; a != nil {
		for i := range a.Devices.Results {
			defaultTolerated(a.Devices.Results[i].Tolerations)
		}
		for i := range a.Devices.Config {
			compact(&a.Devices.Config[i].DeviceConfiguration)
		}
	}
	for i := range c.Status.Devices {
		if data := c.Status.Devices[i].Data; data != nil {
			check.Compact(data)
		}
	}
}

// compact removes white space from the parameters of a driver.
func compact(c *resourcev1.DeviceConfiguration) {
	if c.Opaque != nil {
		check.Compact(&c.Opaque.Parameters)
	}
}

// DefaultTemplate sets the defaults of the claims' spec.
func DefaultTemplate(t *resourcev1.ResourceClaimTemplate) { defaultSpec(&t.Spec.Spec) }

func defaultSpec(s *resourcev1.ResourceClaimSpec) {
	for i := range s.Devices.Config {
		compact(&s.Devices.Config[i].DeviceConfiguration)
	}
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		if r.Exactly != nil {
			defaultCount(&r.Exactly.AllocationMode, &r.Exactly.Count)
			defaultTolerated(r.Exactly.Tolerations)
		}
		for j := range r.FirstAvailable {
			defaultCount(&r.FirstAvailable[j].AllocationMode, &r.FirstAvailable[j].Count)
			defaultTolerated(r.FirstAvailable[j].Tolerations)
		}
	}
}

func defaultCount(mode *resourcev1.DeviceAllocationMode, count *int64) {
	if *mode == "" {
		*mode = resourcev1.DeviceAllocationModeExactCount
	}
	if *mode == resourcev1.DeviceAllocationModeExactCount && *count == 0 {
		*count = 1
	}
}

func defaultTolerated(all []resourcev1.DeviceToleration) {
	for i := range all {
		if all[i].Operator == "" {
			all[i].Operator = resourcev1.DeviceTolerationOpEqual
		}
	}
}

// ValidateClaim checks the requests, constraints and configuration of a new claim.
func ValidateClaim(c *resourcev1.ResourceClaim) field.ErrorList {
	return validateSpec(&c.Spec.Devices, field.NewPath("spec", "devices"))
}

// ValidateClaimUpdate checks that the spec is unchanged.
func ValidateClaimUpdate(c, old *resourcev1.ResourceClaim) field.ErrorList {
	return kept(c.Spec, old.Spec)
}

// ValidateTemplate checks the metadata and the spec of the claims that are made from it.
func ValidateTemplate(t *resourcev1.ResourceClaimTemplate) field.ErrorList {
	path := field.NewPath("spec")
	errs := claimspec.ValidateTemplateMeta(&t.Spec.ObjectMeta, path.Child("metadata"))
	return append(errs, validateSpec(&t.Spec.Spec.Devices, path.Child("spec", "devices"))...)
}

// ValidateTemplateUpdate checks the template like a new one, and that the spec is unchanged.
func ValidateTemplateUpdate(t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
	return append(ValidateTemplate(t), kept(t.Spec, old.Spec)...)
}

func kept[T any](spec, old T) field.ErrorList {
	errs := apivalidation.ValidateImmutableField(spec, old, field.NewPath("spec"))
	for _, e := range errs {
		e.BadValue = check.Bare(spec)
	}
	return errs
}

func validateSpec(d *resourcev1.DeviceClaim, path *field.Path) field.ErrorList {
	all := &selectors{}
	errs := eachOnce(d.Requests, resourcev1.DeviceRequestsMaxSize, path.Child("requests"),
		func(r *resourcev1.DeviceRequest) string { return r.Name },
		func(r *resourcev1.DeviceRequest, path *field.Path) field.ErrorList {
			return validateRequest(r, all, path)
		})
	errs = append(errs, each(d.Constraints, resourcev1.DeviceConstraintsMaxSize, path.Child("constraints"),
		func(c *resourcev1.DeviceConstraint, path *field.Path) field.ErrorList {
			return validateConstraint(c, d, path)
		})...)
	return append(errs, each(d.Config, resourcev1.DeviceConfigMaxSize, path.Child("config"),
		func(c *resourcev1.DeviceClaimConfiguration, path *field.Path) field.ErrorList {
			errs := validateReferences(c.Requests, d, path.Child("requests"))
			return append(errs, validateConfiguration(&c.DeviceConfiguration, path)...)
		})...)
}

func validateRequest(r *resourcev1.DeviceRequest, all *selectors, path *field.Path) field.ErrorList {
	const words = "exactly one of `exactly` or `firstAvailable` is required"
	errs := validateLabel(r.Name, path.Child("name"))
	switch {
	case r.Exactly == nil && len(r.FirstAvailable) == 0:
		return append(errs, field.Required(path, words))
	case r.Exactly != nil && len(r.FirstAvailable) > 0:
		return append(errs, field.Invalid(path, nil, words+", but multiple fields are set"))
	case r.Exactly != nil:
		e := r.Exactly
		return append(errs, validateChoice(choice{e.DeviceClassName, e.Selectors, e.AllocationMode, e.Count, e.Tolerations}, all, path.Child("exactly"))...)
	}
	return append(errs, eachOnce(r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize, path.Child("firstAvailable"),
		func(s *resourcev1.DeviceSubRequest) string { return s.Name },
		func(s *resourcev1.DeviceSubRequest, path *field.Path) field.ErrorList {
			errs := validateLabel(s.Name, path.Child("name"))
			return append(errs, validateChoice(choice{s.DeviceClassName, s.Selectors, s.AllocationMode, s.Count, s.Tolerations}, all, path)...)
		})...)
}

// choice is the common part of a request and of its alternatives.
type choice struct {
	class       string
	selectors   []resourcev1.DeviceSelector
	mode        resourcev1.DeviceAllocationMode
	count       int64
	tolerations []resourcev1.DeviceToleration
}

var modes = []resourcev1.DeviceAllocationMode{resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount}

func validateChoice(c choice, all *selectors, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if at := path.Child("deviceClassName"); c.class == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, wrongs(c.class, at, validation.IsDNS1123Subdomain(c.class)).WithOrigin("format=k8s-long-name")...)
	}
	errs = append(errs, each(c.selectors, resourcev1.DeviceSelectorsMaxSize, path.Child("selectors"), all.validate)...)
	switch at := path.Child("count"); c.mode {
	case resourcev1.DeviceAllocationModeAll:
		if c.count != 0 {
			errs = append(errs, field.Invalid(at, c.count, fmt.Sprintf("must not be specified when allocationMode is '%s'", c.mode)))
		}
	case resourcev1.DeviceAllocationModeExactCount:
		if c.count <= 0 {
			errs = append(errs, field.Invalid(at, c.count, "must be greater than zero"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("allocationMode"), c.mode, modes))
	}
	return append(errs, each(c.tolerations, -1, path.Child("tolerations"), validateToleration)...)
}

var (
	operators = []resourcev1.DeviceTolerationOperator{resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists}
	effects   = []resourcev1.DeviceTaintEffect{resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone}
)

func validateToleration(t *resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
	}
	switch at := path.Child("operator"); t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be empty for operator `Exists`"))
		}
	case resourcev1.DeviceTolerationOpEqual:
		errs = append(errs, wrongs(t.Value, path.Child("value"), validation.IsValidLabelValue(t.Value))...)
	case "":
		errs = append(errs, field.Required(at, ""))
	default:
		errs = append(errs, field.NotSupported(at, t.Operator, operators))
	}
	if t.Effect != "" && !slices.Contains(effects, t.Effect) {
		errs = append(errs, field.NotSupported(path.Child("effect"), t.Effect, effects))
	}
	return errs
}

func validateConstraint(c *resourcev1.DeviceConstraint, d *resourcev1.DeviceClaim, path *field.Path) field.ErrorList {
	errs := validateReferences(c.Requests, d, path.Child("requests"))
	switch {
	case c.MatchAttribute != nil:
		errs = append(errs, validateFullyQualified(string(*c.MatchAttribute), path.Child("matchAttribute"))...)
	case c.DistinctAttribute != nil:
		errs = append(errs, validateFullyQualified(string(*c.DistinctAttribute), path.Child("distinctAttribute"))...)
	default:
		errs = append(errs, field.Required(path, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`))
	}
	return errs
}

// validateReferences checks names of requests of the claim.
func validateReferences(names []string, d *resourcev1.DeviceClaim, path *field.Path) field.ErrorList {
	return eachOnce(names, resourcev1.DeviceRequestsMaxSize, path, itself, func(name *string, path *field.Path) field.ErrorList {
		return validateReference(*name, d, path)
	})
}

func validateReference(name string, d *resourcev1.DeviceClaim, path *field.Path) field.ErrorList {
	const words = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
	parts := strings.Split(name, "/")
	if len(parts) > 2 {
		return field.ErrorList{field.Invalid(path, name, words)}
	}
	var errs field.ErrorList
	for _, part := range parts {
		errs = append(errs, validateLabel(part, path)...)
	}
	if !hasRequest(d, parts) {
		errs = append(errs, field.Invalid(path, name, words))
	}
	return errs
}

func hasRequest(d *resourcev1.DeviceClaim, parts []string) bool {
	i := slices.IndexFunc(d.Requests, func(r resourcev1.DeviceRequest) bool { return r.Name == parts[0] })
	return i >= 0 && (len(parts) == 1 || slices.ContainsFunc(d.Requests[i].FirstAvailable, func(s resourcev1.DeviceSubRequest) bool { return s.Name == parts[1] }))
}

func validateConfiguration(c *resourcev1.DeviceConfiguration, path *field.Path) field.ErrorList {
	at := path.Child("opaque")
	if c.Opaque == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validateDriver(c.Opaque.Driver, at.Child("driver"))
	return append(errs, validateObject(c.Opaque.Parameters, resourcev1.OpaqueParametersMaxLength, at.Child("parameters"))...)
}
