package devices

import (
	"fmt"
	"math"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// validateDevice checks a device. Parts of the stored device, which may be nil, are not checked again. If placed is true, each
// device selects its own nodes.
func validateDevice(d, old *resourcev1.Device, placed bool, path *field.Path) field.ErrorList {
	errs := validateLabel(d.Name, path.Child("name"))
	const most = resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice
	if n := len(d.Attributes) + len(d.Capacity); n > most {
		errs = append(errs, field.Invalid(path, n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", most)))
	}
	const mostValues = resourcev1.ResourceSliceMaxAttributeValuesPerDevice
	if n := len(d.Attributes); n > mostValues { // one value each: lists are alpha
		errs = append(errs, field.Invalid(path, n, fmt.Sprintf("the total number of attribute values must not exceed %d", mostValues)))
	}
	errs = append(errs, eachKey(d.Attributes, -1, longestKey, path.Child("attributes"), validateQualified, validateAttribute)...)
	if old == nil || !equality.Semantic.DeepEqual(d.Capacity, old.Capacity) {
		errs = append(errs, validateCapacities(d, path.Child("capacity"))...)
	}
	if old == nil || !equality.Semantic.DeepEqual(d.Taints, old.Taints) {
		errs = append(errs, each(d.Taints, resourcev1.DeviceTaintsMaxLength, path.Child("taints"), validateTaint)...)
	}
	errs = append(errs, eachOnce(d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, path.Child("consumesCounters"),
		func(c *resourcev1.DeviceCounterConsumption) string { return c.CounterSet },
		func(c *resourcev1.DeviceCounterConsumption, path *field.Path) field.ErrorList {
			return validateCounters(c.CounterSet, "counterSet", c.Counters, path)
		})...)
	errs = append(errs, validatePlace(d, placed, path)...)
	return append(errs, validateBinding(d.BindingConditions, d.BindingFailureConditions, path)...)
}

func validateCapacities(d *resourcev1.Device, path *field.Path) field.ErrorList {
	shared := d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
	return eachKey(d.Capacity, -1, longestKey, path, validateQualified, func(c *resourcev1.DeviceCapacity, path *field.Path) field.ErrorList {
		return validateCapacity(c, shared, path)
	})
}

func validatePlace(d *resourcev1.Device, placed bool, path *field.Path) field.ErrorList {
	const words = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	if !placed {
		if d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil {
			return field.ErrorList{field.Invalid(path, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec")}
		}
		return nil
	}
	var w where
	w.name(d.NodeName, "must not be empty", path)
	if n := d.NodeSelector; n != nil {
		w.set = append(w.set, "`nodeSelector`")
		w.errs = append(w.errs, validateNodes(n, path.Child("nodeSelector"))...)
	}
	w.yes(d.AllNodes, "allNodes", path)
	switch len(w.set) {
	case 0:
		w.errs = append(w.errs, field.Required(path, words))
	case 1:
	default:
		w.errs = append(w.errs, field.Invalid(path, fmt.Sprintf("{%s}", strings.Join(w.set, ", ")), words))
	}
	return w.errs
}

func validateAttribute(a *resourcev1.DeviceAttribute, path *field.Path) field.ErrorList {
	const longest = resourcev1.DeviceAttributeMaxValueLength
	var errs field.ErrorList
	n := 0
	for _, there := range []bool{a.BoolValue != nil, a.IntValue != nil, a.StringValue != nil, a.VersionValue != nil} {
		if there {
			n++
		}
	}
	if s := a.StringValue; s != nil && len(*s) > longest {
		errs = append(errs, field.TooLong(path.Child("string"), "", longest))
	}
	if v := a.VersionValue; v != nil {
		if !isVersion(*v) {
			errs = append(errs, field.Invalid(path.Child("version"), *v, "must be a string compatible with semver.org spec 2.0.0"))
		}
		if len(*v) > longest {
			errs = append(errs, field.TooLong(path.Child("version"), "", longest))
		}
	}
	switch n {
	case 0:
		errs = append(errs, field.Invalid(path, "", "exactly one value must be specified").WithOrigin("union"))
	case 1:
	default:
		errs = append(errs, field.Invalid(path, check.Bare(a), "exactly one value must be specified").WithOrigin("union"))
	}
	return errs
}

// isVersion reports whether a text is a version of semver.org 2.0.0: three numbers, and
// optionally a pre-release and a build.
func isVersion(text string) bool {
	text, build, hasBuild := strings.Cut(text, "+")
	core, before, hasBefore := strings.Cut(text, "-")
	numbers := strings.Split(core, ".")
	if len(numbers) != 3 || slices.ContainsFunc(numbers, func(n string) bool { return !digits(n) || leadingZero(n) }) {
		return false
	}
	parts := func(text string, zeros bool) bool {
		for part := range strings.SplitSeq(text, ".") {
			if part == "" || strings.Trim(part, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" || !zeros && digits(part) && leadingZero(part) {
				return false
			}
		}
		return true
	}
	return (!hasBefore || parts(before, false)) && (!hasBuild || parts(build, true))
}

func digits(text string) bool      { return text != "" && strings.Trim(text, "0123456789") == "" }
func leadingZero(text string) bool { return len(text) > 1 && text[0] == '0' }

func validateTaint(t *resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabelName(t.Key, path.Child("key"))
	if t.Value != "" {
		errs = append(errs, wrongs(t.Value, path.Child("value"), validation.IsValidLabelValue(t.Value))...)
	}
	if at := path.Child("effect"); t.Effect == "" {
		errs = append(errs, field.Required(at, ""))
	} else if !slices.Contains(effects, t.Effect) {
		errs = append(errs, field.NotSupported(at, t.Effect, effects))
	}
	return errs
}

func validateCapacity(c *resourcev1.DeviceCapacity, shared bool, path *field.Path) field.ErrorList {
	at, p := path.Child("requestPolicy"), c.RequestPolicy
	switch {
	case p == nil:
	case !shared:
		return field.ErrorList{field.Forbidden(at, "allowMultipleAllocations must be true")}
	case len(p.ValidValues) > 0 && p.ValidRange != nil:
		return field.ErrorList{field.Forbidden(at, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)}
	case len(p.ValidValues) > 0 && p.Default == nil:
		return field.ErrorList{field.Required(at.Child("default"), "required when validValues is defined")}
	case len(p.ValidValues) > 0:
		return validateValues(c, at.Child("validValues"))
	case p.ValidRange != nil && p.Default == nil:
		return field.ErrorList{field.Required(at.Child("default"), "required when validRange is defined")}
	case p.ValidRange != nil:
		return validateRange(c, at.Child("validRange"))
	}
	return nil
}

// mostValues bounds the valid values of a capacity.
const mostValues = 10

// validateValues checks the valid amounts of a capacity's request policy.
func validateValues(c *resourcev1.DeviceCapacity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	all, usual := c.RequestPolicy.ValidValues, *c.RequestPolicy.Default
	for i := 1; i < len(all); i++ {
		if all[i-1].Cmp(all[i]) > 0 {
			errs = append(errs, field.Invalid(path.Index(i), all[i].String(), "values must be sorted in ascending order"))
		}
	}
	errs = append(errs, eachOnce(all, mostValues, path,
		func(q *apiresource.Quantity) string { return q.AsDec().String() },
		func(q *apiresource.Quantity, path *field.Path) field.ErrorList {
			if q.Cmp(c.Value) > 0 {
				return field.ErrorList{field.Invalid(path, q.String(), "option is larger than capacity value: "+c.Value.String())}
			}
			return nil
		})...)
	if !slices.ContainsFunc(all, func(q apiresource.Quantity) bool { return q.Cmp(usual) == 0 }) {
		errs = append(errs, field.Invalid(path, usual.String(), "default value is not valid according to the requestPolicy"))
	}
	return errs
}

// validateRange checks the range of a capacity's request policy.
func validateRange(c *resourcev1.DeviceCapacity, path *field.Path) field.ErrorList {
	r, usual := c.RequestPolicy.ValidRange, *c.RequestPolicy.Default
	if r.Min == nil {
		return field.ErrorList{field.Required(path.Child("min"), "required when validRange is defined")}
	}
	var errs field.ErrorList
	less := func(at string, small, large apiresource.Quantity, shown apiresource.Quantity, words string) {
		if small.Cmp(large) > 0 {
			errs = append(errs, field.Invalid(path.Child(at), shown.String(), words))
		}
	}
	whole := c.Value.String()
	less("min", *r.Min, c.Value, *r.Min, "min is larger than capacity value: "+whole)
	less("default", *r.Min, usual, usual, "default is less than min: "+r.Min.String())
	if r.Max != nil {
		less("max", *r.Min, *r.Max, *r.Min, "min is larger than max: "+r.Max.String())
		less("max", *r.Max, c.Value, *r.Max, "max is larger than capacity value: "+whole)
		less("default", usual, *r.Max, usual, "default is more than max: "+r.Max.String())
	}
	quantities := []struct {
		at string
		q  *apiresource.Quantity
	}{{"default", &usual}, {"min", r.Min}, {"max", r.Max}, {"step", r.Step}}
	exact, fraction := true, false
	refuse := func(at string, q *apiresource.Quantity, words string) {
		errs, exact = append(errs, field.Invalid(path.Child(at), q.String(), words)), false
	}
	for _, x := range quantities {
		fraction = fraction || x.q != nil && x.q.Cmp(*apiresource.NewQuantity(x.q.Value(), x.q.Format)) != 0 && x.q.CmpInt64(math.MaxInt64) < 0
	}
	for _, x := range quantities {
		if fraction && x.q != nil && x.q.Cmp(*apiresource.NewMilliQuantity(x.q.MilliValue(), x.q.Format)) != 0 {
			refuse(x.at, x.q, "value cannot be represented as a milli value")
		}
	}
	if r.Step == nil || !exact {
		return errs
	}
	if r.Step.Sign() <= 0 {
		return append(errs, field.Invalid(path.Child("step"), r.Step.String(), "must be greater than zero"))
	}
	first := r.Min.DeepCopy()
	first.Add(*r.Step)
	less("step", first, c.Value, *r.Step, fmt.Sprintf("one step %s is larger than capacity value: %s", first.String(), whole))
	for _, x := range quantities {
		switch {
		case fraction || x.q == nil:
		case x.q.Sign() < 0:
			refuse(x.at, x.q, apivalidation.IsNegativeErrorMsg)
		case x.q.CmpInt64(math.MaxInt64) > 0:
			refuse(x.at, x.q, "must not be larger than 9223372036854775807")
		}
	}
	if !exact {
		return errs
	}
	value := (*apiresource.Quantity).Value
	if fraction {
		value = (*apiresource.Quantity).MilliValue
	}
	steps := func(q apiresource.Quantity) {
		if (value(&q)-value(r.Min))%value(r.Step) != 0 {
			errs = append(errs, field.Invalid(path.Child("step"), q.String(), fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", r.Step.String(), r.Min.String())))
		}
	}
	steps(usual)
	if r.Max != nil {
		steps(*r.Max)
	}
	return errs
}
