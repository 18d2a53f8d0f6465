package podspec

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/nodeselector"
)

// The members of the parts of an affinity.
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

func (r *rules) affinity(a *corev1.Affinity, at *field.Path) {
	if a == nil {
		return
	}
	at = at.Child("affinity")
	if n := a.NodeAffinity; n != nil {
		r.nodeAffinity(n, at.Child("nodeAffinity"))
	}
	if p := a.PodAffinity; p != nil {
		r.podTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))
	}
	if p := a.PodAntiAffinity; p != nil {
		r.podTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAntiAffinity"))
	}
}

func (r *rules) nodeAffinity(n *corev1.NodeAffinity, at *field.Path) {
	if s := n.RequiredDuringSchedulingIgnoredDuringExecution; s != nil {
		nodeselector.Validate(r.Errors, s, at.Child(required))
	}
	for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
		t, at := &n.PreferredDuringSchedulingIgnoredDuringExecution[i], at.Child(preferred).Index(i)
		r.weight(t.Weight, at)
		nodeselector.ValidatePreference(r.Errors, &t.Preference, at.Child("preference"))
	}
}

func (r *rules) weight(w int32, at *field.Path) {
	if w <= 0 || w > 100 {
		r.Invalid(at, "weight", w, "must be in the range 1-100")
	}
}

func (r *rules) podTerms(must []corev1.PodAffinityTerm, should []corev1.WeightedPodAffinityTerm, at *field.Path) {
	for i := range must {
		r.podTerm(&must[i], at.Child(required).Index(i))
	}
	for i := range should {
		at := at.Child(preferred).Index(i)
		r.weight(should[i].Weight, at)
		r.podTerm(&should[i].PodAffinityTerm, at.Child("podAffinityTerm"))
	}
}

func (r *rules) podTerm(t *corev1.PodAffinityTerm, at *field.Path) {
	r.LabelSelector(t.LabelSelector, at.Child("labelSelector"))
	r.LabelSelector(t.NamespaceSelector, at.Child("namespaceSelector"))
	for _, name := range t.Namespaces {
		r.Each(at, "namespace", name, apivalidation.ValidateNamespaceName(name, false))
	}
	r.matchLabelKeys(t.MatchLabelKeys, t.MismatchLabelKeys, t.LabelSelector, at)
	if t.TopologyKey == "" {
		r.Required(at, "topologyKey", "can not be empty")
	}
	r.QualifiedName(at, "topologyKey", t.TopologyKey)
}

// matchLabelKeys checks label keys whose values come from the Pod itself.
func (r *rules) matchLabelKeys(match, mismatch []string, s *metav1.LabelSelector, at *field.Path) {
	r.labelKeys(match, s, at, "matchLabelKeys")
	r.labelKeys(mismatch, s, at, "mismatchLabelKeys")
	if len(match) == 0 {
		return
	}
	if s != nil {
		var keys check.Seen[string]
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
				r.Invalid(at.Index(n), "", key, "exists in both matchLabelKeys and labelSelector")
			}
		}
	}
	var not check.Seen[string]
	for _, key := range mismatch {
		not.Again(key)
	}
	for i, key := range match {
		if not.Has(key) {
			r.Invalid(at.Child("matchLabelKeys").Index(i), "", key, "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
}

func (r *rules) labelKeys(keys []string, s *metav1.LabelSelector, at *field.Path, name string) {
	if len(keys) == 0 {
		return
	}
	if s == nil {
		r.Forbidden(at, name, "must not be specified when labelSelector is not set")
		return
	}
	for i, key := range keys {
		r.QualifiedName(at.Child(name).Index(i), "", key)
	}
}

// spread checks topology spread constraints.
func (r *rules) spread(all []corev1.TopologySpreadConstraint, at *field.Path) {
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
		r.Positive(at, "maxSkew", c.MaxSkew)
		if c.TopologyKey == "" {
			r.Required(at, "topologyKey", "can not be empty")
		}
		check.Enum(r.Errors, at, "whenUnsatisfiable", c.WhenUnsatisfiable, unsatisfiable)
		if last[kind{c.TopologyKey, c.WhenUnsatisfiable}] > i {
			r.Duplicate(at, "{topologyKey, whenUnsatisfiable}", fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable))
		}
		if n := c.MinDomains; n != nil {
			r.Positive(at, "minDomains", *n)
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				r.Invalid(at, "minDomains", n, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, c.WhenUnsatisfiable))
			}
		}
		if p := c.NodeAffinityPolicy; p != nil {
			check.Enum(r.Errors, at, "nodeAffinityPolicy", *p, inclusionPolicies)
		}
		if p := c.NodeTaintsPolicy; p != nil {
			check.Enum(r.Errors, at, "nodeTaintsPolicy", *p, inclusionPolicies)
		}
		r.matchLabelKeys(c.MatchLabelKeys, nil, c.LabelSelector, at)
		r.LabelSelector(c.LabelSelector, at.Child("labelSelector"))
	}
}
