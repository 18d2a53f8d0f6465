package quota

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/derived"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// stored reads ResourceQuotas and caches them, decoded. Its zero value is ready.
type stored struct {
	once sync.Once
	memo *derived.Memo[*corev1.ResourceQuota]
}

// in returns the quotas of a namespace in a state, by name. They are shared: callers must
// not change them.
func (r *stored) in(s *store.State, namespace string) (all []*corev1.ResourceQuota, err error) {
	r.once.Do(func() { r.memo = derived.NewMemo(1024, registry.Decode[corev1.ResourceQuota]) })
	for q, err := range r.memo.Each(s.Snapshot(Collection).Scan(namespace+"/", "")) {
		if err != nil {
			return nil, err
		}
		all = append(all, q)
	}
	return all, nil
}
