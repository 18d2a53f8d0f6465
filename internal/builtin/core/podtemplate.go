package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// DefaultPodTemplate sets the defaults of a PodTemplate.
func DefaultPodTemplate(t *corev1.PodTemplate) { podspec.DefaultTemplate(&t.Template) }

// ValidatePodTemplate checks a PodTemplate.
func ValidatePodTemplate(t *corev1.PodTemplate) field.ErrorList {
	var errs check.Errors
	podspec.ValidateTemplate(&errs, &t.Template, field.NewPath("template"))
	return errs.List()
}

// ValidatePodTemplateUpdate checks an update of a PodTemplate.
func ValidatePodTemplateUpdate(t, _ *corev1.PodTemplate) field.ErrorList {
	return ValidatePodTemplate(t)
}

// PodTemplateWarnings warns about a PodTemplate.
func PodTemplateWarnings(t, old *corev1.PodTemplate) []string {
	if old != nil && equality.Semantic.DeepEqual(&t.Template, &old.Template) {
		return nil
	}
	return podspec.TemplateWarnings(&t.Template, field.NewPath("template"))
}
