// Package quota enforces ResourceQuotas: the resources that an object uses (usage.go, scope.go),
// the resources that a namespace uses in all (quota.go), and the ledger that charges writes and
// refuses those that would exceed a quota (ledger.go).
//
// The status of a quota has the used resources. The transaction of a write updates it. After
// deletions, and after changes of the limits, a controller counts the stored objects again.
package quota

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Collection is where ResourceQuotas are stored.
const Collection = "resourcequotas"

// countPrefix begins the names by which objects of any kind are counted.
const countPrefix = "count/"

// one is the quantity of one object.
var one = *resource.NewQuantity(1, resource.DecimalSI)

// ignored are the collections that quotas do not count.
var ignored = []string{"events", "events.events.k8s.io"}

// matching returns the names in a list that objects of a kind count towards, sorted.
func (k *kind) matching(hard corev1.ResourceList) []corev1.ResourceName {
	var names []corev1.ResourceName
	for name := range hard {
		if k.matches(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Concerns reports whether a quota counts objects of a collection.
func Concerns(q *corev1.ResourceQuota, collection string) bool {
	k := kindOf(collection)
	return k != nil && len(k.matching(q.Spec.Hard)) > 0
}

// collections returns the collections whose objects a quota counts.
func collections(q *corev1.ResourceQuota) []string {
	found := map[string]bool{}
	for name := range q.Spec.Hard {
		if collection, ok := strings.CutPrefix(string(name), countPrefix); ok {
			found[collection] = true
		}
	}
	for name := range kinds {
		if !found[name] && Concerns(q, name) {
			found[name] = true
		}
	}
	for name, alias := range aliases {
		if _, ok := q.Spec.Hard[alias]; ok {
			found[name] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Used counts the resources that a quota limits, in a state. Next is when some of them will
// stop counting without a write; zero: never.
func Used(s *store.State, q *corev1.ResourceQuota, now time.Time) (used corev1.ResourceList, next time.Time, err error) {
	used = corev1.ResourceList{}
	selectors := selectorsOf(q)
	for _, collection := range collections(q) {
		k := kindOf(collection)
		if k == nil {
			continue
		}
		names := k.matching(q.Spec.Hard)
		for _, name := range names {
			if _, ok := used[name]; !ok {
				used[name] = resource.Quantity{Format: resource.DecimalSI}
			}
		}
		if k.new == nil {
			if len(selectors) == 0 {
				n := *resource.NewQuantity(int64(s.Snapshot(collection).Count(q.Namespace+"/", "")), resource.DecimalSI)
				for _, name := range names {
					addTo(used, name, n)
				}
			}
			continue
		}
		for o := range s.Snapshot(collection).Scan(q.Namespace+"/", "") {
			made, err := wire.Unmarshal(o.Bytes(), k.new)
			if err != nil {
				return nil, next, err
			}
			if !k.selected(selectors, made) {
				continue
			}
			use, until := k.usage(made, now)
			if !until.IsZero() && (next.IsZero() || until.Before(next)) {
				next = until
			}
			for _, name := range names {
				if amount, ok := use[name]; ok {
					addTo(used, name, amount)
				}
			}
		}
	}
	return used, next, nil
}

func addTo(list corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	sum := list[name].DeepCopy()
	sum.Add(q)
	list[name] = sum
}

// equal reports whether two lists have the same quantities.
func equal(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}
