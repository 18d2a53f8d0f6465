// Package admission is what the server itself adds to new objects and refuses of
// them, by what else is stored: the part of kube-apiserver's default admission
// that needs no policies of its users. What follows from an object alone is its
// kind's to default.
package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Where what Pods refer to is stored.
const (
	priorityClasses = "priorityclasses.scheduling.k8s.io"
	runtimeClasses  = "runtimeclasses.node.k8s.io"
)

// Completing returns what completes new objects, by collection (registry.Completing).
func Completing(c Config) map[string][]registry.Completion {
	s := c.Store
	var pods []registry.Completion
	add := func(name string, completion registry.Completion) {
		if c.Plugins.On(name) {
			pods = append(pods, completion)
		}
	}
	add(limitRanger, limits{s}.complete)
	add(serviceAccount, accounts{s}.complete)
	add(priority, func(_ context.Context, a *registry.Admission) error { return setPriority(s.Any(), a) })
	add(defaultTolerations, setTolerations)
	add(runtimeClass, func(_ context.Context, a *registry.Admission) error { return setRuntime(s.Any(), a) })
	return map[string][]registry.Completion{"pods": append(pods, syncAppArmor)}
}

func forbidden(a *registry.Admission, p *corev1.Pod, format string, args ...any) error {
	return apierrors.NewForbidden(a.Type.GroupResource(), p.Name, fmt.Errorf(format, args...))
}

// setPriority resolves the priority class of a Pod, or the default one.
func setPriority(s *store.State, a *registry.Admission) error {
	p := a.Object.(*corev1.Pod)
	class := &schedulingv1.PriorityClass{PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority)}
	if name := p.Spec.PriorityClassName; name != "" {
		stored := s.Get(priorityClasses, name)
		if stored == nil {
			return forbidden(a, p, "no PriorityClass with name %v was found", name)
		}
		class = &schedulingv1.PriorityClass{}
		if err := json.Unmarshal(stored.Bytes(), class); err != nil {
			return err
		}
	} else if global, err := globalDefault(s); err != nil {
		return err
	} else if global != nil {
		class = global
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
	p.Spec.PreemptionPolicy = class.PreemptionPolicy
	return nil
}

// globalDefault is the class of Pods that name none: the lowest one that wants to
// be that. Nil: there is none.
func globalDefault(s *store.State) (*schedulingv1.PriorityClass, error) {
	var lowest *schedulingv1.PriorityClass
	for o := range s.Snapshot(priorityClasses).Scan("", "") {
		if !bytes.Contains(o.Bytes(), isGlobal) {
			continue
		}
		var c schedulingv1.PriorityClass
		if err := json.Unmarshal(o.Bytes(), &c); err != nil {
			return nil, err
		}
		if c.GlobalDefault && (lowest == nil || lowest.Value > c.Value) {
			lowest = &c
		}
	}
	return lowest, nil
}

// isGlobal is in each class that may be the default one.
var isGlobal = []byte(`"globalDefault":true`)

func setTolerations(_ context.Context, a *registry.Admission) error {
	podspec.DefaultTolerations(a.Object.(*corev1.Pod))
	return nil
}

func syncAppArmor(_ context.Context, a *registry.Admission) error {
	a.Warnings = podspec.SyncAppArmor(a.Object.(*corev1.Pod))
	return nil
}

// setRuntime adds what the runtime class of a Pod takes for itself, and where it
// runs.
func setRuntime(s *store.State, a *registry.Admission) error {
	p := a.Object.(*corev1.Pod)
	class := nodev1.RuntimeClass{}
	if name := p.Spec.RuntimeClassName; name != nil {
		stored := s.Get(runtimeClasses, *name)
		if stored == nil {
			return forbidden(a, p, "pod rejected: RuntimeClass %q not found", *name)
		}
		if err := json.Unmarshal(stored.Bytes(), &class); err != nil {
			return err
		}
	}
	switch o := class.Overhead; {
	case o == nil && p.Spec.Overhead != nil:
		a.Refusal = forbidden(a, p, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
	case o != nil && len(p.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(o.PodFixed, p.Spec.Overhead):
		return forbidden(a, p, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
	case o != nil:
		p.Spec.Overhead = o.PodFixed
	}
	if class.Scheduling == nil {
		return nil
	}
	return setScheduling(a, p, class.Scheduling)
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
