package admission

import (
	"context"
	"fmt"
	"maps"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	podresources "k8s.io/component-helpers/resource"

	"github.com/tidemark-dev/tidemark/internal/kubeversion"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// This file has the plugins that depend on the Node of a Pod.

const nodes = "nodes"

// topologyLabels copies the labels of a Node for its zone and its region to the Pods on it.
func topologyLabels(c *Config) registry.Plugin {
	l := c.lookups
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			return o == admissionv1.Create && t.Type.Collection == pods && (t.Subresource == "" || t.Subresource == "binding")
		},
		Mutate: func(_ context.Context, a *registry.Attributes) error {
			var (
				name string
				meta metav1.Object
			)
			switch o := a.Object.(type) {
			case *corev1.Pod:
				name, meta = o.Spec.NodeName, o
			case *corev1.Binding:
				if o.Target.Kind == "Node" { // the scheduler sets it; no kind is ignored, as in kube-apiserver
					name, meta = o.Target.Name, o
				}
			}
			stored := a.State.Get(nodes, name)
			if name == "" || stored == nil {
				return nil
			}
			n, err := l.nodes.Of(stored)
			if err != nil {
				return err
			}
			for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
				if value, ok := n.Labels[key]; ok {
					labels := maps.Clone(meta.GetLabels())
					if labels == nil {
						labels = map[string]string{}
					}
					labels[key] = value
					meta.SetLabels(labels)
				}
			}
			return nil
		},
	}
}

// nodeOf returns the Node of a Pod whose spec a request changes; nil: the Pod has none, or keeps its
// spec.
func (l *lookups) nodeOf(a *registry.Attributes) (*corev1.Node, error) {
	p, old := a.Object.(*corev1.Pod), a.Old.(*corev1.Pod)
	if p.Spec.NodeName == "" || equality.Semantic.DeepEqual(p.Spec, old.Spec) {
		return nil, nil
	}
	stored := a.State.Get(nodes, p.Spec.NodeName)
	if stored == nil {
		return nil, a.Forbidden("node %q not found", p.Spec.NodeName)
	}
	return l.nodes.Of(stored)
}

// Causes of a refused resize.
const (
	causeCapacity metav1.CauseType = "NodeCapacity"
	causePlatform metav1.CauseType = "UnsupportedPlatform"
)

// validateResize refuses to resize a Pod beyond the allocatable resources of its Node.
func validateResize(c *Config) registry.Plugin {
	l := c.lookups
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			return o == admissionv1.Update && t.Type.Collection == pods && t.Subresource == "resize"
		},
		Validate: func(_ context.Context, a *registry.Attributes) error {
			n, err := l.nodeOf(a)
			if n == nil || err != nil {
				return err
			}
			if os, ok := n.Labels[corev1.LabelOSStable]; ok && os != "linux" {
				return because(a.Forbidden("pod resize is only supported on linux nodes, node %q is %q", n.Name, os), causePlatform)
			}
			if short := shortages(a.Object.(*corev1.Pod), n); len(short) > 0 {
				return because(a.Forbidden("node didn't have enough allocatable resources: %s", strings.Join(short, "; ")), causeCapacity)
			}
			return nil
		},
	}
}

// because adds a cause to a refusal.
func because(err error, cause metav1.CauseType) error {
	if s, ok := err.(*apierrors.StatusError); ok {
		s.ErrStatus.Details.Causes = append(s.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return err
}

// shortages describes the resources of which a Pod requests more than is allocatable on its Node.
func shortages(p *corev1.Pod, n *corev1.Node) (all []string) {
	requests := podresources.PodRequests(p, podresources.PodResourcesOptions{})
	if cpu, most := requests.Cpu(), n.Status.Allocatable.Cpu(); cpu.Cmp(*most) > 0 {
		all = append(all, fmt.Sprintf("cpu, requested: %d, allocatable: %d", cpu.MilliValue(), most.MilliValue()))
	}
	if memory, most := requests.Memory(), n.Status.Allocatable.Memory(); memory.Cmp(*most) > 0 {
		all = append(all, fmt.Sprintf("memory, requested: %d, allocatable: %d", memory.Value(), most.Value()))
	}
	return all
}

// release is the version of Kubernetes whose features the server knows.
var release = version.MustParse(kubeversion.Current.String())

// declaredFeatures refuses updates of a Pod that need a feature which its Node does not declare.
func declaredFeatures(c *Config) registry.Plugin {
	l := c.lookups
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			return o == admissionv1.Update && t.Type.Collection == pods && (t.Subresource == "" || t.Subresource == "resize")
		},
		Validate: func(_ context.Context, a *registry.Attributes) error {
			p, old := a.Object.(*corev1.Pod), a.Old.(*corev1.Pod)
			if p.Spec.NodeName == "" || equality.Semantic.DeepEqual(p.Spec, old.Spec) {
				return nil
			}
			info := func(p *corev1.Pod) *nodedeclaredfeatures.PodInfo {
				return &nodedeclaredfeatures.PodInfo{Spec: &p.Spec, Status: &p.Status}
			}
			needs, err := nodedeclaredfeatures.DefaultFramework.InferForPodUpdate(info(old), info(p), release)
			if err != nil {
				return a.Forbidden("failed to infer pod capability requirements: %w", err)
			}
			if needs.IsEmpty() {
				return nil
			}
			n, err := l.nodeOf(a)
			if err != nil {
				return err
			}
			r, err := nodedeclaredfeatures.DefaultFramework.MatchNode(needs, n)
			if err != nil {
				return a.Forbidden("failed to match pod requirements against node %q: %w", n.Name, err)
			}
			if !r.IsMatch {
				return a.Forbidden("pod update requires features %s which are not available on node %q", strings.Join(r.UnsatisfiedRequirements, ", "), n.Name)
			}
			return nil
		},
	}
}
