package admission

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/derived"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// NodeSelectors is the configuration of the plugin PodNodeSelector: for each namespace, the labels
// that node selectors of its Pods may name. A namespace without an entry, or with an empty one, may
// name all. The key clusterDefaultNodeSelector has the selector of the Pods of namespaces that
// have no annotation.
type NodeSelectors map[string]labels.Set

const (
	defaultSelector    = "clusterDefaultNodeSelector"
	selectorAnnotation = "scheduler.alpha.kubernetes.io/node-selector"
)

// parseNodeSelectors reads the configuration, as YAML or JSON. An empty one is valid.
func parseNodeSelectors(text []byte) (NodeSelectors, error) {
	var c struct {
		Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return nil, err
	}
	all := NodeSelectors{}
	for key, text := range c.Selectors {
		one, err := labels.ConvertSelectorToLabelsMap(text)
		if err != nil {
			return nil, fmt.Errorf("podNodeSelectorPluginConfig, %s: %w", key, err)
		}
		all[key] = one
	}
	return all, nil
}

// ofNamespace is the node selector in the annotation of a namespace; nil: it has none.
type ofNamespace struct{ labels labels.Set }

// podNodeSelector adds the node selector of the namespace to new Pods. It refuses a Pod whose own
// selector conflicts with that, or names labels that the namespace may not.
func podNodeSelector(c *Config) registry.Plugin {
	selectors := c.Configuration.NodeSelectors
	annotated := derived.NewMemo(1024, func(o *store.Object) (ofNamespace, error) {
		n, err := registry.Decode[metav1.PartialObjectMetadata](o)
		if err != nil {
			return ofNamespace{}, err
		}
		text, ok := n.Annotations[selectorAnnotation]
		if !ok {
			return ofNamespace{}, nil
		}
		set, err := labels.ConvertSelectorToLabelsMap(text)
		return ofNamespace{set}, err
	})
	check := func(a *registry.Attributes) (labels.Set, error) {
		set := selectors[defaultSelector]
		if stored := a.State.Get(namespaces, a.Namespace); stored != nil {
			own, err := annotated.Of(stored)
			if err != nil {
				return nil, err
			}
			if own.labels != nil {
				set = own.labels
			}
		}
		if labels.Conflicts(set, a.Object.(*corev1.Pod).Spec.NodeSelector) {
			return nil, a.Forbidden("pod node label selector conflicts with its namespace node label selector")
		}
		return set, nil
	}
	validate := func(_ context.Context, a *registry.Attributes) error {
		if _, err := check(a); err != nil {
			return err
		}
		allowed := selectors[a.Namespace]
		if len(allowed) == 0 {
			return nil
		}
		for key, value := range a.Object.(*corev1.Pod).Spec.NodeSelector {
			if may, ok := allowed[key]; !ok || may != value {
				return a.Forbidden("pod node label selector labels conflict with its namespace whitelist")
			}
		}
		return nil
	}
	return registry.Plugin{
		Handles: registry.Objects(pods, admissionv1.Create),
		Mutate: func(ctx context.Context, a *registry.Attributes) error {
			set, err := check(a)
			if err != nil {
				return err
			}
			if p := a.Object.(*corev1.Pod); len(set) > 0 {
				p.Spec.NodeSelector = labels.Merge(set, p.Spec.NodeSelector)
			}
			return validate(ctx, a)
		},
		Validate: validate,
	}
}
