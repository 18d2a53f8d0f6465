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
	"github.com/tidemark-dev/tidemark/internal/builtin/core"
)

// DefaultDaemonSet fills in what a client leaves out.
func DefaultDaemonSet(d *appsv1.DaemonSet) {
	s := &d.Spec
	if s.UpdateStrategy.Type == "" {
		s.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	if s.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		core.SetMissing(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		core.SetMissing(&s.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		core.SetMissing(&s.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	core.SetMissing(&s.RevisionHistoryLimit, 10)
	setTemplateGeneration(d, templateGeneration(d))
	core.DefaultTemplate(&s.Template)
}

// templateGeneration counts the changes of the template. It stands in an
// annotation; what is no number there counts as zero.
func templateGeneration(d *appsv1.DaemonSet) int64 {
	n, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func setTemplateGeneration(d *appsv1.DaemonSet, n int64) {
	value := strconv.FormatInt(n, 10)
	if d.Annotations[appsv1.DeprecatedTemplateGeneration] == value {
		return
	}
	d.Annotations = maps.Clone(d.Annotations)
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = value
}

// PrepareDaemonSet begins to count the changes of the template of a new object.
func PrepareDaemonSet(d *appsv1.DaemonSet) {
	setTemplateGeneration(d, max(templateGeneration(d), 1))
}

// PrepareDaemonSetUpdate counts a change of the template.
func PrepareDaemonSetUpdate(d, old *appsv1.DaemonSet) {
	n := templateGeneration(old)
	if !equality.Semantic.DeepEqual(&d.Spec.Template, &old.Spec.Template) {
		n++
	}
	setTemplateGeneration(d, n)
}

// ValidateDaemonSet checks a new one.
func ValidateDaemonSet(d *appsv1.DaemonSet) field.ErrorList {
	var f core.Faults
	s, at := &d.Spec, field.NewPath("spec")
	f.LabelSelector(s.Selector, at.Child("selector"))
	selector, err := metav1.LabelSelectorAsSelector(s.Selector)
	if err == nil && !selector.Matches(labels.Set(s.Template.Labels)) {
		f.Invalid(at.Child("template", "metadata"), "labels", s.Template.Labels, "`selector` does not match template `labels`")
	}
	if s.Selector != nil && len(s.Selector.MatchLabels)+len(s.Selector.MatchExpressions) == 0 {
		f.Invalid(at, "selector", s.Selector, "empty selector is invalid for daemonset")
	}
	f.Template(&s.Template, at.Child("template"))
	f.RunsForever(&s.Template, at.Child("template"), "DaemonSet")
	f.NonNegative(at, "minReadySeconds", int64(s.MinReadySeconds))
	f.NonNegative(at, "templateGeneration", templateGeneration(d))
	validateDaemonSetStrategy(&f, &s.UpdateStrategy, at.Child("updateStrategy"))
	core.NonNegativeIfSet(&f, at, "revisionHistoryLimit", s.RevisionHistoryLimit)
	return f.List()
}

// ValidateDaemonSetUpdate checks an update.
func ValidateDaemonSetUpdate(d, old *appsv1.DaemonSet) field.ErrorList {
	var f core.Faults
	immutableSelector(&f, d.Spec.Selector, old.Spec.Selector)
	f.Add(ValidateDaemonSet(d)...)
	return f.List()
}

func validateDaemonSetStrategy(f *core.Faults, s *appsv1.DaemonSetUpdateStrategy, at *field.Path) {
	switch u := s.RollingUpdate; s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
	case appsv1.RollingUpdateDaemonSetStrategyType:
		at = at.Child("rollingUpdate")
		amount(f, at, "maxUnavailable", u.MaxUnavailable)
		amount(f, at, "maxSurge", u.MaxSurge)
		notAll(f, at, "maxUnavailable", u.MaxUnavailable)
		notAll(f, at, "maxSurge", u.MaxSurge)
		switch unavailable, surge := !isZero(u.MaxUnavailable), !isZero(u.MaxSurge); {
		case unavailable && surge:
			f.Invalid(at, "maxSurge", *u.MaxSurge, "may not be set when maxUnavailable is non-zero")
		case !unavailable && !surge:
			f.Required(at, "maxUnavailable", "cannot be 0 when maxSurge is 0")
		}
	default:
		shown := *s // of which the wire shows numbers that are not there as zero
		if u != nil {
			zero := intstr.FromInt32(0)
			shown.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: cmp.Or(u.MaxUnavailable, &zero), MaxSurge: cmp.Or(u.MaxSurge, &zero)}
		}
		f.Add(field.NotSupported(at, check.Bare(shown), []appsv1.DaemonSetUpdateStrategyType{appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType}))
	}
}

// ValidateDaemonSetStatus checks an update of the status.
func ValidateDaemonSetStatus(d, old *appsv1.DaemonSet) field.ErrorList {
	var f core.Faults
	s, at := &d.Status, field.NewPath("status")
	f.NonNegative(at, "currentNumberScheduled", int64(s.CurrentNumberScheduled))
	f.NonNegative(at, "numberMisscheduled", int64(s.NumberMisscheduled))
	f.NonNegative(at, "desiredNumberScheduled", int64(s.DesiredNumberScheduled))
	f.NonNegative(at, "numberReady", int64(s.NumberReady))
	f.NonNegative(at, "observedGeneration", s.ObservedGeneration)
	f.NonNegative(at, "updatedNumberScheduled", int64(s.UpdatedNumberScheduled))
	f.NonNegative(at, "numberAvailable", int64(s.NumberAvailable))
	f.NonNegative(at, "numberUnavailable", int64(s.NumberUnavailable))
	core.NonNegativeIfSet(&f, at, "collisionCount", s.CollisionCount)
	notDecremented(&f, s.CollisionCount, old.Status.CollisionCount)
	return f.List()
}
