package admission

import (
	"context"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

// This file has plugins that follow from the body of a request alone. An administrator enables
// them.

// alwaysDeny refuses all writes.
func alwaysDeny(*Config) registry.Plugin {
	return registry.Plugin{Mutate: func(_ context.Context, a *registry.Attributes) error {
		return a.Forbidden("admission control is denying all modifications")
	}}
}

// denyExternalIPs refuses new external IPs of Services: they attract the traffic of others.
func denyExternalIPs(*Config) registry.Plugin {
	return registry.Plugin{
		Handles: registry.Objects("services", admissionv1.Create, admissionv1.Update),
		Validate: func(_ context.Context, a *registry.Attributes) error {
			had := map[string]bool{}
			if old, ok := a.Old.(*corev1.Service); ok {
				for _, ip := range old.Spec.ExternalIPs {
					had[ip] = true
				}
			}
			for _, ip := range a.Object.(*corev1.Service).Spec.ExternalIPs {
				if !had[ip] {
					return a.Forbidden("Use of external IPs is denied by admission control")
				}
			}
			return nil
		},
	}
}

// eachContainer yields the containers of all kinds of a Pod, with their paths.
func eachContainer(p *corev1.Pod) func(func(*field.Path, *corev1.Container) bool) {
	return func(yield func(*field.Path, *corev1.Container) bool) {
		spec := field.NewPath("spec")
		for i := range p.Spec.InitContainers {
			if !yield(spec.Child("initContainers").Index(i), &p.Spec.InitContainers[i]) {
				return
			}
		}
		for i := range p.Spec.Containers {
			if !yield(spec.Child("containers").Index(i), &p.Spec.Containers[i]) {
				return
			}
		}
		for i := range p.Spec.EphemeralContainers {
			c := (*corev1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(spec.Child("ephemeralContainers").Index(i), c) {
				return
			}
		}
	}
}

// alwaysPullImages sets the pull policy of new images to Always, so that a Pod runs an image only
// with the credentials to pull it.
func alwaysPullImages(*Config) registry.Plugin {
	const always = corev1.PullAlways
	return registry.Plugin{
		Handles: registry.Objects(pods, admissionv1.Create, admissionv1.Update),
		Mutate: func(_ context.Context, a *registry.Attributes) error {
			p := a.Object.(*corev1.Pod)
			if !newImages(a, p) {
				return nil
			}
			for _, c := range eachContainer(p) {
				c.ImagePullPolicy = always
			}
			for i := range p.Spec.Volumes {
				if v := p.Spec.Volumes[i].Image; v != nil {
					v.PullPolicy = always
				}
			}
			return nil
		},
		Validate: func(_ context.Context, a *registry.Attributes) error {
			p := a.Object.(*corev1.Pod)
			if !newImages(a, p) {
				return nil
			}
			refuse := func(path *field.Path, have corev1.PullPolicy) error {
				return a.Forbidden("%w", field.NotSupported(path, have, []corev1.PullPolicy{always}))
			}
			for path, c := range eachContainer(p) {
				if c.ImagePullPolicy != always {
					return refuse(path.Child("imagePullPolicy"), c.ImagePullPolicy)
				}
			}
			for i := range p.Spec.Volumes {
				if v := p.Spec.Volumes[i].Image; v != nil && v.PullPolicy != always {
					return refuse(field.NewPath("spec", "volumes").Index(i).Child("image", "pullPolicy"), v.PullPolicy)
				}
			}
			return nil
		},
	}
}

// newImages reports whether a request creates a Pod, or changes an image of one.
func newImages(a *registry.Attributes, p *corev1.Pod) bool {
	old, ok := a.Old.(*corev1.Pod)
	if !ok {
		return true
	}
	had := map[string]bool{}
	for _, c := range eachContainer(old) {
		had[c.Image] = true
	}
	for _, c := range eachContainer(p) {
		if !had[c.Image] {
			return true
		}
	}
	return false
}

// tolerateExtendedResources has a Pod that requests an extended resource tolerate the taint that
// keeps other Pods from its nodes.
func tolerateExtendedResources(*Config) registry.Plugin {
	return registry.Plugin{
		Handles: registry.Objects(pods, admissionv1.Create, admissionv1.Update),
		Mutate: func(_ context.Context, a *registry.Attributes) error {
			p, names := a.Object.(*corev1.Pod), map[corev1.ResourceName]bool{}
			for _, all := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
				for i := range all {
					for name := range all[i].Resources.Requests {
						if check.IsExtended(name) {
							names[name] = true
						}
					}
				}
			}
			tolerate(p, slices.Sorted(maps.Keys(names)))
			return nil
		},
	}
}

// tolerate has a Pod tolerate the taints with the names of resources. A toleration replaces the
// Pod's own one for the same taint.
func tolerate(p *corev1.Pod, names []corev1.ResourceName) {
	const operator, effect = corev1.TolerationOpExists, corev1.TaintEffectNoSchedule
	own := map[string]int{}
	for i, t := range p.Spec.Tolerations {
		if t.Operator == operator && t.Effect == effect && t.Value == "" {
			own[t.Key] = i
		}
	}
	for _, name := range names {
		t := corev1.Toleration{Key: string(name), Operator: operator, Effect: effect}
		if i, ok := own[t.Key]; ok {
			p.Spec.Tolerations[i] = t
		} else {
			p.Spec.Tolerations = append(p.Spec.Tolerations, t)
		}
	}
}

// limitAntiAffinity refuses required anti-affinity of Pods for more than a host: a Pod could keep
// others from a whole zone.
func limitAntiAffinity(*Config) registry.Plugin {
	return registry.Plugin{
		Handles: registry.Objects(pods, admissionv1.Create, admissionv1.Update),
		Validate: func(_ context.Context, a *registry.Attributes) error {
			affinity := a.Object.(*corev1.Pod).Spec.Affinity
			if affinity == nil || affinity.PodAntiAffinity == nil {
				return nil
			}
			for _, term := range affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				if term.TopologyKey != corev1.LabelHostname {
					return a.Forbidden("affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed", term.TopologyKey, corev1.LabelHostname)
				}
			}
			return nil
		},
	}
}
