package podspec_test

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

// pod is a valid Pod. The tests list changes of it.
const pod = `
metadata: {name: web, namespace: default}
spec:
  containers:
  - {name: c, image: app:1}
`

// podErrors sets defaults and validates, as a create does.
func podErrors(p *corev1.Pod) []string {
	var errs check.Errors
	podspec.DefaultPod(p)
	podspec.DefaultResources(&p.Spec)
	podspec.ValidatePod(&errs, p, nil)
	podspec.ValidateProfileAnnotations(&errs, p, field.NewPath("spec"))
	return testkinds.Texts(errs.List())
}

// template is a valid template of a workload.
const template = `
metadata: {labels: {app: web}}
spec:
  containers:
  - {name: c, image: app:1}
`

func templateErrors(t *corev1.PodTemplateSpec) []string {
	var errs check.Errors
	podspec.DefaultTemplate(t)
	podspec.ValidateTemplate(&errs, t, field.NewPath("template"))
	return testkinds.Texts(errs.List())
}

// defaultsBelow returns the changes that defaulting makes at and below a path of a Pod, except for
// the defaults of each container.
func defaultsBelow(path string) func(*corev1.Pod) []string {
	return func(p *corev1.Pod) []string {
		return slices.DeleteFunc(testkinds.Changes(p, podspec.DefaultPod), func(change string) bool {
			return !strings.HasPrefix(change, path) || slices.Contains(containerDefaults, strings.TrimPrefix(change, "spec.containers[0]."))
		})
	}
}

var containerDefaults = []string{"imagePullPolicy: IfNotPresent", "terminationMessagePath: /dev/termination-log", "terminationMessagePolicy: File"}
