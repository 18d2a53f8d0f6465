package admission

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/builtin/certificates"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// priority resolves the priority class of new Pods, keeps it in updates, and refuses a second default class.
func priority(c *Config) registry.Plugin {
	l := c.lookups
	ofPods, classes := registry.Objects(pods, admissionv1.Create, admissionv1.Update), registry.Objects(priorityClasses, admissionv1.Create, admissionv1.Update)
	return registry.Plugin{
		Handles: func(s *store.State, t registry.Target, o admissionv1.Operation) bool {
			return ofPods(s, t, o) || classes(s, t, o)
		},
		Mutate: func(_ context.Context, a *registry.Attributes) error {
			p, ok := a.Object.(*corev1.Pod)
			if !ok {
				return nil
			}
			if old, ok := a.Old.(*corev1.Pod); ok {
				keepPriority(p, old)
				return nil
			}
			return l.setPriority(a, p)
		},
		Validate: func(_ context.Context, a *registry.Attributes) error {
			if c, ok := a.Object.(*schedulingv1.PriorityClass); ok {
				return l.oneDefaultPriority(a, c)
			}
			return nil
		},
	}
}

// keepPriority restores the priority that setPriority has set in the stored Pod if an update omits
// it.
func keepPriority(p, old *corev1.Pod) {
	if p.Spec.Priority == nil {
		p.Spec.Priority = old.Spec.Priority
	}
	if p.Spec.PreemptionPolicy == nil {
		p.Spec.PreemptionPolicy = old.Spec.PreemptionPolicy
	}
}

// setPriority resolves the priority class of a Pod, or the default one.
func (l *lookups) setPriority(a *registry.Attributes, p *corev1.Pod) error {
	class := &schedulingv1.PriorityClass{PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority)}
	if name := p.Spec.PriorityClassName; name != "" {
		stored := a.State.Get(priorityClasses, name)
		if stored == nil {
			return a.Forbidden("no PriorityClass with name %v was found", name)
		}
		var err error
		if class, err = l.priorityClasses.Of(stored); err != nil {
			return err
		}
	} else if global := l.defaultPriority.At(a.State); global.err != nil {
		return global.err
	} else if global.class != nil {
		class = global.class
	}
	p.Spec.PriorityClassName = class.Name
	if have := p.Spec.Priority; have != nil && *have != class.Value {
		return a.Forbidden("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *have, class.Value)
	}
	p.Spec.Priority = ptr.To(class.Value)
	if class.PreemptionPolicy == nil {
		return nil
	}
	if have := p.Spec.PreemptionPolicy; have != nil && *have != *class.PreemptionPolicy {
		return a.Forbidden("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *have, *class.PreemptionPolicy)
	}
	p.Spec.PreemptionPolicy = ptr.To(*class.PreemptionPolicy)
	return nil
}

// oneDefaultPriority refuses a second class for the Pods that name none.
func (l *lookups) oneDefaultPriority(a *registry.Attributes, class *schedulingv1.PriorityClass) error {
	if !class.GlobalDefault {
		return nil
	}
	global := l.defaultPriority.At(a.State)
	if global.err != nil {
		return global.err
	}
	if have := global.class; have != nil && (a.Operation == admissionv1.Create || have.Name != class.Name) {
		return a.Forbidden("PriorityClass %v is already marked as default. Only one default can exist", have.Name)
	}
	return nil
}

// defaultTolerations has Pods tolerate that their node is not ready or not reachable, for a while.
func defaultTolerations(*Config) registry.Plugin {
	return registry.Plugin{
		Handles: registry.Objects(pods, admissionv1.Create, admissionv1.Update),
		Mutate: func(_ context.Context, a *registry.Attributes) error {
			podspec.DefaultTolerations(a.Object.(*corev1.Pod))
			return nil
		},
	}
}

// appArmor keeps the annotations and the fields of AppArmor profiles in step.
func appArmor(*Config) registry.Plugin {
	return registry.Plugin{
		Handles: registry.Objects(pods, admissionv1.Create),
		Complete: func(_ context.Context, a *registry.Attributes) error {
			for _, w := range podspec.SyncAppArmor(a.Object.(*corev1.Pod)) {
				a.Warn(w)
			}
			return nil
		},
	}
}

// runtimeClass adds to new Pods the resources that their runtime class uses itself, and where
// it runs.
func runtimeClass(c *Config) registry.Plugin {
	l := c.lookups
	p := creating(pods, func(_ context.Context, a *registry.Attributes) error {
		p := a.Object.(*corev1.Pod)
		class, err := l.runtimeClassOf(a, p)
		if err != nil {
			return err
		}
		if o := class.Overhead; o != nil {
			if len(p.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(o.PodFixed, p.Spec.Overhead) {
				return a.Forbidden("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
			}
			p.Spec.Overhead = o.PodFixed.DeepCopy()
		}
		if class.Scheduling == nil {
			return nil
		}
		return setScheduling(a, p, class.Scheduling.DeepCopy())
	})
	p.Validate = func(_ context.Context, a *registry.Attributes) error {
		p := a.Object.(*corev1.Pod)
		if p.Spec.Overhead == nil {
			return nil
		}
		class, err := l.runtimeClassOf(a, p)
		if err == nil && class.Overhead == nil {
			err = a.Forbidden("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
		}
		return err
	}
	return p
}

// runtimeClassOf returns the runtime class of a Pod, an empty one if it names none.
func (l *lookups) runtimeClassOf(a *registry.Attributes, p *corev1.Pod) (*nodev1.RuntimeClass, error) {
	if p.Spec.RuntimeClassName == nil {
		return &nodev1.RuntimeClass{}, nil
	}
	stored := a.State.Get(runtimeClasses, *p.Spec.RuntimeClassName)
	if stored == nil {
		return nil, a.Forbidden("pod rejected: RuntimeClass %q not found", *p.Spec.RuntimeClassName)
	}
	return l.runtimeClasses.Of(stored)
}

func setScheduling(a *registry.Attributes, p *corev1.Pod, to *nodev1.Scheduling) error {
	for key, value := range to.NodeSelector {
		if have, ok := p.Spec.NodeSelector[key]; ok && have != value {
			return a.Forbidden("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, value, key, have)
		}
		if p.Spec.NodeSelector == nil {
			p.Spec.NodeSelector = make(map[string]string, len(to.NodeSelector))
		}
		p.Spec.NodeSelector[key] = value
	}
	p.Spec.Tolerations = mergeTolerations(p.Spec.Tolerations, to.Tolerations)
	return nil
}

// subjectRestriction refuses requests for certificates of clients in system:masters.
func subjectRestriction(*Config) registry.Plugin {
	return registry.Plugin{
		Handles: registry.Objects(signingRequests, admissionv1.Create),
		Validate: func(_ context.Context, a *registry.Attributes) error {
			r := a.Object.(*certificatesv1.CertificateSigningRequest)
			if r.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
				return nil
			}
			asked, err := certificates.Parse(r)
			if err != nil {
				return a.Forbidden("failed to parse CSR: %v", err)
			}
			if slices.Contains(asked.Subject.Organization, "system:masters") {
				return a.Forbidden("use of %s signer with system:masters group is not allowed", r.Spec.SignerName)
			}
			return nil
		},
	}
}
