package startup

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// errAnotherRole: a binding refers to another role, and roleRef cannot be changed.
var errAnotherRole = errors.New("the binding refers to another role")

// reconcilerOf returns the edit that adds to a stored object what it lacks, and the field manager
// of the edit. The edit returns errUnchanged when nothing is missing.
func reconcilerOf(want metav1.Object) (edit func(metav1.Object) error, by string) {
	switch want := want.(type) {
	case *rbacv1.ClusterRole:
		return func(o metav1.Object) error { return reconcileClusterRole(o.(*rbacv1.ClusterRole), want) }, manager
	case *rbacv1.Role:
		return func(o metav1.Object) error {
			have := o.(*rbacv1.Role)
			return unlessOptedOut(have, func() bool {
				changed := addMetadata(have, want)
				return addRules(&have.Rules, want.Rules) || changed
			})
		}, manager
	case *rbacv1.ClusterRoleBinding:
		return func(o metav1.Object) error {
			have := o.(*rbacv1.ClusterRoleBinding)
			return reconcileBinding(binding{have, &have.RoleRef, &have.Subjects}, binding{want, &want.RoleRef, &want.Subjects})
		}, manager
	case *rbacv1.RoleBinding:
		return func(o metav1.Object) error {
			have := o.(*rbacv1.RoleBinding)
			return reconcileBinding(binding{have, &have.RoleRef, &have.Subjects}, binding{want, &want.RoleRef, &want.Subjects})
		}, manager
	case *flowcontrolv1.FlowSchema:
		return func(o metav1.Object) error {
			have := o.(*flowcontrolv1.FlowSchema)
			return reconcileFlow(have, want, &have.Spec, &want.Spec)
		}, flowProducer
	case *flowcontrolv1.PriorityLevelConfiguration:
		return func(o metav1.Object) error {
			have, spec := o.(*flowcontrolv1.PriorityLevelConfiguration), want.Spec
			if spec.Exempt != nil && have.Spec.Exempt != nil { // the shares of exempt levels may be configured
				spec.Exempt = have.Spec.Exempt
			}
			return reconcileFlow(have, want, &have.Spec, &spec)
		}, flowProducer
	case *apiregistrationv1.APIService:
		return func(o metav1.Object) error { return reconcileAPIService(o.(*apiregistrationv1.APIService), want) }, manager
	}
	return func(metav1.Object) error { return errUnchanged }, manager // priority classes are not updated
}

// unlessOptedOut edits a role or binding, unless its annotation disables updates.
func unlessOptedOut(have metav1.Object, edit func() bool) error {
	if have.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false" || !edit() {
		return errUnchanged
	}
	return nil
}

// addMetadata adds missing labels and annotations. It keeps other ones, and different values.
func addMetadata(have, want metav1.Object) bool {
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

// addRules adds the rules that the existing ones do not cover.
func addRules(have *[]rbacv1.PolicyRule, want []rbacv1.PolicyRule) bool {
	_, missing := validation.Covers(*have, want)
	*have = append(*have, missing...)
	return len(missing) > 0
}

func reconcileClusterRole(have, want *rbacv1.ClusterRole) error {
	return unlessOptedOut(have, func() bool {
		changed := addMetadata(have, want)
		changed = addRules(&have.Rules, want.Rules) || changed
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

// binding is a RoleBinding or a ClusterRoleBinding.
type binding struct {
	metav1.Object
	role     *rbacv1.RoleRef
	subjects *[]rbacv1.Subject
}

func reconcileBinding(have, want binding) error {
	if have.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] != "false" && *have.role != *want.role {
		return errAnotherRole
	}
	return unlessOptedOut(have, func() bool {
		changed := addMetadata(have, want)
		for _, s := range *want.subjects {
			if !slices.Contains(*have.subjects, s) {
				*have.subjects = append(*have.subjects, s)
				changed = true
			}
		}
		return changed
	})
}

// reconcileFlow reconciles a FlowSchema or a PriorityLevelConfiguration. Two objects of each
// kind are mandatory. An annotation of the others enables or disables updates; without it they are
// updated if no client has changed them.
func reconcileFlow[T any](have, want metav1.Object, spec, wantSpec *T) error {
	const auto = flowcontrolv1.AutoUpdateAnnotationKey
	mandatory := want.GetName() == flowcontrolv1.PriorityLevelConfigurationNameExempt || want.GetName() == flowcontrolv1.PriorityLevelConfigurationNameCatchAll
	said, err := strconv.ParseBool(have.GetAnnotations()[auto])
	update := mandatory || err == nil && said || err != nil && have.GetGeneration() == 1
	if equal := equality.Semantic.DeepEqual(spec, wantSpec); (equal || !update) && err == nil && said == update {
		return errUnchanged
	}
	note := strconv.FormatBool(update)
	have.SetAnnotations(merged(map[string]string{auto: note}, without(have.GetAnnotations(), auto)))
	if update {
		*spec = *wantSpec
	}
	return nil
}

func without(all map[string]string, key string) map[string]string {
	rest := maps.Clone(all)
	delete(rest, key)
	return rest
}

// reconcileAPIService restores the APIService of a group that this server serves, unless its label
// says that another server does.
func reconcileAPIService(have, want *apiregistrationv1.APIService) error {
	const managed = "kube-aggregator.kubernetes.io/automanaged"
	if have.Labels[managed] != want.Labels[managed] || equality.Semantic.DeepEqual(have.Spec, want.Spec) {
		return errUnchanged
	}
	have.Spec = want.Spec
	return nil
}
