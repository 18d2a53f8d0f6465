package builtin

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestOldImageVolumes: an update of a workload may keep an image volume without a reference, and may not add one.
func TestOldImageVolumes(t *testing.T) {
	for group, resources := range map[string][]string{
		"apps": {"daemonsets", "deployments", "replicasets", "statefulsets"}, "batch": {"jobs", "cronjobs"}, "": {"podtemplates", "replicationcontrollers"},
	} {
		for _, resource := range resources {
			typ := Catalog().Lookup(group, "v1", resource)
			old, next := typ.New(), typ.New()
			image := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{PullPolicy: corev1.PullAlways}}}
			withTemplate(old, corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: []corev1.Volume{image}}})
			withTemplate(next, corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: []corev1.Volume{image, {Name: "w", VolumeSource: image.VolumeSource}}}})
			typ.Strategy.Default(old)
			typ.Strategy.Default(next)
			found := func(from any) int {
				n := 0
				before := typ.New()
				if from != nil {
					before = old
				} else {
					withTemplate(before, corev1.PodTemplateSpec{})
					typ.Strategy.Default(before)
				}
				for _, e := range typ.Strategy.ValidateUpdate(context.Background(), next, before) {
					if strings.HasSuffix(e.Field, "image.reference") {
						n++
					}
				}
				return n
			}
			if n := found(nil); n == 0 {
				t.Errorf("%s: a new image volume without a reference has no error", resource)
			}
			if n := found(old); n != 0 {
				t.Errorf("%s: stored image volumes without a reference have %d errors", resource, n)
			}
		}
	}
}

// TestOldCapabilities: an update may deny privilege escalation to containers that add CAP_SYS_ADMIN if the stored object has
// such a container, of any sort.
func TestOldCapabilities(t *testing.T) {
	yes, no := true, false
	container := func(escalation *bool, adds ...corev1.Capability) corev1.Container {
		return corev1.Container{Name: "c", Image: "i", SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: escalation, Capabilities: &corev1.Capabilities{Add: adds}}}
	}
	denied := container(&no, "CAP_SYS_ADMIN")
	for name, c := range map[string]struct {
		old  corev1.PodSpec
		want int
	}{
		"denied before":                       {corev1.PodSpec{Containers: []corev1.Container{denied}}, 0},
		"not said before":                     {corev1.PodSpec{Containers: []corev1.Container{container(nil, "CAP_SYS_ADMIN")}}, 0},
		"in an init container":                {corev1.PodSpec{InitContainers: []corev1.Container{denied}, Containers: []corev1.Container{{Name: "c"}}}, 0},
		"in an ephemeral container":           {corev1.PodSpec{EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(denied)}}}, 0},
		"allowed before":                      {corev1.PodSpec{Containers: []corev1.Container{container(&yes, "CAP_SYS_ADMIN")}}, 1},
		"another capability before":           {corev1.PodSpec{Containers: []corev1.Container{container(&no, "SYS_ADMIN")}}, 1},
		"no capabilities before":              {corev1.PodSpec{Containers: []corev1.Container{{Name: "c", SecurityContext: &corev1.SecurityContext{}}}}, 1},
		"no security context before the next": {corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}, 1},
	} {
		for group, resource := range map[string]string{"": "pods", "apps": "deployments"} {
			typ := Catalog().Lookup(group, "v1", resource)
			old, next := typ.New(), typ.New()
			for o, spec := range map[any]corev1.PodSpec{old: c.old, next: {Containers: []corev1.Container{denied}}} {
				if p, ok := o.(*corev1.Pod); ok {
					p.Spec = *spec.DeepCopy()
				} else {
					withTemplate(o, corev1.PodTemplateSpec{Spec: *spec.DeepCopy()})
				}
			}
			typ.Strategy.Default(old)
			typ.Strategy.Default(next)
			found := 0
			for _, e := range typ.Strategy.ValidateUpdate(context.Background(), next, old) {
				if strings.HasPrefix(e.Detail, "cannot set `allowPrivilegeEscalation`") {
					found++
				}
			}
			if found != c.want {
				t.Errorf("%s, %s: %d errors, want %d", resource, name, found, c.want)
			}
		}
	}
}

// withTemplate gives a workload a template.
func withTemplate(o any, t corev1.PodTemplateSpec) {
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		o.Spec.Template = t
	case *appsv1.Deployment:
		o.Spec.Template = t
	case *appsv1.ReplicaSet:
		o.Spec.Template = t
	case *appsv1.StatefulSet:
		o.Spec.Template = t
	case *batchv1.Job:
		o.Spec.Template = t
	case *batchv1.CronJob:
		o.Spec.JobTemplate.Spec.Template = t
	case *corev1.PodTemplate:
		o.Template = t
	case *corev1.ReplicationController:
		o.Spec.Template = &t
	}
}
