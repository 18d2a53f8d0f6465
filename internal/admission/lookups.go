package admission

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"

	"github.com/tidemark-dev/tidemark/internal/derived"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Where the objects are stored that admission reads.
const (
	limitRanges     = "limitranges"
	namespaces      = "namespaces"
	pods            = "pods"
	priorityClasses = "priorityclasses.scheduling.k8s.io"
	runtimeClasses  = "runtimeclasses.node.k8s.io"
	serviceAccounts = "serviceaccounts"
)

// lookups are the stored objects that admission reads, decoded. They are shared: plugins
// copy what they put into an object.
type lookups struct {
	limitRanges     *derived.Memo[*corev1.LimitRange]
	levels          *derived.Memo[api.Policy] // the pod security levels of namespaces
	priorityClasses *derived.Memo[*schedulingv1.PriorityClass]
	runtimeClasses  *derived.Memo[*nodev1.RuntimeClass]
	accounts        *derived.Memo[*corev1.ServiceAccount]
	defaultPriority *derived.Value[defaultPriority]

	// audited is Config.Audited.
	audited bool
}

func newLookups() *lookups {
	const perNamespace, perClass = 1024, 64
	return &lookups{
		limitRanges:     derived.NewMemo(perNamespace, registry.Decode[corev1.LimitRange]),
		levels:          derived.NewMemo(perNamespace, levelsOf),
		priorityClasses: derived.NewMemo(perClass, registry.Decode[schedulingv1.PriorityClass]),
		runtimeClasses:  derived.NewMemo(perClass, registry.Decode[nodev1.RuntimeClass]),
		accounts:        derived.NewMemo(perNamespace, registry.Decode[corev1.ServiceAccount]),
		defaultPriority: derived.New(findDefaultPriority, priorityClasses),
	}
}

// limitsIn returns the LimitRanges of a namespace, by name.
func (l *lookups) limitsIn(s *store.State, namespace string) (all []*corev1.LimitRange, err error) {
	for r, err := range l.limitRanges.Each(s.Snapshot(limitRanges).Scan(namespace+"/", "")) {
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// levelsIn returns the pod security levels of a namespace; one that is not stored allows
// everything.
func (l *lookups) levelsIn(s *store.State, namespace string) (api.Policy, error) {
	if o := s.Get(namespaces, namespace); o != nil {
		return l.levels.Of(o)
	}
	return everyone, nil
}

// levelsOf reads the levels from the labels of a namespace.
func levelsOf(namespace *store.Object) (api.Policy, error) {
	if !bytes.Contains(namespace.Bytes(), label) {
		return everyone, nil
	}
	made, err := registry.Decode[metav1.PartialObjectMetadata](namespace)
	if err != nil {
		return everyone, err
	}
	wanted, _ := api.PolicyToEvaluate(made.Labels, everyone) // an unknown level is the strictest
	return wanted, nil
}

// defaultPriority is the class of Pods that name none; nil: there is none.
type defaultPriority struct {
	class *schedulingv1.PriorityClass
	err   error
}

// findDefaultPriority finds the class marked as the default, the one with the lowest value
// where there are several.
func findDefaultPriority(now []store.Snapshot) (found defaultPriority) {
	for o := range now[0].Scan("", "") {
		if !bytes.Contains(o.Bytes(), isGlobal) {
			continue
		}
		c, err := registry.Decode[schedulingv1.PriorityClass](o)
		if err != nil {
			return defaultPriority{err: err}
		}
		if c.GlobalDefault && (found.class == nil || found.class.Value > c.Value) {
			found.class = c
		}
	}
	return found
}

// isGlobal is in the stored bytes of each class that may be the default.
var isGlobal = []byte(`"globalDefault":true`)
