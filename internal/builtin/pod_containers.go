package builtin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
)

// mirrorAnnotation marks the Pods that a node runs by itself.
const mirrorAnnotation = "kubernetes.io/config.mirror"

func isStatic(p *corev1.Pod) bool {
	_, ok := p.Annotations[mirrorAnnotation]
	return ok
}

// invalidPod is the answer to a Pod that breaks rules.
func invalidPod(p *corev1.Pod, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, p.Name, errs)
}

// addEphemeral is the subresource ephemeralcontainers: containers can be added to
// a Pod that runs, and nothing else.
func addEphemeral(o, sent runtime.Object) error {
	p, next := o.(*corev1.Pod), sent.(*corev1.Pod).Spec.EphemeralContainers
	for i := range next {
		core.DefaultEphemeral(&next[i])
	}
	path := field.NewPath("spec", "ephemeralContainers")
	errs := validateEphemeral(&p.Spec, next, path)
	if isStatic(p) {
		errs = append(errs, field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers"))
	}
	if len(errs) == 0 {
		errs = keptEphemeral(p.Spec.EphemeralContainers, next, path)
	}
	p.Spec.EphemeralContainers = next
	return invalidPod(p, errs)
}

// keptEphemeral compares those that there are with those that are sent.
func keptEphemeral(old, next []corev1.EphemeralContainer, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range old {
		j := slices.IndexFunc(next, func(c corev1.EphemeralContainer) bool { return c.Name == old[i].Name })
		switch {
		case j < 0:
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", old[i].Name)))
		case !equality.Semantic.DeepEqual(&old[i], &next[j]):
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be changed\n", old[i].Name)))
		}
	}
	return errs
}

// validateEphemeral checks what is particular to these containers; what they share
// with others is the kind's validation to know.
func validateEphemeral(spec *corev1.PodSpec, all []corev1.EphemeralContainer, path *field.Path) field.ErrorList {
	names, targets := map[string]bool{}, map[string]bool{}
	for i := range spec.Containers {
		names[spec.Containers[i].Name], targets[spec.Containers[i].Name] = true, true
	}
	for i := range spec.InitContainers {
		names[spec.InitContainers[i].Name] = true
	}
	volumes := map[string]bool{}
	for i := range spec.Volumes {
		volumes[spec.Volumes[i].Name] = true
	}
	var errs field.ErrorList
	for i := range all {
		c, at := &all[i], path.Index(i)
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		default:
			for _, fault := range validation.IsDNS1123Label(c.Name) {
				errs = append(errs, field.Invalid(at.Child("name"), c.Name, fault))
			}
		}
		if names[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		names[c.Name] = true
		errs = append(errs, ephemeralMounts(c, volumes, at)...)
		errs = append(errs, ephemeralImage(c, at)...)
		if t := c.TargetContainerName; t != "" && !targets[t] {
			errs = append(errs, field.NotFound(at.Child("targetContainerName"), t))
		}
		errs = append(errs, ephemeralForbidden(c, at)...)
	}
	return errs
}

func ephemeralMounts(c *corev1.EphemeralContainer, volumes map[string]bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			errs = append(errs, field.NotFound(at.Child("volumeMounts").Index(i).Child("name"), m.Name))
		}
	}
	for i, d := range c.VolumeDevices {
		if !volumes[d.Name] {
			errs = append(errs, field.NotFound(at.Child("volumeDevices").Index(i).Child("name"), d.Name))
		}
	}
	return errs
}

func ephemeralImage(c *corev1.EphemeralContainer, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case c.Image == "":
		errs = append(errs, field.Required(at.Child("image"), ""))
	case strings.TrimSpace(c.Image) != c.Image:
		errs = append(errs, field.Invalid(at.Child("image"), c.Image, "must not have leading or trailing whitespace"))
	}
	switch c.TerminationMessagePolicy {
	case corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError:
	default:
		errs = append(errs, field.NotSupported(at.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
			[]corev1.TerminationMessagePolicy{corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError}))
	}
	switch c.ImagePullPolicy {
	case corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
	default:
		errs = append(errs, field.NotSupported(at.Child("imagePullPolicy"), c.ImagePullPolicy,
			[]corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}))
	}
	return errs
}

// ephemeralForbidden: what a container has that is there from the start.
func ephemeralForbidden(c *corev1.EphemeralContainer, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"ports", len(c.Ports) > 0},
		{"resources", c.Resources.Limits != nil || c.Resources.Requests != nil || c.Resources.Claims != nil},
		{"livenessProbe", c.LivenessProbe != nil},
		{"readinessProbe", c.ReadinessProbe != nil},
		{"startupProbe", c.StartupProbe != nil},
		{"lifecycle", c.Lifecycle != nil},
		{"resizePolicy", len(c.ResizePolicy) > 0},
		{"restartPolicy", c.RestartPolicy != nil},
		{"restartPolicyRules", len(c.RestartPolicyRules) > 0},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(at.Child(f.name), "cannot be set for an Ephemeral Container"))
		}
	}
	for i, m := range c.VolumeMounts {
		if m.SubPath != "" {
			errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(i).Child("subPath"), "cannot be set for an Ephemeral Container"))
		}
		if m.SubPathExpr != "" {
			errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(i).Child("subPathExpr"), "cannot be set for an Ephemeral Container"))
		}
	}
	return errs
}

// resizePod is the subresource resize: what the containers may use of cpu and
// memory changes, and nothing else.
func resizePod(o, sent runtime.Object) error {
	p, next, path := o.(*corev1.Pod), sent.(*corev1.Pod), field.NewPath("spec")
	if isStatic(p) {
		return invalidPod(p, field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")})
	}
	before := core.QOSClass(&p.Spec)
	var values, changes field.ErrorList
	for _, part := range []struct {
		name     string
		to, from []corev1.Container
	}{
		{"containers", p.Spec.Containers, next.Spec.Containers},
		{"initContainers", p.Spec.InitContainers, next.Spec.InitContainers},
	} {
		if !sameNames(part.to, part.from) {
			return invalidPod(p, field.ErrorList{field.Forbidden(path.Child(part.name), part.name+" may not be added or removed on resize")})
		}
		for i := range part.to {
			to, from, at := &part.to[i], &part.from[i], path.Child(part.name).Index(i).Child("resources")
			values = append(values, validateResources(&from.Resources, at)...)
			changes = append(changes, keptResources(&to.Resources, &from.Resources, at)...)
			if !equality.Semantic.DeepEqual(to.ResizePolicy, from.ResizePolicy) || !resizable(to.Resources, from.Resources) {
				changes = append(changes, field.Forbidden(path, "only cpu and memory resources are mutable"))
			}
			to.Resources = from.Resources
		}
	}
	if before != core.QOSClass(&p.Spec) {
		values = append(values, field.Invalid(path, before, "Pod QOS Class may not change as a result of resizing"))
	}
	return invalidPod(p, append(values, changes...))
}

func sameNames(a, b []corev1.Container) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.Container) bool { return x.Name == y.Name })
}

// resizable tells whether nothing but cpu and memory differs.
func resizable(old, next corev1.ResourceRequirements) bool {
	rest := func(l corev1.ResourceList) corev1.ResourceList {
		l = maps.Clone(l)
		delete(l, corev1.ResourceCPU)
		delete(l, corev1.ResourceMemory)
		return l
	}
	return equality.Semantic.DeepEqual(rest(old.Requests), rest(next.Requests)) &&
		equality.Semantic.DeepEqual(rest(old.Limits), rest(next.Limits)) &&
		equality.Semantic.DeepEqual(old.Claims, next.Claims)
}

// validateResources checks amounts.
func validateResources(r *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		if q := r.Limits[name]; q.Sign() < 0 {
			errs = append(errs, field.Invalid(at.Child("limits").Key(string(name)), q.String(), "must be greater than or equal to 0"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		q := r.Requests[name]
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), q.String(), "must be greater than or equal to 0"))
		}
		if limit, ok := r.Limits[name]; ok && q.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(at.Child("requests"), q.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		}
	}
	return errs
}

// keptResources: what a container says of cpu and memory cannot be unsaid.
func keptResources(old, next *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if lost(old.Requests, next.Requests) {
		errs = append(errs, field.Forbidden(at.Child("requests"), "resource requests cannot be removed"))
	}
	if lost(old.Limits, next.Limits) {
		errs = append(errs, field.Forbidden(at.Child("limits"), "resource limits cannot be removed"))
	}
	return errs
}

// lost tells whether cpu or memory was said and is not any more.
func lost(old, next corev1.ResourceList) bool {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		_, had := old[name]
		if _, has := next[name]; had && !has {
			return true
		}
	}
	return false
}
