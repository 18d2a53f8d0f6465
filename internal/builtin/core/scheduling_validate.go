package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// The members of affinities.
const (
	required  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferred = "preferredDuringSchedulingIgnoredDuringExecution"
)

var (
	unsatisfiable      = []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}
	inclusionPolicies  = []corev1.NodeInclusionPolicy{corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore}
	taintEffects       = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	tolerationOps      = []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}
	alphaTolerationOps = append(slices.Clone(tolerationOps), corev1.TolerationOpLt, corev1.TolerationOpGt)
)

func (f *Faults) affinity(a *corev1.Affinity, at *field.Path) {
	if a == nil {
		return
	}
	at = at.Child("affinity")
	if n := a.NodeAffinity; n != nil {
		f.nodeAffinity(n, at.Child("nodeAffinity"))
	}
	if p := a.PodAffinity; p != nil {
		f.podTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))
	}
	if p := a.PodAntiAffinity; p != nil {
		f.podTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAntiAffinity"))
	}
}

func (f *Faults) nodeAffinity(n *corev1.NodeAffinity, at *field.Path) {
	if s := n.RequiredDuringSchedulingIgnoredDuringExecution; s != nil {
		f.NodeSelector(s, at.Child(required))
	}
	for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
		t, at := &n.PreferredDuringSchedulingIgnoredDuringExecution[i], at.Child(preferred).Index(i)
		f.weight(t.Weight, at)
		f.nodeTerm(&t.Preference, at.Child("preference"), true)
	}
}

func (f *Faults) weight(w int32, at *field.Path) {
	if w <= 0 || w > 100 {
		f.Invalid(at, "weight", w, "must be in the range 1-100")
	}
}

// NodeSelector checks which nodes something can be on.
func (f *Faults) NodeSelector(s *corev1.NodeSelector, at *field.Path) {
	at = at.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		f.Required(at, "", "must have at least one node selector term")
	}
	for i := range s.NodeSelectorTerms {
		f.nodeTerm(&s.NodeSelectorTerms[i], at.Index(i), false)
	}
}

// nodeTerm checks one way to select nodes. What is only preferred may name values
// that no label can have.
func (f *Faults) nodeTerm(t *corev1.NodeSelectorTerm, at *field.Path, anyValue bool) {
	for i := range t.MatchExpressions {
		q, at := &t.MatchExpressions[i], at.Child("matchExpressions").Index(i)
		switch q.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(q.Values) == 0 {
				f.Required(at, "values", "must be specified when `operator` is 'In' or 'NotIn'")
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			if len(q.Values) > 0 {
				f.Forbidden(at, "values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
			}
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if len(q.Values) != 1 {
				f.Required(at, "values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
			}
		default:
			f.Invalid(at, "operator", q.Operator, "not a valid selector operator")
		}
		f.labelName(at, "key", q.Key)
		for j := 0; j < len(q.Values) && !anyValue; j++ {
			f.Each(at.Child("values").Index(j), "", q.Values[j], validation.IsValidLabelValue(q.Values[j]))
		}
	}
	for i := range t.MatchFields {
		f.nodeField(&t.MatchFields[i], at.Child("matchFields").Index(i))
	}
}

func (f *Faults) nodeField(q *corev1.NodeSelectorRequirement, at *field.Path) {
	switch q.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(q.Values) != 1 {
			f.Required(at, "values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
		}
	default:
		f.Invalid(at, "operator", q.Operator, "not a valid selector operator")
	}
	if q.Key != metav1.ObjectNameField {
		f.Invalid(at, "key", q.Key, "not a valid field selector key")
		return
	}
	for i, name := range q.Values {
		f.Each(at.Child("values").Index(i), "", name, check.SubdomainFaults(name))
	}
}

func (f *Faults) labelName(at *field.Path, name, key string) {
	f.Each(at, name, key, check.QualifiedNameFaults(key))
}

func (f *Faults) podTerms(must []corev1.PodAffinityTerm, should []corev1.WeightedPodAffinityTerm, at *field.Path) {
	for i := range must {
		f.podTerm(&must[i], at.Child(required).Index(i))
	}
	for i := range should {
		at := at.Child(preferred).Index(i)
		f.weight(should[i].Weight, at)
		f.podTerm(&should[i].PodAffinityTerm, at.Child("podAffinityTerm"))
	}
}

func (f *Faults) podTerm(t *corev1.PodAffinityTerm, at *field.Path) {
	f.LabelSelector(t.LabelSelector, at.Child("labelSelector"))
	f.LabelSelector(t.NamespaceSelector, at.Child("namespaceSelector"))
	for _, name := range t.Namespaces {
		f.Each(at, "namespace", name, apivalidation.ValidateNamespaceName(name, false))
	}
	f.matchLabelKeys(t.MatchLabelKeys, t.MismatchLabelKeys, t.LabelSelector, at)
	if t.TopologyKey == "" {
		f.Required(at, "topologyKey", "can not be empty")
	}
	f.labelName(at, "topologyKey", t.TopologyKey)
}

// LabelSelector checks a selector; nil is none.
func (f *Faults) LabelSelector(s *metav1.LabelSelector, at *field.Path) {
	f.Add(check.Selector(s, nil, at)...)
}

// matchLabelKeys checks keys whose values are the Pod's own.
func (f *Faults) matchLabelKeys(match, mismatch []string, s *metav1.LabelSelector, at *field.Path) {
	f.labelKeys(match, s, at, "matchLabelKeys")
	f.labelKeys(mismatch, s, at, "mismatchLabelKeys")
	if len(match) == 0 {
		return
	}
	if s != nil {
		var keys seen
		index := make(map[string]int, len(match))
		for i, key := range match {
			index[key] = i
		}
		for key := range s.MatchLabels {
			keys.Again(key)
		}
		for i := range s.MatchExpressions {
			key := s.MatchExpressions[i].Key
			if n, ok := index[key]; keys.Again(key) && ok {
				f.Invalid(at.Index(n), "", key, "exists in both matchLabelKeys and labelSelector")
			}
		}
	}
	var not seen
	for _, key := range mismatch {
		not.Again(key)
	}
	for i, key := range match {
		if not.Has(key) {
			f.Invalid(at.Child("matchLabelKeys").Index(i), "", key, "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
}

func (f *Faults) labelKeys(keys []string, s *metav1.LabelSelector, at *field.Path, name string) {
	if len(keys) == 0 {
		return
	}
	if s == nil {
		f.Forbidden(at, name, "must not be specified when labelSelector is not set")
		return
	}
	for i, key := range keys {
		f.labelName(at.Child(name).Index(i), "", key)
	}
}

// tolerations checks which taints of nodes a Pod does not mind.
func (f *Faults) tolerations(all []corev1.Toleration, at *field.Path) {
	for i := range all {
		t, at := &all[i], at.Index(i)
		if t.Key != "" {
			f.labelName(at, "key", t.Key)
		} else if t.Operator != corev1.TolerationOpExists {
			f.Invalid(at, "operator", t.Operator, `operator must be Exists when `+"`key`"+` is empty, which means "match all values and all keys"`)
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			f.Invalid(at, "effect", t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			if faults := validation.IsValidLabelValue(t.Value); len(faults) > 0 {
				f.Invalid(at, "operator", t.Value, strings.Join(faults, ";"))
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				f.Invalid(at, "operator", t.Value, "value must be empty when `operator` is 'Exists'")
			}
		case corev1.TolerationOpLt, corev1.TolerationOpGt:
			f.Add(field.NotSupported(at.Child("operator"), t.Operator, alphaTolerationOps))
		default:
			OneOf(f, at, "operator", t.Operator, tolerationOps)
		}
		if t.Effect != "" {
			OneOf(f, at, "effect", t.Effect, taintEffects)
		}
	}
}

// spread checks how Pods are spread over parts of the cluster.
func (f *Faults) spread(all []corev1.TopologySpreadConstraint, at *field.Path) {
	type kind struct {
		key  string
		when corev1.UnsatisfiableConstraintAction
	}
	last := make(map[kind]int, len(all))
	for i := range all {
		last[kind{all[i].TopologyKey, all[i].WhenUnsatisfiable}] = i
	}
	for i := range all {
		c, at := &all[i], at.Child("topologySpreadConstraints").Index(i)
		f.positive(at, "maxSkew", c.MaxSkew)
		if c.TopologyKey == "" {
			f.Required(at, "topologyKey", "can not be empty")
		}
		OneOf(f, at, "whenUnsatisfiable", c.WhenUnsatisfiable, unsatisfiable)
		if last[kind{c.TopologyKey, c.WhenUnsatisfiable}] > i {
			f.Duplicate(at, "{topologyKey, whenUnsatisfiable}", fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable))
		}
		if n := c.MinDomains; n != nil {
			f.positive(at, "minDomains", *n)
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				f.Invalid(at, "minDomains", n, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, c.WhenUnsatisfiable))
			}
		}
		if p := c.NodeAffinityPolicy; p != nil {
			OneOf(f, at, "nodeAffinityPolicy", *p, inclusionPolicies)
		}
		if p := c.NodeTaintsPolicy; p != nil {
			OneOf(f, at, "nodeTaintsPolicy", *p, inclusionPolicies)
		}
		f.matchLabelKeys(c.MatchLabelKeys, nil, c.LabelSelector, at)
		f.LabelSelector(c.LabelSelector, at.Child("labelSelector"))
	}
}

func (f *Faults) positive(at *field.Path, name string, n int32) {
	if n <= 0 {
		f.Invalid(at, name, int64(n), "must be greater than zero")
	}
}
