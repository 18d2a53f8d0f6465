package columns

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1" // kube-apiserver shows its descriptions
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// policies are the kinds of the groups policy, rbac, admissionregistration and flowcontrol.
var policies = []kind{
	of(func() []column {
		return nameAndAge(str("Min Available", "The minimum number of pods that must be available."),
			str("Max Unavailable", "The maximum number of pods that may be unavailable."),
			num("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time."))
	}, func(o *policyv1.PodDisruptionBudget, r *resource.Row) {
		r.String(o.Name)
		amount(r, o.Spec.MinAvailable)
		amount(r, o.Spec.MaxUnavailable)
		replicas(r, o.Status.DisruptionsAllowed)
		since(r, o)
	}),
	of(func() []column { return bindingColumns("roleBinding", doc(rbacv1beta1.RoleBinding{}, "roleRef")) },
		func(o *rbacv1.RoleBinding, r *resource.Row) { binding(r, o, &o.RoleRef, o.Subjects) }),
	of(func() []column {
		return bindingColumns("clusterRoleBinding", doc(rbacv1beta1.ClusterRoleBinding{}, "roleRef"))
	},
		func(o *rbacv1.ClusterRoleBinding, r *resource.Row) { binding(r, o, &o.RoleRef, o.Subjects) }),
	of(webhookColumns, func(o *admissionv1.MutatingWebhookConfiguration, r *resource.Row) {
		counted(r, o, len(o.Webhooks))
		since(r, o)
	}),
	of(webhookColumns, func(o *admissionv1.ValidatingWebhookConfiguration, r *resource.Row) {
		counted(r, o, len(o.Webhooks))
		since(r, o)
	}),
	of(func() []column {
		return nameAndAge(num("Validations", "Validations indicates the number of validation rules defined in this configuration"), paramKindColumn)
	}, func(o *admissionv1.ValidatingAdmissionPolicy, r *resource.Row) {
		counted(r, o, len(o.Spec.Validations))
		paramKind(r, o.Spec.ParamKind)
		since(r, o)
	}),
	of(func() []column {
		return nameAndAge(num("Mutations", "Mutation indicates the number of mutations rules defined in this configuration"), paramKindColumn)
	}, func(o *admissionv1.MutatingAdmissionPolicy, r *resource.Row) {
		counted(r, o, len(o.Spec.Mutations))
		paramKind(r, o.Spec.ParamKind)
		since(r, o)
	}),
	of(policyBindingColumns, func(o *admissionv1.ValidatingAdmissionPolicyBinding, r *resource.Row) {
		policyBinding(r, o, o.Spec.PolicyName, o.Spec.ParamRef)
	}),
	of(policyBindingColumns, func(o *admissionv1.MutatingAdmissionPolicyBinding, r *resource.Row) {
		policyBinding(r, o, o.Spec.PolicyName, o.Spec.ParamRef)
	}),
	of(func() []column {
		d := flowcontrolv1.FlowSchemaSpec{}
		return append(nameAndAge(str("PriorityLevel", doc(flowcontrolv1.PriorityLevelConfigurationReference{}, "name")),
			str("MatchingPrecedence", doc(d, "matchingPrecedence")), str("DistinguisherMethod", doc(d, "distinguisherMethod"))),
			str("MissingPL", "references a broken or non-existent PriorityLevelConfiguration"))
	}, flowSchema).sorted(func(o runtime.Object) int32 { return o.(*flowcontrolv1.FlowSchema).Spec.MatchingPrecedence }),
	of(func() []column {
		d := flowcontrolv1.QueuingConfiguration{}
		return nameAndAge(str("Type", doc(flowcontrolv1.PriorityLevelConfigurationSpec{}, "type")),
			str("NominalConcurrencyShares", doc(flowcontrolv1.LimitedPriorityLevelConfiguration{}, "nominalConcurrencyShares")),
			str("Queues", doc(d, "queues")), str("HandSize", doc(d, "handSize")), str("QueueLengthLimit", doc(d, "queueLengthLimit")))
	}, priorityLevel),
}

// amount adds an optional number or percentage.
func amount(r *resource.Row, n *intstr.IntOrString) {
	if n == nil {
		r.String("N/A")
		return
	}
	r.String(n.String())
}

func bindingColumns(kind, role string) []column {
	return append(nameAndAge(str("Role", role)),
		wide(str("Users", "Users in the "+kind), str("Groups", "Groups in the "+kind), str("ServiceAccounts", "ServiceAccounts in the "+kind))...)
}

func binding(r *resource.Row, o metav1.Object, role *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	var users, groups, accounts []string
	for i := range subjects {
		switch s := &subjects[i]; s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	r.String(o.GetName())
	r.String(role.Kind + "/" + role.Name)
	since(r, o)
	for _, list := range [][]string{users, groups, accounts} {
		r.String(strings.Join(list, ", "))
	}
}

func webhookColumns() []column {
	return nameAndAge(num("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration"))
}

// counted adds the name and a number.
func counted(r *resource.Row, o metav1.Object, n int) {
	r.String(o.GetName())
	r.Int(int64(n))
}

var paramKindColumn = str("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy")

func paramKind(r *resource.Row, k *admissionv1.ParamKind) {
	if k == nil {
		r.String("<unset>")
		return
	}
	r.String(k.APIVersion + "/" + k.Kind)
}

func policyBindingColumns() []column {
	return nameAndAge(str("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to"),
		str("ParamRef", "ParamRef indicates the param resource which sets the configuration param"))
}

func policyBinding(r *resource.Row, o metav1.Object, policy string, ref *admissionv1.ParamRef) {
	param := "<unset>"
	switch {
	case ref == nil:
	case ref.Name != "" && ref.Namespace != "":
		param = ref.Namespace + "/" + ref.Name
	case ref.Name != "":
		param = "*/" + ref.Name // its kind may be cluster-scoped
	case ref.Selector != nil:
		param = ref.Selector.String()
	}
	r.String(o.GetName())
	r.String(policy)
	r.String(param)
	since(r, o)
}

func flowSchema(o *flowcontrolv1.FlowSchema, r *resource.Row) {
	method, dangling := "<none>", "?"
	if m := o.Spec.DistinguisherMethod; m != nil {
		method = string(m.Type)
	}
	for i := range o.Status.Conditions {
		if c := &o.Status.Conditions[i]; c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			dangling = string(c.Status)
			break
		}
	}
	r.String(o.Name)
	r.String(o.Spec.PriorityLevelConfiguration.Name)
	replicas(r, o.Spec.MatchingPrecedence)
	r.String(method)
	since(r, o)
	r.String(dangling)
}

func priorityLevel(o *flowcontrolv1.PriorityLevelConfiguration, r *resource.Row) {
	r.String(o.Name)
	r.String(string(o.Spec.Type))
	none := func(n int) {
		for range n {
			r.String("<none>")
		}
	}
	switch l := o.Spec.Limited; {
	case l == nil:
		none(4)
	case l.LimitResponse.Queuing == nil:
		replicas(r, deref(l.NominalConcurrencyShares, 30))
		none(3)
	default:
		q := l.LimitResponse.Queuing
		replicas(r, deref(l.NominalConcurrencyShares, 30), q.Queues, q.HandSize, q.QueueLengthLimit)
	}
	since(r, o)
}
