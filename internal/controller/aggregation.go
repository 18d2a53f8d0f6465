package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

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
	// aggregationManager is the field manager of rules that others make up.
	aggregationManager = "clusterrole-aggregation-controller"
)

// aggregation gives ClusterRoles with an aggregation rule the rules of those that it
// selects. Any ClusterRole may matter to any of them; they are few.
type aggregation struct {
	l     *Loops
	queue *queue
	made  map[string]bool // the keys of those that others make up; the reader's own
}

func newAggregation(l *Loops, q *queue) loop {
	return &aggregation{l: l, queue: q, made: map[string]bool{}}
}

// isMade reports whether others make up a role's rules.
func isMade(o *store.Object) bool {
	return o != nil && bytes.Contains(o.Bytes(), []byte(`"aggregationRule":{`))
}

func (a *aggregation) begin(s *store.State) {
	clear(a.made)
	for o := range s.Snapshot(roleCollection).Scan("", "") {
		if isMade(o) {
			a.made[o.Key] = true
		}
	}
	a.lookAtAll()
}

func (a *aggregation) lookAtAll() {
	for key := range a.made {
		a.queue.add(item{object: object{roleCollection, key}})
	}
}

func (a *aggregation) observe(c *store.CollectionChange) {
	if c.Collection != roleCollection {
		return
	}
	if isMade(c.After) {
		a.made[c.Key()] = true
	} else {
		delete(a.made, c.Key())
	}
	a.lookAtAll()
}

func (a *aggregation) sync(ctx context.Context, i item) error {
	s := a.l.store.Any()
	o := s.Get(i.collection, i.key)
	if !isMade(o) {
		return nil
	}
	role, err := registry.Decode[rbacv1.ClusterRole](o)
	if err != nil || role.AggregationRule == nil {
		return err
	}
	rules, err := union(s, role)
	if err != nil || equality.Semantic.DeepEqual(rules, role.Rules) {
		return err
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
	if apierrors.IsConflict(err) { // the role is another one by now, or gone
		return nil
	}
	return err
}

// union is the rules of all roles that a role selects, each once, in the order of
// the selectors and of the names.
func union(s *store.State, role *rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	rules := []rbacv1.PolicyRule{}
	for i := range role.AggregationRule.ClusterRoleSelectors {
		wanted := &role.AggregationRule.ClusterRoleSelectors[i]
		selector, err := metav1.LabelSelectorAsSelector(wanted)
		if err != nil {
			return nil, err
		}
		for o := range s.Snapshot(roleCollection).Scan("", "") {
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
				same := func(have rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(have, rule) }
				if !slices.ContainsFunc(rules, same) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}

// mayMatch tells by the bytes of an object whether it can have the labels that are
// wanted, so that few have to be read.
func mayMatch(o *store.Object, wanted *metav1.LabelSelector) bool {
	for key, value := range wanted.MatchLabels {
		if !bytes.Contains(o.Bytes(), fmt.Appendf(nil, "%q:%q", key, value)) {
			return false
		}
	}
	return true
}
