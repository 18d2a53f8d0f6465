package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// DefaultLimitRange sets the defaults of limits of containers: default is max, and defaultRequest
// is default, or else min.
func DefaultLimitRange(l *corev1.LimitRange) {
	if l.Name == "" && l.GenerateName == "" {
		l.Name = string(uuid.NewUUID())
	}
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
			check.RoundUp(list)
		}
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		item.Default = filled(item.Default, item.Max)
		item.DefaultRequest = filled(item.DefaultRequest, item.Default, item.Min)
	}
}

// filled returns a list with the missing values from others. If there are none, it is nil: an empty
// list is not stored, and has no field manager.
func filled(to corev1.ResourceList, from ...corev1.ResourceList) corev1.ResourceList {
	for _, list := range from {
		for name, q := range list {
			if to == nil {
				to = corev1.ResourceList{}
			}
			if _, ok := to[name]; !ok {
				to[name] = q.DeepCopy()
			}
		}
	}
	if len(to) == 0 {
		return nil
	}
	return to
}

var limitTypes = []corev1.LimitType{corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim}

// ValidateLimitRange checks the limits of each type and their order.
func ValidateLimitRange(l *corev1.LimitRange) (errs field.ErrorList) {
	var seenTypes check.Seen[corev1.LimitType]
	for i := range l.Spec.Limits {
		item, path := &l.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		faults := check.QualifiedName(string(item.Type), path.Child("type"))
		if len(faults) == 0 && !strings.Contains(string(item.Type), "/") && !slices.Contains(limitTypes, item.Type) {
			faults = append(faults, field.Invalid(path.Child("type"), item.Type, "must be a standard limit type or fully qualified"))
		}
		errs = append(errs, faults...)
		if seenTypes.Again(item.Type) {
			errs = append(errs, field.Duplicate(path.Child("type"), item.Type))
		}
		errs = append(errs, validateLimitItem(item, path)...)
	}
	return errs
}

// ValidateLimitRangeUpdate checks the new object. All fields are mutable.
func ValidateLimitRangeUpdate(l, _ *corev1.LimitRange) field.ErrorList { return ValidateLimitRange(l) }

func validateLimitItem(item *corev1.LimitRangeItem, path *field.Path) (errs field.ErrorList) {
	verify := check.ResourceName
	if item.Type == corev1.LimitTypePod || item.Type == corev1.LimitTypeContainer {
		verify = check.ContainerResourceName
	}
	all := map[corev1.ResourceName]bool{}
	names := func(list corev1.ResourceList, of string) {
		for name := range check.Sorted(list) {
			errs = append(errs, verify(name, path.Child(of).Key(string(name)))...)
			all[name] = true
		}
	}
	names(item.Max, "max")
	names(item.Min, "min")
	if item.Type == corev1.LimitTypePod {
		const notOfPods = "may not be specified when `type` is 'Pod'"
		if len(item.Default) > 0 {
			errs = append(errs, field.Forbidden(path.Child("default"), notOfPods))
		}
		if len(item.DefaultRequest) > 0 {
			errs = append(errs, field.Forbidden(path.Child("defaultRequest"), notOfPods))
		}
	} else {
		names(item.Default, "default")
		names(item.DefaultRequest, "defaultRequest")
	}
	_, least := item.Min[corev1.ResourceStorage]
	_, most := item.Max[corev1.ResourceStorage]
	if item.Type == corev1.LimitTypePersistentVolumeClaim && !least && !most {
		errs = append(errs, field.Required(path.Child("limits"), "either minimum or maximum storage value is required, but neither was provided"))
	}
	names(item.MaxLimitRequestRatio, "maxLimitRequestRatio")
	for name := range check.Sorted(all) {
		errs = append(errs, compareLimits(item, name, path)...)
	}
	return errs
}

// compareLimits checks that min <= defaultRequest <= default <= max for a resource.
func compareLimits(item *corev1.LimitRangeItem, name corev1.ResourceName, path *field.Path) (errs field.ErrorList) {
	type amount struct {
		resource.Quantity
		ok    bool
		words string
	}
	of := func(list corev1.ResourceList, words string) amount {
		q, ok := list[name]
		return amount{q, ok, words}
	}
	least, most := of(item.Min, "min"), of(item.Max, "max")
	limit, request := of(item.Default, "default"), of(item.DefaultRequest, "default request")
	if item.Type == corev1.LimitTypePod {
		limit.ok, request.ok = false, false
	}
	notAbove := func(a, b amount, member string, blamed resource.Quantity, secondWords string) {
		if a.ok && b.ok && a.Cmp(b.Quantity) > 0 {
			errs = append(errs, field.Invalid(path.Child(member).Key(string(name)), blamed,
				fmt.Sprintf("%s value %s is greater than %s value %s", a.words, a.String(), secondWords, b.String())))
		}
	}
	notAbove(least, most, "min", least.Quantity, "max")
	notAbove(least, request, "defaultRequest", request.Quantity, "default request")
	notAbove(request, most, "defaultRequest", request.Quantity, "max")
	notAbove(request, limit, "defaultRequest", request.Quantity, "default limit")
	notAbove(least, limit, "default", least.Quantity, "default")
	notAbove(limit, most, "default", most.Quantity, "max")
	ratio := of(item.MaxLimitRequestRatio, "")
	if ratio.ok && ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
		errs = append(errs, field.Invalid(path.Child("maxLimitRequestRatio").Key(string(name)), ratio.Quantity, fmt.Sprintf("ratio %s is less than 1", ratio.String())))
	}
	if ratio.ok && least.ok && most.ok {
		if widest := most.AsApproximateFloat64() / least.AsApproximateFloat64(); ratio.AsApproximateFloat64() > widest {
			errs = append(errs, field.Invalid(path.Child("maxLimitRequestRatio").Key(string(name)), ratio.Quantity, fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), widest)))
		}
	}
	if overcommits := check.OfKubernetes(name) && !check.IsHugePages(name); !overcommits && limit.ok && request.ok && limit.Cmp(request.Quantity) != 0 {
		errs = append(errs, field.Invalid(path.Child("defaultRequest").Key(string(name)), request.Quantity,
			fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name)))
	}
	return errs
}
