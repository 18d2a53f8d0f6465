package startup

import (
	"errors"
	"maps"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// errAnotherRole: a binding is one of another role, and cannot become one of this.
var errAnotherRole = errors.New("the binding is one of another role")

// mends returns what brings an object to what it shall be, and in whose name. It
// returns errLeave when there is nothing to do.
func mends(want metav1.Object) (mend func(metav1.Object) error, by string) {
	switch want := want.(type) {
	case *rbacv1.ClusterRole:
		return func(o metav1.Object) error { return mendClusterRole(o.(*rbacv1.ClusterRole), want) }, manager
	case *rbacv1.Role:
		return func(o metav1.Object) error {
			have := o.(*rbacv1.Role)
			return ended(have, func() bool {
				changed := mendMetadata(have, want)
				return mendRules(&have.Rules, want.Rules) || changed
			})
		}, manager
	case *rbacv1.ClusterRoleBinding:
		return func(o metav1.Object) error {
			have := o.(*rbacv1.ClusterRoleBinding)
			return mendBinding(binding{have, &have.RoleRef, &have.Subjects}, binding{want, &want.RoleRef, &want.Subjects})
		}, manager
	case *rbacv1.RoleBinding:
		return func(o metav1.Object) error {
			have := o.(*rbacv1.RoleBinding)
			return mendBinding(binding{have, &have.RoleRef, &have.Subjects}, binding{want, &want.RoleRef, &want.Subjects})
		}, manager
	case *flowcontrolv1.FlowSchema:
		return func(o metav1.Object) error {
			have := o.(*flowcontrolv1.FlowSchema)
			return mendFlow(have, want, &have.Spec, &want.Spec)
		}, flowProducer
	case *flowcontrolv1.PriorityLevelConfiguration:
		return func(o metav1.Object) error {
			have, spec := o.(*flowcontrolv1.PriorityLevelConfiguration), want.Spec
			if spec.Exempt != nil && have.Spec.Exempt != nil { // the shares of what is exempt may be another
				spec.Exempt = have.Spec.Exempt
			}
			return mendFlow(have, want, &have.Spec, &spec)
		}, flowProducer
	case *apiregistrationv1.APIService:
		return func(o metav1.Object) error { return mendService(o.(*apiregistrationv1.APIService), want) }, manager
	}
	return func(metav1.Object) error { return errLeave }, manager // priority classes stay as they are
}

// ended is the end of the edit of a role or binding: nobody mends those whose
// annotation says so.
func ended(have metav1.Object, mend func() bool) error {
	if have.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false" || !mend() {
		return errLeave
	}
	return nil
}

// mendMetadata adds labels and annotations that are missing; it leaves others, and
// other values.
func mendMetadata(have, want metav1.Object) bool {
	labels, annotations := merged(want.GetLabels(), have.GetLabels()), merged(want.GetAnnotations(), have.GetAnnotations())
	changed := len(labels) > len(have.GetLabels()) || len(annotations) > len(have.GetAnnotations())
	have.SetLabels(labels)
	have.SetAnnotations(annotations)
	return changed
}

func merged(want, have map[string]string) map[string]string {
	if len(want) == 0 {
		return have
	}
	all := maps.Clone(want)
	maps.Copy(all, have)
	return all
}

// mendRules adds the rules that others do not cover.
func mendRules(have *[]rbacv1.PolicyRule, want []rbacv1.PolicyRule) bool {
	_, missing := validation.Covers(*have, want)
	*have = append(*have, missing...)
	return len(missing) > 0
}

func mendClusterRole(have, want *rbacv1.ClusterRole) error {
	return ended(have, func() bool {
		changed := mendMetadata(have, want)
		changed = mendRules(&have.Rules, want.Rules) || changed
		if want.AggregationRule == nil {
			changed = changed || have.AggregationRule != nil
			have.AggregationRule = nil
			return changed
		}
		if have.AggregationRule == nil {
			have.AggregationRule = &rbacv1.AggregationRule{}
		}
		for _, s := range want.AggregationRule.ClusterRoleSelectors {
			there := func(o metav1.LabelSelector) bool { return equality.Semantic.DeepEqual(s, o) }
			if all := &have.AggregationRule.ClusterRoleSelectors; !slices.ContainsFunc(*all, there) {
				*all = append(*all, s)
				changed = true
			}
		}
		return changed
	})
}

// binding is one of either kind.
type binding struct {
	metav1.Object
	role     *rbacv1.RoleRef
	subjects *[]rbacv1.Subject
}

func mendBinding(have, want binding) error {
	if have.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] != "false" && *have.role != *want.role {
		return errAnotherRole
	}
	return ended(have, func() bool {
		changed := mendMetadata(have, want)
		for _, s := range *want.subjects {
			if !slices.Contains(*have.subjects, s) {
				*have.subjects = append(*have.subjects, s)
				changed = true
			}
		}
		return changed
	})
}

// mendFlow mends the configuration of flows. Two objects of each kind hold the server up
// and cannot be otherwise; of the others, the annotation says whether they are mended,
// and where it says nothing, whether somebody has changed them.
func mendFlow[T any](have, want metav1.Object, spec, wantSpec *T) error {
	const auto = flowcontrolv1.AutoUpdateAnnotationKey
	mandatory := want.GetName() == flowcontrolv1.PriorityLevelConfigurationNameExempt || want.GetName() == flowcontrolv1.PriorityLevelConfigurationNameCatchAll
	said, ok := have.GetAnnotations()[auto]
	mend := mandatory || said == "true" || said != "false" && have.GetGeneration() == 1
	note := "false"
	if mend {
		note = "true"
	}
	if equal := equality.Semantic.DeepEqual(spec, wantSpec); (equal || !mend) && ok && said == note {
		return errLeave
	}
	have.SetAnnotations(merged(map[string]string{auto: note}, without(have.GetAnnotations(), auto)))
	if mend {
		*spec = *wantSpec
	}
	return nil
}

func without(all map[string]string, key string) map[string]string {
	rest := maps.Clone(all)
	delete(rest, key)
	return rest
}

// mendService brings back what is served here, where that was not taken over by
// somebody: the label tells.
func mendService(have, want *apiregistrationv1.APIService) error {
	const managed = "kube-aggregator.kubernetes.io/automanaged"
	if have.Labels[managed] != want.Labels[managed] || equality.Semantic.DeepEqual(have.Spec, want.Spec) {
		return errLeave
	}
	have.Spec = want.Spec
	return nil
}
