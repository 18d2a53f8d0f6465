package admission

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

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

// lookups are the decoded objects that admission reads. They are shared: plugins copy the parts
// that they put into an object.
type lookups struct {
	limitRanges     *derived.Memo[*corev1.LimitRange]
	levels          *derived.Memo[map[string]string] // the labels of namespaces with pod security levels
	priorityClasses *derived.Memo[*schedulingv1.PriorityClass]
	runtimeClasses  *derived.Memo[*nodev1.RuntimeClass]
	accounts        *derived.Memo[*corev1.ServiceAccount]
	nodes           *derived.Memo[*corev1.Node]
	defaultPriority *derived.Value[defaultPriority]
}

func newLookups() *lookups {
	const perNamespace, perClass = 1024, 64
	return &lookups{
		limitRanges:     derived.NewMemo(perNamespace, registry.Decode[corev1.LimitRange]),
		levels:          derived.NewMemo(perNamespace, levelsOf),
		priorityClasses: derived.NewMemo(perClass, registry.Decode[schedulingv1.PriorityClass]),
		runtimeClasses:  derived.NewMemo(perClass, registry.Decode[nodev1.RuntimeClass]),
		accounts:        derived.NewMemo(perNamespace, registry.Decode[corev1.ServiceAccount]),
		nodes:           derived.NewMemo(perNamespace, registry.Decode[corev1.Node]),
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
