// Package apps is what the kinds that keep Pods running default, validate and warn
// about. Paths, reasons, words and their order are those of kube-apiserver v1.36.
package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
)

// DefaultDeployment fills in what a client leaves out.
func DefaultDeployment(d *appsv1.Deployment) {
	s := &d.Spec
	orPointer(&s.Replicas, 1)
	if s.Strategy.Type == "" {
		s.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if s.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		if s.Strategy.RollingUpdate == nil {
			s.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{}
		}
		orPointer(&s.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		orPointer(&s.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	orPointer(&s.RevisionHistoryLimit, 10)
	orPointer(&s.ProgressDeadlineSeconds, 600)
	core.DefaultTemplate(&s.Template)
}

// orPointer sets what is not there.
func orPointer[T any](to **T, value T) {
	if *to == nil {
		*to = ptr.To(value)
	}
}
