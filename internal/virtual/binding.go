package virtual

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// binding assigns a Pod to a node, at the path of the Pod or at the namespace's bindings with the
// name in the body.
func (c *Config) binding(ctx context.Context, call *registry.VirtualRequest) (runtime.Object, error) {
	b := call.Sent.(*corev1.Binding)
	namespace := call.Target.Namespace
	if call.Target.Subresource != "" && b.Name != call.Target.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if b.Name == "" {
		return nil, apierrors.NewBadRequest("Name parameter required.")
	}
	if err := validateBinding(b); err != nil {
		return nil, err
	}
	_, err := call.Registry.UpdateObject(ctx, c.target("pods", namespace, b.Name), registry.ObjectUpdate{
		By: call.By, UID: b.UID, ResourceVersion: b.ResourceVersion, DryRun: call.DryRun,
		Change: func(o runtime.Object) error { return c.assign(o.(*corev1.Pod), b) },
	})
	return nil, err
}

func validateBinding(b *corev1.Binding) error {
	var errs field.ErrorList
	path := field.NewPath("target")
	if k := b.Target.Kind; k != "" && k != "Node" {
		errs = append(errs, field.NotSupported(path.Child("kind"), k, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else if b.Target.Kind == "" || b.Target.Kind == "Node" {
		for _, fault := range validation.NameIsDNSSubdomain(b.Target.Name, false) {
			errs = append(errs, field.Invalid(path.Child("name"), b.Target.Name, fault))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return resource.Invalid(schema.GroupKind{Kind: "Binding"}, b.Name, errs)
}

// assign assigns a Pod to the node of a binding.
func (c *Config) assign(p *corev1.Pod, b *corev1.Binding) error {
	refuse := func(format string, args ...any) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, p.Name, fmt.Errorf(format, args...))
	}
	switch {
	case p.DeletionTimestamp != nil:
		return refuse("pod %s is being deleted, cannot be assigned to a host", p.Name)
	case p.Spec.NodeName != "":
		return refuse("pod %v is already assigned to node %q", p.Name, p.Spec.NodeName)
	case len(p.Spec.SchedulingGates) > 0:
		return refuse("pod %v has non-empty .spec.schedulingGates", p.Name)
	}
	p.Spec.NodeName = b.Target.Name
	p.Labels = merged(p.Labels, b.Labels)
	p.Annotations = merged(p.Annotations, b.Annotations)
	p.Status.NominatedNodeName = ""
	setPodCondition(p, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, c.now())
	return nil
}

// merged adds the values of b to a.
func merged(a, b map[string]string) map[string]string {
	if len(b) == 0 {
		return a
	}
	if a == nil {
		return b
	}
	maps.Copy(a, b)
	return a
}

func setPodCondition(p *corev1.Pod, next corev1.PodCondition, now metav1.Time) {
	p.Status.Conditions = withCondition(p.Status.Conditions, next, now, func(c *corev1.PodCondition) conditionParts {
		return conditionParts{string(c.Type), string(c.Status), &c.LastTransitionTime}
	})
}

// conditionParts are the parts that the conditions of all kinds have in common.
type conditionParts struct {
	kind, status string
	changed      *metav1.Time
}

// withCondition adds or replaces a condition. It keeps the time of the last change if the status is
// the same.
func withCondition[C any](all []C, next C, now metav1.Time, of func(*C) conditionParts) []C {
	set := of(&next)
	*set.changed = now
	for i := range all {
		old := of(&all[i])
		if old.kind != set.kind {
			continue
		}
		if old.status == set.status {
			*set.changed = *old.changed
		}
		all[i] = next
		return all
	}
	return append(all, next)
}
