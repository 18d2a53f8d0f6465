package apps

import (
	"cmp"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// DefaultDaemonSet sets the defaults.
func DefaultDaemonSet(d *appsv1.DaemonSet) {
	s := &d.Spec
	if s.UpdateStrategy.Type == "" {
		s.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	if s.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		check.SetIfNil(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		check.SetIfNil(&s.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		check.SetIfNil(&s.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	check.SetIfNil(&s.RevisionHistoryLimit, 10)
	setTemplateGeneration(d, templateGeneration(d))
	podspec.DefaultTemplate(&s.Template)
}

// templateGeneration returns the number of changes of the template from an annotation. It is 0 if
// the annotation is no number.
func templateGeneration(d *appsv1.DaemonSet) int64 {
	n, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// setTemplateGeneration sets the annotation, and reports whether it changed.
func setTemplateGeneration(d *appsv1.DaemonSet, n int64) bool {
	value := strconv.FormatInt(n, 10)
	if d.Annotations[appsv1.DeprecatedTemplateGeneration] == value {
		return false
	}
	d.Annotations = maps.Clone(d.Annotations)
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = value
	return true
}

// PrepareDaemonSet sets the template generation of a new object to at least 1.
func PrepareDaemonSet(d *appsv1.DaemonSet) {
	setTemplateGeneration(d, max(templateGeneration(d), 1))
}

// PrepareDaemonSetUpdate increments the template generation if the template changes.
func PrepareDaemonSetUpdate(d, old *appsv1.DaemonSet) bool {
	n := templateGeneration(old)
	if !equality.Semantic.DeepEqual(&d.Spec.Template, &old.Spec.Template) {
		n++
	}
	return setTemplateGeneration(d, n)
}

// ValidateDaemonSet checks a new DaemonSet.
func ValidateDaemonSet(d *appsv1.DaemonSet) field.ErrorList {
	var errs check.Errors
	s, at := &d.Spec, field.NewPath("spec")
	errs.LabelSelector(s.Selector, at.Child("selector"))
	selector, err := metav1.LabelSelectorAsSelector(s.Selector)
	if err == nil && !selector.Matches(labels.Set(s.Template.Labels)) {
		errs.Invalid(at.Child("template", "metadata"), "labels", s.Template.Labels, "`selector` does not match template `labels`")
	}
	if s.Selector != nil && len(s.Selector.MatchLabels)+len(s.Selector.MatchExpressions) == 0 {
		errs.Invalid(at, "selector", s.Selector, "empty selector is invalid for daemonset")
	}
	podspec.ValidateTemplate(&errs, &s.Template, at.Child("template"))
	podspec.RequireRestartAlways(&errs, &s.Template, at.Child("template"), "DaemonSet")
	errs.NonNegative(at, "minReadySeconds", int64(s.MinReadySeconds))
	errs.NonNegative(at, "templateGeneration", templateGeneration(d))
	validateDaemonSetStrategy(&errs, &s.UpdateStrategy, at.Child("updateStrategy"))
	check.NonNegativeIfSet(&errs, at, "revisionHistoryLimit", s.RevisionHistoryLimit)
	return errs.List()
}

// ValidateDaemonSetUpdate checks an update.
func ValidateDaemonSetUpdate(d, old *appsv1.DaemonSet) field.ErrorList {
	var errs check.Errors
	immutableSelector(&errs, d.Spec.Selector, old.Spec.Selector)
	errs.Add(ValidateDaemonSet(d)...)
	return errs.List()
}

func validateDaemonSetStrategy(errs *check.Errors, s *appsv1.DaemonSetUpdateStrategy, at *field.Path) {
	switch u := s.RollingUpdate; s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
	case appsv1.RollingUpdateDaemonSetStrategyType:
		at = at.Child("rollingUpdate")
		amount(errs, at, "maxUnavailable", u.MaxUnavailable)
		amount(errs, at, "maxSurge", u.MaxSurge)
		notAll(errs, at, "maxUnavailable", u.MaxUnavailable)
		notAll(errs, at, "maxSurge", u.MaxSurge)
		switch unavailable, surge := !isZero(u.MaxUnavailable), !isZero(u.MaxSurge); {
		case unavailable && surge:
			errs.Invalid(at, "maxSurge", *u.MaxSurge, "may not be set when maxUnavailable is non-zero")
		case !unavailable && !surge:
			errs.Required(at, "maxUnavailable", "cannot be 0 when maxSurge is 0")
		}
	default:
		shown := *s // kube-apiserver's errors show an unset number as zero
		if u != nil {
			zero := intstr.FromInt32(0)
			shown.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: cmp.Or(u.MaxUnavailable, &zero), MaxSurge: cmp.Or(u.MaxSurge, &zero)}
		}
		errs.Add(field.NotSupported(at, check.Bare(shown), []appsv1.DaemonSetUpdateStrategyType{appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType}))
	}
}

// ValidateDaemonSetStatus checks an update of the status.
func ValidateDaemonSetStatus(d, old *appsv1.DaemonSet) field.ErrorList {
	var errs check.Errors
	s, at := &d.Status, field.NewPath("status")
	errs.NonNegative(at, "currentNumberScheduled", int64(s.CurrentNumberScheduled))
	errs.NonNegative(at, "numberMisscheduled", int64(s.NumberMisscheduled))
	errs.NonNegative(at, "desiredNumberScheduled", int64(s.DesiredNumberScheduled))
	errs.NonNegative(at, "numberReady", int64(s.NumberReady))
	errs.NonNegative(at, "observedGeneration", s.ObservedGeneration)
	errs.NonNegative(at, "updatedNumberScheduled", int64(s.UpdatedNumberScheduled))
	errs.NonNegative(at, "numberAvailable", int64(s.NumberAvailable))
	errs.NonNegative(at, "numberUnavailable", int64(s.NumberUnavailable))
	check.NonNegativeIfSet(&errs, at, "collisionCount", s.CollisionCount)
	notDecremented(&errs, s.CollisionCount, old.Status.CollisionCount)
	return errs.List()
}
