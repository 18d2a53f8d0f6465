package apps

import (
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
)

// DefaultDaemonSet fills in what a client leaves out.
func DefaultDaemonSet(d *appsv1.DaemonSet) {
	s := &d.Spec
	if s.UpdateStrategy.Type == "" {
		s.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	if s.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		orPointer(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		orPointer(&s.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		orPointer(&s.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	orPointer(&s.RevisionHistoryLimit, 10)
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
