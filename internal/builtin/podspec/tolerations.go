package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// toleratedSeconds is the time that a Pod stays on a node that is not ready or unreachable.
const toleratedSeconds = 300

// DefaultTolerations adds tolerations of an unready and an unreachable node, unless the Pod has its
// own. It reports whether it added any.
func DefaultTolerations(p *corev1.Pod) bool {
	had := p.Spec.Tolerations
	for _, key := range [...]string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if !tolerates(had, key) {
			p.Spec.Tolerations = append(slices.Clip(p.Spec.Tolerations), corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: ptr.To[int64](toleratedSeconds),
			})
		}
	}
	return len(p.Spec.Tolerations) > len(had)
}

func tolerates(all []corev1.Toleration, key string) bool {
	return slices.ContainsFunc(all, func(t corev1.Toleration) bool {
		return (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
	})
}

// ValidateTolerations checks the tolerations of a Pod or a RuntimeClass.
func ValidateTolerations(errs *check.Errors, all []corev1.Toleration, at *field.Path) {
	for i := range all {
		t, at := &all[i], at.Index(i)
		if t.Key != "" {
			errs.QualifiedName(at, "key", t.Key)
		} else if t.Operator != corev1.TolerationOpExists {
			errs.Invalid(at, "operator", t.Operator, `operator must be Exists when `+"`key`"+` is empty, which means "match all values and all keys"`)
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs.Invalid(at, "effect", t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			if faults := validation.IsValidLabelValue(t.Value); len(faults) > 0 {
				errs.Invalid(at, "operator", t.Value, strings.Join(faults, ";"))
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs.Invalid(at, "operator", t.Value, "value must be empty when `operator` is 'Exists'")
			}
		case corev1.TolerationOpLt, corev1.TolerationOpGt:
			errs.Add(field.NotSupported(at.Child("operator"), t.Operator, alphaTolerationOps))
		default:
			check.Enum(errs, at, "operator", t.Operator, tolerationOps)
		}
		if t.Effect != "" {
			check.Enum(errs, at, "effect", t.Effect, taintEffects)
		}
	}
}
