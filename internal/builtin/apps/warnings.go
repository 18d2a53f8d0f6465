package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/claimspec"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// DeploymentWarnings returns the warnings about a Deployment.
func DeploymentWarnings(d, old *appsv1.Deployment) (list []string) {
	switch {
	case old == nil:
		list = podspec.NameWarnings(d.Name)
	case equality.Semantic.DeepEqual(&d.Spec, &old.Spec) && equality.Semantic.DeepEqual(d.Annotations, old.Annotations):
		return nil
	}
	return append(list, podspec.TemplateWarnings(&d.Spec.Template, field.NewPath("spec", "template"))...)
}

// ReplicaSetWarnings returns the warnings about a ReplicaSet.
func ReplicaSetWarnings(r, old *appsv1.ReplicaSet) (list []string) {
	switch {
	case old == nil:
		list = podspec.NameWarnings(r.Name)
	case equality.Semantic.DeepEqual(&r.Spec, &old.Spec):
		return nil
	}
	return append(list, podspec.TemplateWarnings(&r.Spec.Template, field.NewPath("spec", "template"))...)
}

// DaemonSetWarnings returns the warnings about a DaemonSet whose template is new or changed.
func DaemonSetWarnings(d, old *appsv1.DaemonSet) []string {
	if old != nil && equality.Semantic.DeepEqual(&d.Spec.Template, &old.Spec.Template) {
		return nil
	}
	return podspec.TemplateWarnings(&d.Spec.Template, field.NewPath("spec", "template"))
}

// StatefulSetWarnings returns the warnings about a StatefulSet.
func StatefulSetWarnings(o, old *appsv1.StatefulSet) (list []string) {
	if old == nil || !equality.Semantic.DeepEqual(&o.Spec, &old.Spec) {
		list = podspec.TemplateWarnings(&o.Spec.Template, field.NewPath("spec", "template"))
	}
	for i := range o.Spec.VolumeClaimTemplates {
		at := field.NewPath("spec", "volumeClaimTemplates").Index(i)
		if old != nil {
			at = at.Child("Spec")
		}
		list = append(list, claimspec.Warnings(&o.Spec.VolumeClaimTemplates[i].Spec, at)...)
	}
	if n := o.Spec.RevisionHistoryLimit; n != nil && *n < 0 {
		list = append(list, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return list
}
