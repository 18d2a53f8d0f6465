package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const (
	roleCollection = "clusterroles.rbac.authorization.k8s.io"
	// aggregationManager is the field manager of aggregated rules.
	aggregationManager = "clusterrole-aggregation-controller"
)

// aggregation gives ClusterRoles with an aggregation rule the rules of the roles that it
// selects. A change of any ClusterRole may affect each of them. There are few.
type aggregation struct {
	l          *Loops
	queue      *queue
	aggregated map[string]bool // keys of aggregated roles; used by the reader only
}

// Aggregated has the ClusterRoles whose rules are right for one snapshot of all ClusterRoles. Worlds that begin
// with the same snapshot share it, so that each fork need not compute the rules again. The zero value is empty. All
// methods are safe for concurrent use, also on nil, which is always empty.
type Aggregated struct {
	mu    sync.Mutex
	roles store.Snapshot
	right map[string]bool // by key
}

// is reports whether the rules of a role are known to be right.
func (a *Aggregated) is(key string, roles store.Snapshot) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.right[key] && a.roles.Same(roles)
}

// add records that the rules of a role are right. It forgets other snapshots.
func (a *Aggregated) add(key string, roles store.Snapshot) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.right == nil || !a.roles.Same(roles) {
		a.roles, a.right = roles, map[string]bool{}
	}
	a.right[key] = true
}

func newAggregation(l *Loops, q *queue) loop {
	return &aggregation{l: l, queue: q, aggregated: map[string]bool{}}
}

// isAggregated reports whether a role's rules come from other roles.
func isAggregated(o *store.Object) bool {
	return o != nil && bytes.Contains(o.Bytes(), []byte(`"aggregationRule":{`))
}

func (a *aggregation) begin(s *store.State) {
	clear(a.aggregated)
	for o := range s.Snapshot(roleCollection).Scan("", "") {
		if isAggregated(o) {
			a.aggregated[o.Key] = true
		}
	}
	a.queueAll()
}

func (a *aggregation) queueAll() {
	for key := range a.aggregated {
		a.queue.add(item{object: object{roleCollection, key}})
	}
}

func (a *aggregation) observe(c *store.CollectionChange) {
	if c.Collection != roleCollection {
		return
	}
	if isAggregated(c.After) {
		a.aggregated[c.Key()] = true
	} else {
		delete(a.aggregated, c.Key())
	}
	a.queueAll()
}

func (a *aggregation) sync(ctx context.Context, i item) error {
	s := a.l.store.Any()
	o, roles := s.Get(i.collection, i.key), s.Snapshot(roleCollection)
	if !isAggregated(o) || a.l.c.Aggregated.is(i.key, roles) {
		return nil
	}
	role, err := registry.Decode[rbacv1.ClusterRole](o)
	if err != nil || role.AggregationRule == nil {
		return err
	}
	rules, err := union(roles, role)
	if err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(rules, role.Rules) {
		a.l.c.Aggregated.add(i.key, roles)
		return nil
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": rbacv1.SchemeGroupVersion.String(), "kind": "ClusterRole",
		"metadata": map[string]any{"name": role.Name, "uid": role.UID}, "rules": rules,
	})
	if err != nil {
		return err
	}
	t, ok := a.l.served().target(i.object)
	if !ok {
		return nil
	}
	force := true
	_, err = a.l.c.Registry.Patch(ctx, t, registry.Patch{Type: types.ApplyPatchType, Bytes: body}, registry.WriteOptions{FieldManager: aggregationManager, Force: &force})
	if apierrors.IsConflict(err) { // the role was replaced or deleted
		return nil
	}
	return err
}

// union returns the rules of all roles that a role selects, without duplicates, in the
// order of the selectors and of the role names.
func union(roles store.Snapshot, role *rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	rules, have := []rbacv1.PolicyRule{}, map[string]bool{} // have has the rules in JSON
	for i := range role.AggregationRule.ClusterRoleSelectors {
		wanted := &role.AggregationRule.ClusterRoleSelectors[i]
		selector, err := metav1.LabelSelectorAsSelector(wanted)
		if err != nil {
			return nil, err
		}
		for o := range roles.Scan("", "") {
			if o.Key == role.Name || !mayMatch(o, wanted) {
				continue
			}
			r, err := registry.Decode[rbacv1.ClusterRole](o)
			if err != nil {
				return nil, err
			}
			if !selector.Matches(labels.Set(r.Labels)) {
				continue
			}
			for _, rule := range r.Rules {
				text, err := json.Marshal(rule) // it omits empty fields
				if err != nil {
					return nil, err
				}
				if !have[string(text)] {
					have[string(text)] = true
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}

// mayMatch reports, from the bytes of an object alone, whether it can have the wanted
// labels. So few objects have to be decoded.
func mayMatch(o *store.Object, wanted *metav1.LabelSelector) bool {
	for key, value := range wanted.MatchLabels {
		if !bytes.Contains(o.Bytes(), fmt.Appendf(nil, "%q:%q", key, value)) {
			return false
		}
	}
	return true
}
