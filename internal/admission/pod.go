// Package admission is what the server itself adds to new objects and refuses of
// them, by what else is stored: the part of kube-apiserver's default admission
// that needs no policies of its users. What follows from an object alone is its
// kind's to default.
package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Completing returns what completes new objects, by collection (registry.Completing).
func Completing(c Config) map[string][]registry.Completion {
	l := newLookups(c.Store)
	var pods []registry.Completion
	add := func(name string, completion registry.Completion) {
		if c.Plugins.On(name) {
			pods = append(pods, completion)
		}
	}
	add(limitRanger, limits{l}.complete)
	add(serviceAccount, accounts{l}.complete)
	add(priority, func(_ context.Context, a *registry.Admission) error { return l.setPriority(c.Store.Any(), a) })
	add(defaultTolerations, setTolerations)
	add(runtimeClass, func(_ context.Context, a *registry.Admission) error { return l.setRuntime(c.Store.Any(), a) })
	return map[string][]registry.Completion{"pods": append(pods, syncAppArmor)}
}

func forbidden(a *registry.Admission, p *corev1.Pod, format string, args ...any) error {
	return apierrors.NewForbidden(a.Type.GroupResource(), p.Name, fmt.Errorf(format, args...))
}

// setPriority resolves the priority class of a Pod, or the default one.
func (l *lookups) setPriority(s *store.State, a *registry.Admission) error {
	p := a.Object.(*corev1.Pod)
	class := &schedulingv1.PriorityClass{PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority)}
	if name := p.Spec.PriorityClassName; name != "" {
		stored := s.Get(priorityClasses, name)
		if stored == nil {
			return forbidden(a, p, "no PriorityClass with name %v was found", name)
		}
		var err error
		if class, err = l.priorityClasses.Of(stored); err != nil {
			return err
		}
	} else if global := l.defaultPriority.At(s); global.err != nil {
		return global.err
	} else if global.class != nil {
		class = global.class
	}
	p.Spec.PriorityClassName = class.Name
	if have := p.Spec.Priority; have != nil && *have != class.Value {
		return forbidden(a, p, "the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *have, class.Value)
	}
	p.Spec.Priority = ptr.To(class.Value)
	if class.PreemptionPolicy == nil {
		return nil
	}
	if have := p.Spec.PreemptionPolicy; have != nil && *have != *class.PreemptionPolicy {
		return forbidden(a, p, "the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *have, *class.PreemptionPolicy)
	}
	p.Spec.PreemptionPolicy = ptr.To(*class.PreemptionPolicy)
	return nil
}

func setTolerations(_ context.Context, a *registry.Admission) error {
	core.DefaultTolerations(a.Object.(*corev1.Pod))
	return nil
}

func syncAppArmor(_ context.Context, a *registry.Admission) error {
	a.Warnings = core.SyncAppArmor(a.Object.(*corev1.Pod))
	return nil
}

// setRuntime adds what the runtime class of a Pod takes for itself, and where it
// runs.
func (l *lookups) setRuntime(s *store.State, a *registry.Admission) error {
	p := a.Object.(*corev1.Pod)
	class := &nodev1.RuntimeClass{}
	if name := p.Spec.RuntimeClassName; name != nil {
		stored := s.Get(runtimeClasses, *name)
		if stored == nil {
			return forbidden(a, p, "pod rejected: RuntimeClass %q not found", *name)
		}
		var err error
		if class, err = l.runtimeClasses.Of(stored); err != nil {
			return err
		}
	}
	switch o := class.Overhead; {
	case o == nil && p.Spec.Overhead != nil:
		a.Refusal = forbidden(a, p, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
	case o != nil && len(p.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(o.PodFixed, p.Spec.Overhead):
		return forbidden(a, p, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
	case o != nil:
		p.Spec.Overhead = o.PodFixed.DeepCopy()
	}
	if class.Scheduling == nil {
		return nil
	}
	return setScheduling(a, p, class.Scheduling.DeepCopy())
}

func setScheduling(a *registry.Admission, p *corev1.Pod, to *nodev1.Scheduling) error {
	for key, value := range to.NodeSelector {
		if have, ok := p.Spec.NodeSelector[key]; ok && have != value {
			return forbidden(a, p, "conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, value, key, have)
		}
		if p.Spec.NodeSelector == nil {
			p.Spec.NodeSelector = make(map[string]string, len(to.NodeSelector))
		}
		p.Spec.NodeSelector[key] = value
	}
	p.Spec.Tolerations = mergeTolerations(p.Spec.Tolerations, to.Tolerations)
	return nil
}
