package devices

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// TaintRule is a DeviceTaintRule.
type TaintRule = resourcev1.DeviceTaintRule

// mostRuleConditions bounds the conditions of a rule.
const mostRuleConditions = 8

// now returns the current time with the precision of stored times.
func now() *metav1.Time { return &metav1.Time{Time: time.Now().Truncate(time.Second)} }

// DefaultTaintRule sets the time of the taint.
func DefaultTaintRule(r *TaintRule) {
	if r.Spec.Taint.TimeAdded == nil {
		r.Spec.Taint.TimeAdded = now()
	}
}

// PrepareTaintRuleUpdate renews the time of a taint whose effect changes, unless the client set another time.
func PrepareTaintRuleUpdate(next, current *TaintRule) bool {
	t, old := &next.Spec.Taint, &current.Spec.Taint
	if t.Effect == old.Effect || !t.TimeAdded.Equal(old.TimeAdded) {
		return false
	}
	t.TimeAdded = now()
	return true
}

// ValidateTaintRule checks a new rule.
func ValidateTaintRule(r *TaintRule) field.ErrorList {
	return validateTaintRule(r, nil)
}

// ValidateTaintRuleUpdate checks an update. A stored effect that is not known may stay.
func ValidateTaintRuleUpdate(r, old *TaintRule) field.ErrorList {
	return validateTaintRule(r, &old.Spec.Taint)
}

func validateTaintRule(r *TaintRule, old *resourcev1.DeviceTaint) (errs field.ErrorList) {
	path := field.NewPath("spec")
	if s := r.Spec.DeviceSelector; s != nil {
		at := path.Child("deviceSelector")
		if s.Driver != nil {
			errs = append(errs, validateDriver(*s.Driver, at.Child("driver"))...)
		}
		if s.Pool != nil {
			errs = append(errs, validatePool(*s.Pool, at.Child("pool"))...)
		}
		if s.Device != nil {
			errs = append(errs, validateLabel(*s.Device, at.Child("device"))...)
		}
	}
	t, at := r.Spec.Taint, path.Child("taint")
	wrong := validateTaint(&t, at)
	if old != nil && old.Effect == t.Effect {
		wrong = wrong.Filter(func(err error) bool { return err.(*field.Error).Field == at.Child("effect").String() })
	}
	return append(errs, wrong...)
}

// ValidateTaintRuleStatus checks an update of the subresource status.
func ValidateTaintRuleStatus(r, _ *TaintRule) field.ErrorList {
	at := field.NewPath("status", "conditions")
	errs := check.Conditions(r.Status.Conditions, at)
	if n := len(r.Status.Conditions); n > mostRuleConditions {
		errs = append(errs, field.TooMany(at, n, mostRuleConditions))
	}
	return errs
}
