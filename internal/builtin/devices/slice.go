package devices

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/nodeselector"
)

// DefaultSlice sets the times of taints.
func DefaultSlice(s *resourcev1.ResourceSlice) {
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		for j := range d.Taints {
			if d.Taints[j].TimeAdded == nil {
				d.Taints[j].TimeAdded = now()
			}
		}
	}
}

// ValidateSlice checks the pool, the nodes and the devices of a slice.
func ValidateSlice(s *resourcev1.ResourceSlice) field.ErrorList { return validateSlice(&s.Spec, nil) }

// ValidateSliceUpdate checks the new object, and that pool, driver and node are unchanged.
func ValidateSliceUpdate(s, old *resourcev1.ResourceSlice) field.ErrorList {
	return validateSlice(&s.Spec, &old.Spec)
}

// SliceWarnings warns about a driver's name with upper-case letters.
func SliceWarnings(s, _ *resourcev1.ResourceSlice) []string {
	if d := s.Spec.Driver; d != strings.ToLower(d) {
		return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", d)}
	}
	return nil
}

func validateSlice(s, old *resourcev1.ResourceSliceSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateDriver(s.Driver, path.Child("driver"))
	pool := path.Child("pool")
	errs = append(errs, validatePool(s.Pool.Name, pool.Child("name"))...)
	if n := s.Pool.ResourceSliceCount; n <= 0 {
		errs = append(errs, field.Invalid(pool.Child("resourceSliceCount"), n, "must be greater than zero"))
	}
	if n := s.Pool.Generation; n < 0 {
		errs = append(errs, field.Invalid(pool.Child("generation"), n, "must be greater than or equal to zero"))
	}
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(s.Pool.Name, old.Pool.Name, pool.Child("name"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(s.Driver, old.Driver, path.Child("driver"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(s.NodeName, old.NodeName, path.Child("nodeName"))...)
	}
	errs = append(errs, validateWhere(s, path)...)
	if s.SharedCounters != nil && s.Devices != nil {
		errs = append(errs, field.Invalid(path, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	errs = append(errs, eachOnce(s.Devices, mostDevices(s), path.Child("devices"),
		func(d *resourcev1.Device) string { return d.Name },
		func(d *resourcev1.Device, path *field.Path) field.ErrorList {
			return validateDevice(d, stored(old, d.Name), s.PerDeviceNodeSelection != nil && *s.PerDeviceNodeSelection, path)
		})...)
	return append(errs, eachOnce(s.SharedCounters, resourcev1.ResourceSliceMaxCounterSets, path.Child("sharedCounters"),
		func(c *resourcev1.CounterSet) string { return c.Name },
		func(c *resourcev1.CounterSet, path *field.Path) field.ErrorList {
			return validateCounters(c.Name, "name", c.Counters, path)
		})...)
}

// stored returns the stored device of a name, or nil.
func stored(s *resourcev1.ResourceSliceSpec, name string) *resourcev1.Device {
	if s == nil {
		return nil
	}
	if i := slices.IndexFunc(s.Devices, func(d resourcev1.Device) bool { return d.Name == name }); i >= 0 {
		return &s.Devices[i]
	}
	return nil
}

// mostDevices returns how many devices a slice may have: fewer with taints or counters.
func mostDevices(s *resourcev1.ResourceSliceSpec) int {
	for i := range s.Devices {
		d := &s.Devices[i]
		if len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 {
			return resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
		}
	}
	return resourcev1.ResourceSliceMaxDevices
}

// where collects the fields that select nodes, and their errors. Exactly one of the fields may
// be set.
type where struct {
	set  []string
	errs field.ErrorList
}

func (w *where) name(name *string, wrong string, path *field.Path) {
	switch {
	case name == nil:
	case *name == "":
		w.errs = append(w.errs, field.Invalid(path.Child("nodeName"), "", wrong))
	default:
		w.set = append(w.set, "`nodeName`")
		w.errs = append(w.errs, wrongs(*name, path.Child("nodeName"), validation.IsDNS1123Subdomain(*name))...)
	}
}

func (w *where) yes(flag *bool, name string, path *field.Path) {
	switch {
	case flag == nil:
	case *flag:
		w.set = append(w.set, "`"+name+"`")
	default:
		w.errs = append(w.errs, field.Invalid(path.Child(name), false, "must be either unset or set to true"))
	}
}

func validateWhere(s *resourcev1.ResourceSliceSpec, path *field.Path) field.ErrorList {
	const words = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	var w where
	w.name(s.NodeName, "must be either unset or set to a non-empty string", path)
	if n := s.NodeSelector; n != nil {
		w.set = append(w.set, "`nodeSelector`")
		at := path.Child("nodeSelector")
		w.errs = append(w.errs, validateNodes(n, at)...)
		if len(n.NodeSelectorTerms) != 1 { // one term, so that the scheduler can combine several slices
			w.errs = append(w.errs, field.Invalid(at.Child("nodeSelectorTerms"), check.Bare(n.NodeSelectorTerms), "must have exactly one node selector term"))
		}
	}
	w.yes(s.AllNodes, "allNodes", path)
	w.yes(s.PerDeviceNodeSelection, "perDeviceNodeSelection", path)
	switch len(w.set) {
	case 0:
		w.errs = append(w.errs, field.Required(path, words))
	case 1:
	default:
		w.errs = append(w.errs, field.Invalid(path, fmt.Sprintf("{%s}", strings.Join(w.set, ", ")), words+", but multiple fields are set"))
	}
	return w.errs
}

// validateNodes checks which nodes reach devices.
func validateNodes(s *corev1.NodeSelector, path *field.Path) field.ErrorList {
	var errs check.Errors
	nodeselector.Validate(&errs, s, path)
	return errs.List()
}

func validateCounters(name, of string, counters map[string]resourcev1.Counter, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if at := path.Child(of); name == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, validateLabel(name, at)...)
	}
	if len(counters) == 0 {
		return append(errs, field.Required(path.Child("counters"), ""))
	}
	any := func(*resourcev1.Counter, *field.Path) field.ErrorList { return nil }
	return append(errs, eachKey(counters, mostCounters, validation.DNS1123LabelMaxLength, path.Child("counters"), validateLabel, any)...)
}

// mostCounters bounds the counters of a set, and those that a device consumes of a set.
const mostCounters = 32
