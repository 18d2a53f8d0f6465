package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/expression"
	"github.com/tidemark-dev/tidemark/internal/openapi"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

const (
	validatingPolicies = "validatingadmissionpolicies.admissionregistration.k8s.io"
	// typeCheckingManager is the field manager of the loop's writes.
	typeCheckingManager = "validatingadmissionpolicy-status"
	// mostCheckedKinds bounds the kinds that a rule of a policy is checked against.
	mostCheckedKinds = 10
	// mostKinds, mostWork and mostWarnings bound the check of a policy, as it is for the loop, and not for a request: its kinds,
	// the work of the checks, as a TypeChecker counts it, about 5 s, and the bytes of the warnings. Expressions that are beyond them are not
	// checked.
	mostKinds    = 100
	mostWork     = 10_000_000
	mostWarnings = 256 << 10
)

// typeChecking checks the expressions of ValidatingAdmissionPolicies against the schemas of the kinds
// that they match, once for each generation, and writes the warnings into the status.
type typeChecking struct{ follower }

func newTypeChecking(l *Loops, q *queue) loop {
	return &typeChecking{follower{l: l, queue: q, collection: validatingPolicies}}
}

func (c *typeChecking) sync(ctx context.Context, i item) error {
	o := c.l.store.Any().Get(i.collection, i.key)
	if o == nil {
		return nil
	}
	p, err := registry.Decode[admissionregistrationv1.ValidatingAdmissionPolicy](o)
	if err != nil || p.Generation <= p.Status.ObservedGeneration {
		return err
	}
	warnings, err := checkTypes(c.l.c.Catalog(), &p.Spec)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": p.Name, "uid": p.UID},
		"status": map[string]any{"observedGeneration": p.Generation, "typeChecking": admissionregistrationv1.TypeChecking{ExpressionWarnings: warnings}},
	})
	if err != nil {
		return err
	}
	t, ok := c.l.served().target(i.object)
	if !ok {
		return nil
	}
	t.Subresource = "status"
	force := true
	_, err = c.l.c.Registry.Patch(ctx, t, registry.Patch{Type: types.ApplyPatchType, Bytes: body}, registry.WriteOptions{FieldManager: typeCheckingManager, Force: &force})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // the policy was replaced or deleted
		return nil
	}
	return err
}

// checkTypes returns the warnings of a policy, within the bounds. Kinds without a schema are not checked.
func checkTypes(catalog *resource.Catalog, s *admissionregistrationv1.ValidatingAdmissionPolicySpec) ([]admissionregistrationv1.ExpressionWarning, error) {
	kinds := checkedKinds(catalog, s)
	if len(kinds) == 0 {
		return nil, nil
	}
	params := paramKind(catalog, s.ParamKind)
	all := kinds
	if params != nil {
		all = append(slices.Clone(kinds), params)
	}
	schemas, err := openapi.Resolved(all)
	if err != nil {
		return nil, err
	}
	work, size := 0, 0
	var checks []*expression.TypeChecker
	var checked []schema.GroupVersionKind
	for i, t := range kinds {
		if schemas[i] == nil {
			continue
		}
		of := expression.Types{Name: t.Kind, Object: schemas[i], Params: s.ParamKind != nil}
		if params != nil {
			of.ParamsName, of.ParamsObject = params.Kind, schemas[len(kinds)]
		}
		c, err := expression.NewTypeChecker(of)
		if err != nil {
			return nil, fmt.Errorf("the types of %s: %w", t.GroupVersionKind(), err)
		}
		for _, v := range s.Variables {
			if work += c.Variable(v.Name, v.Expression); work > mostWork {
				return nil, nil
			}
		}
		checks, checked = append(checks, c), append(checked, t.GroupVersionKind())
	}
	var warnings []admissionregistrationv1.ExpressionWarning
	check := func(path *field.Path, text string) {
		var found []string
		for i, c := range checks {
			if work > mostWork || size > mostWarnings {
				break
			}
			wrong, more := c.Check(text)
			work += more
			if wrong != "" {
				found = append(found, fmt.Sprintf("%v: %s\n", checked[i], wrong))
				size += len(found[len(found)-1])
			}
		}
		if len(found) > 0 {
			warnings = append(warnings, admissionregistrationv1.ExpressionWarning{FieldRef: path.String(), Warning: strings.Join(found, "\n")})
		}
	}
	for i, v := range s.Validations {
		path := field.NewPath("spec", "validations").Index(i)
		check(path.Child("expression"), v.Expression)
		if v.MessageExpression != "" {
			check(path.Child("messageExpression"), v.MessageExpression)
		}
	}
	return warnings, nil
}

func paramKind(catalog *resource.Catalog, k *admissionregistrationv1.ParamKind) *resource.Type {
	if k == nil {
		return nil
	}
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	if err != nil {
		return nil
	}
	for t := range catalog.Types() {
		if t.GroupVersionKind() == gv.WithKind(k.Kind) {
			return t
		}
	}
	return nil
}

// checkedKinds returns the kinds that a policy names, in their order: at most the first ten of a
// rule, and none of the rules after that. Wildcards and subresources name none.
func checkedKinds(catalog *resource.Catalog, s *admissionregistrationv1.ValidatingAdmissionPolicySpec) []*resource.Type {
	if s.MatchConstraints == nil {
		return nil
	}
	var kinds []*resource.Type
	for i := range s.MatchConstraints.ResourceRules {
		found := kindsOf(catalog, &s.MatchConstraints.ResourceRules[i].Rule)
		kinds = append(kinds, found[:min(len(found), mostCheckedKinds)]...)
		if len(found) >= mostCheckedKinds {
			break
		}
	}
	slices.SortFunc(kinds, func(a, b *resource.Type) int { return bytes.Compare(orderOf(a), orderOf(b)) })
	kinds = slices.CompactFunc(kinds, func(a, b *resource.Type) bool { return a.GroupVersionKind() == b.GroupVersionKind() })
	return kinds[:min(len(kinds), mostKinds)]
}

// orderOf sorts types by group, version and kind.
func orderOf(t *resource.Type) []byte {
	return []byte(t.Group + "\x00" + t.Version + "\x00" + t.Kind)
}

// kindsOf returns the kinds of the resources that a rule names, up to the limit, in the order of their
// groups, versions and names there. The empty group stands for every group, as for the mapper of
// kube-controller-manager. A rule may have 100,000 names, so it looks at each kind once.
func kindsOf(catalog *resource.Catalog, r *admissionregistrationv1.Rule) []*resource.Type {
	star := func(s string) bool { return strings.Contains(s, "*") }
	if slices.ContainsFunc(r.APIGroups, star) || slices.ContainsFunc(r.APIVersions, star) {
		return nil
	}
	groups, versions := sets.New(r.APIGroups...), sets.New(r.APIVersions...)
	names := sets.New(slices.DeleteFunc(slices.Clone(r.Resources), func(s string) bool { return strings.ContainsAny(s, "*/") })...)
	type named struct {
		order string
		kind  *resource.Type
	}
	var found []named
	for t := range catalog.Types() {
		if !versions.Has(t.Version) {
			continue
		}
		for group := range sets.New("", t.Group).Intersection(groups) {
			for name := range sets.New(t.Resource, t.Singular).Intersection(names) {
				found = append(found, named{group + "\x00" + t.Version + "\x00" + name, t})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b named) int { return strings.Compare(a.order, b.order) })
	var kinds []*resource.Type
	for _, f := range found[:min(len(found), mostCheckedKinds)] {
		kinds = append(kinds, f.kind)
	}
	return kinds
}
