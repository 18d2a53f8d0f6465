package admission

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/admission/pluginconfig"
	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
	"github.com/tidemark-dev/tidemark/internal/derived"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Tolerations is the configuration of the plugin PodTolerationRestriction. Annotations of a
// namespace take the place of each list.
type Tolerations struct {
	metav1.TypeMeta `json:",inline"`
	// Default are the tolerations that new Pods get.
	Default []corev1.Toleration `json:"default"`
	// Whitelist are the tolerations that Pods may have; empty: all.
	Whitelist []corev1.Toleration `json:"whitelist"`
}

// DeepCopyObject implements runtime.Object. The copy shares the lists.
func (t *Tolerations) DeepCopyObject() runtime.Object { copied := *t; return &copied }

const (
	defaultTolerationsAnnotation = "scheduler.alpha.kubernetes.io/defaultTolerations"
	whitelistAnnotation          = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// parseTolerations reads a Configuration of podtolerationrestriction.admission.k8s.io/v1alpha1, as
// YAML or JSON. Nil is an empty one.
func parseTolerations(text []byte) (Tolerations, error) {
	if text == nil {
		return Tolerations{}, nil
	}
	kind := schema.GroupVersionKind{Group: "podtolerationrestriction.admission.k8s.io", Version: "v1alpha1", Kind: "Configuration"}
	read, err := pluginconfig.Decode(text, pluginconfig.Kind{GroupVersionKind: kind, Object: &Tolerations{}})
	if err != nil {
		return Tolerations{}, err
	}
	c, path := read.(*Tolerations), field.NewPath("podtolerationrestriction")
	var errs check.Errors
	podspec.ValidateTolerations(&errs, c.Default, path.Child("default"))
	podspec.ValidateTolerations(&errs, c.Whitelist, path.Child("whitelist"))
	if errs.Len() > 0 {
		return Tolerations{}, fmt.Errorf("invalid config: %v", errs.List())
	}
	return *c, nil
}

// tolerationsOf are the lists in the annotations of a namespace; nil: it has none.
type tolerationsOf struct {
	byDefault, whitelist []corev1.Toleration
	// The errors of annotations that are no lists.
	defaultErr, whitelistErr error
}

// restrictTolerations adds default tolerations to new Pods, and refuses Pods with others than those
// of a list.
func restrictTolerations(c *Config) registry.Plugin {
	config := c.Configuration.Tolerations
	annotated := derived.NewMemo(1024, func(o *store.Object) (t tolerationsOf, err error) {
		n, err := registry.Decode[metav1.PartialObjectMetadata](o)
		if err != nil {
			return t, err
		}
		t.byDefault, t.defaultErr = tolerationsIn(n.Annotations, defaultTolerationsAnnotation)
		t.whitelist, t.whitelistErr = tolerationsIn(n.Annotations, whitelistAnnotation)
		return t, nil
	})
	of := func(a *registry.Attributes) (tolerationsOf, error) {
		if stored := a.State.Get(namespaces, a.Namespace); stored != nil {
			return annotated.Of(stored)
		}
		return tolerationsOf{}, nil
	}
	validate := func(_ context.Context, a *registry.Attributes) error {
		p := a.Object.(*corev1.Pod)
		if len(p.Spec.Tolerations) == 0 {
			return nil
		}
		own, err := of(a)
		if err == nil && own.whitelistErr != nil {
			err = a.Forbidden("%w", own.whitelistErr) // 500 in kube-apiserver, like the next one
		}
		if err != nil {
			return err
		}
		list, scope := own.whitelist, "namespace"
		if list == nil {
			list, scope = config.Whitelist, "cluster"
		}
		if !allTolerated(p.Spec.Tolerations, list) {
			return a.Forbidden("pod tolerations (possibly merged with namespace default tolerations) conflict with its %s whitelist", scope)
		}
		return nil
	}
	return registry.Plugin{
		Handles: registry.Objects(pods, admissionv1.Create, admissionv1.Update),
		Mutate: func(ctx context.Context, a *registry.Attributes) error {
			p := a.Object.(*corev1.Pod)
			var more []corev1.Toleration
			if a.Operation == admissionv1.Create {
				own, err := of(a)
				if err == nil && own.defaultErr != nil {
					err = a.Forbidden("%w", own.defaultErr)
				}
				if err != nil {
					return err
				}
				if more = own.byDefault; more == nil {
					more = config.Default
				}
			}
			if podspec.QOSClass(&p.Spec) != corev1.PodQOSBestEffort {
				pressure := corev1.Toleration{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
				more = append(more[:len(more):len(more)], pressure)
			}
			if len(more) > 0 {
				p.Spec.Tolerations = mergeTolerations(p.Spec.Tolerations, more)
			}
			return validate(ctx, a)
		},
		Validate: validate,
	}
}

// tolerationsIn returns the tolerations of an annotation: nil if there is none, an empty list if it
// is empty.
func tolerationsIn(annotations map[string]string, key string) ([]corev1.Toleration, error) {
	text, ok := annotations[key]
	switch {
	case !ok:
		return nil, nil
	case text == "":
		return []corev1.Toleration{}, nil
	}
	all := []corev1.Toleration{}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, err
	}
	return all, nil
}

// allTolerated reports whether a list, unless it is empty, covers each toleration.
func allTolerated(all, list []corev1.Toleration) bool {
	if len(list) == 0 {
		return true
	}
next:
	for i := range all {
		for j := range list {
			if covers(&list[j], &all[i]) {
				continue next
			}
		}
		return false
	}
	return true
}
