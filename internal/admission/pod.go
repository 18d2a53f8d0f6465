package admission

import (
	"bytes"
	"context"
	"encoding/json"
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

// Where the objects that Pods refer to are stored.
const (
	pods            = "pods"
	priorityClasses = "priorityclasses.scheduling.k8s.io"
	runtimeClasses  = "runtimeclasses.node.k8s.io"
)

// priority resolves the priority class of new Pods, and refuses a second default class.
func priority(*Config) registry.Plugin {
	newPods, classes := to(pods, admissionv1.Create), to(priorityClasses, admissionv1.Create, admissionv1.Update)
	return registry.Plugin{
		Handles: func(s *store.State, t registry.Target, o admissionv1.Operation) bool {
			return newPods(s, t, o) || classes(s, t, o)
		},
		Mutate: func(_ context.Context, a *registry.Attributes) error {
			if p, ok := a.Object.(*corev1.Pod); ok {
				return setPriority(a, p)
			}
			return nil
		},
		Validate: func(_ context.Context, a *registry.Attributes) error {
			if c, ok := a.Object.(*schedulingv1.PriorityClass); ok {
				return oneDefaultPriority(a, c)
			}
			return nil
		},
	}
}

// setPriority resolves the priority class of a Pod, or the default one.
func setPriority(a *registry.Attributes, p *corev1.Pod) error {
	class := &schedulingv1.PriorityClass{PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority)}
	if name := p.Spec.PriorityClassName; name != "" {
		stored := a.State.Get(priorityClasses, name)
		if stored == nil {
			return forbidden(a, "no PriorityClass with name %v was found", name)
		}
		class = &schedulingv1.PriorityClass{}
		if err := json.Unmarshal(stored.Bytes(), class); err != nil {
			return err
		}
	} else if global, err := globalDefault(a.State); err != nil {
		return err
	} else if global != nil {
		class = global
	}
	p.Spec.PriorityClassName = class.Name
	if have := p.Spec.Priority; have != nil && *have != class.Value {
		return forbidden(a, "the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *have, class.Value)
	}
	p.Spec.Priority = ptr.To(class.Value)
	if class.PreemptionPolicy == nil {
		return nil
	}
	if have := p.Spec.PreemptionPolicy; have != nil && *have != *class.PreemptionPolicy {
		return forbidden(a, "the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *have, *class.PreemptionPolicy)
	}
	p.Spec.PreemptionPolicy = class.PreemptionPolicy
	return nil
}

// globalDefault returns the class of Pods that name none: the one with the lowest value of
// those marked as the default; nil if there is none.
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

// oneDefaultPriority refuses a second class for the Pods that name none.
func oneDefaultPriority(a *registry.Attributes, class *schedulingv1.PriorityClass) error {
	if !class.GlobalDefault {
		return nil
	}
	have, err := globalDefault(a.State)
	if err != nil {
		return err
	}
	if have != nil && (a.Operation == admissionv1.Create || have.Name != class.Name) {
		return forbidden(a, "PriorityClass %v is already marked as default. Only one default can exist", have.Name)
	}
	return nil
}

// defaultTolerations has new Pods tolerate that their node is not ready or not reachable, for
// a while.
func defaultTolerations(*Config) registry.Plugin {
	return creating(pods, func(_ context.Context, a *registry.Attributes) error {
		podspec.DefaultTolerations(a.Object.(*corev1.Pod))
		return nil
	})
}

// appArmor keeps the annotations and the fields of AppArmor profiles in step.
func appArmor(*Config) registry.Plugin {
	return creating(pods, func(_ context.Context, a *registry.Attributes) error {
		for _, w := range podspec.SyncAppArmor(a.Object.(*corev1.Pod)) {
			a.Warn(w)
		}
		return nil
	})
}

// runtimeClass adds to new Pods the resources that their runtime class uses itself, and where
// it runs.
func runtimeClass(*Config) registry.Plugin {
	p := creating(pods, func(_ context.Context, a *registry.Attributes) error {
		p := a.Object.(*corev1.Pod)
		class, err := runtimeClassOf(a, p)
		if err != nil {
			return err
		}
		if o := class.Overhead; o != nil {
			if len(p.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(o.PodFixed, p.Spec.Overhead) {
				return forbidden(a, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
			}
			p.Spec.Overhead = o.PodFixed
		}
		if class.Scheduling == nil {
			return nil
		}
		return setScheduling(a, p, class.Scheduling)
	})
	p.Validate = func(_ context.Context, a *registry.Attributes) error {
		p := a.Object.(*corev1.Pod)
		if p.Spec.Overhead == nil {
			return nil
		}
		class, err := runtimeClassOf(a, p)
		if err == nil && class.Overhead == nil {
			err = forbidden(a, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
		}
		return err
	}
	return p
}

// runtimeClassOf returns the runtime class of a Pod, an empty one if it names none.
func runtimeClassOf(a *registry.Attributes, p *corev1.Pod) (class nodev1.RuntimeClass, err error) {
	if name := p.Spec.RuntimeClassName; name != nil {
		stored := a.State.Get(runtimeClasses, *name)
		if stored == nil {
			return class, forbidden(a, "pod rejected: RuntimeClass %q not found", *name)
		}
		err = json.Unmarshal(stored.Bytes(), &class)
	}
	return class, err
}

func setScheduling(a *registry.Attributes, p *corev1.Pod, to *nodev1.Scheduling) error {
	for key, value := range to.NodeSelector {
		if have, ok := p.Spec.NodeSelector[key]; ok && have != value {
			return forbidden(a, "conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, value, key, have)
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
		Handles: to("certificatesigningrequests.certificates.k8s.io", admissionv1.Create, admissionv1.Update),
		Validate: func(_ context.Context, a *registry.Attributes) error {
			r := a.Object.(*certificatesv1.CertificateSigningRequest)
			if r.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
				return nil
			}
			asked, err := certificates.Parse(r)
			if err != nil {
				return forbidden(a, "failed to parse CSR: %v", err)
			}
			if slices.Contains(asked.Subject.Organization, "system:masters") {
				return forbidden(a, "use of %s signer with system:masters group is not allowed", r.Spec.SignerName)
			}
			return nil
		},
	}
}
