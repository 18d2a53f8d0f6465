package addresses

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
)

var (
	specPath     = field.NewPath("spec")
	ipsPath      = specPath.Child("clusterIPs")
	familiesPath = specPath.Child("ipFamilies")
	policyPath   = specPath.Child("ipFamilyPolicy")
)

// families sets the IP family policy and the families of a Service, which determine the number of
// its addresses. It rejects Services whose addresses could not be allocated.
func (a *Allocator) families(s, old *corev1.Service) field.ErrorList {
	spec := &s.Spec
	if spec.Type == corev1.ServiceTypeExternalName || staysPreferred(s, old) {
		return nil
	}
	if spec.IPFamilyPolicy == nil {
		spec.IPFamilyPolicy = defaultPolicy(s, old)
	}
	if errs := core.ValidateClusterIPs(s, old); len(errs) > 0 {
		return errs
	}
	single := *spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
	errs := a.reduce(s, old, single)
	if single && len(spec.ClusterIPs) == 2 {
		errs = append(errs, field.Invalid(policyPath, spec.IPFamilyPolicy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"))
	}
	if single && len(spec.IPFamilies) == 2 {
		errs = append(errs, field.Invalid(policyPath, spec.IPFamilyPolicy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"))
	}
	for i, text := range spec.ClusterIPs {
		if text == corev1.ClusterIPNone {
			break
		}
		if i < len(spec.IPFamilies) {
			continue
		}
		f := corev1.IPv4Protocol
		if core.IsIPv6(text) {
			f = corev1.IPv6Protocol
		}
		if a.ranges[f] == nil {
			errs = append(errs, field.Invalid(ipsPath.Index(i), spec.ClusterIPs, fmt.Sprintf("%s is not configured on this cluster", f)))
			continue
		}
		spec.IPFamilies = append(spec.IPFamilies, f)
	}
	if len(errs) > 0 {
		return errs
	}
	if spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0 {
		// The endpoints are managed by a client, and may be of both families on any
		// cluster.
		a.fillFamilies(s, !single)
		return nil
	}
	return a.configured(s, single)
}

// staysPreferred reports whether an update does not change the families of a Service with
// PreferDualStack. Such an update adds no second address, even if the cluster has a second range
// now.
func staysPreferred(s, old *corev1.Service) bool {
	if old == nil || old.Spec.Type != s.Spec.Type {
		return false
	}
	prefers := func(p *corev1.IPFamilyPolicy) bool { return *p == corev1.IPFamilyPolicyPreferDualStack }
	return s.Spec.IPFamilyPolicy != nil && prefers(s.Spec.IPFamilyPolicy) &&
		(old.Spec.IPFamilyPolicy == nil || prefers(old.Spec.IPFamilyPolicy)) &&
		slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) && slices.Equal(s.Spec.IPFamilies, old.Spec.IPFamilies)
}

// defaultPolicy returns the policy of a Service without one: the old policy, or SingleStack, or
// RequireDualStack if a client manages the endpoints.
func defaultPolicy(s, old *corev1.Service) *corev1.IPFamilyPolicy {
	if old != nil && old.Spec.IPFamilyPolicy != nil {
		return old.Spec.IPFamilyPolicy
	}
	p := corev1.IPFamilyPolicySingleStack
	if s.Spec.ClusterIP == corev1.ClusterIPNone && len(s.Spec.Selector) == 0 {
		p = corev1.IPFamilyPolicyRequireDualStack
	}
	return &p
}

// reduce removes the second address of a Service if its policy is SingleStack now.
func (a *Allocator) reduce(s, old *corev1.Service, single bool) (errs field.ErrorList) {
	if old == nil {
		return nil
	}
	spec, was := &s.Spec, &old.Spec
	if single {
		if len(spec.ClusterIPs) > 1 && slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
			spec.ClusterIPs = spec.ClusterIPs[:1:1]
		}
		if len(spec.IPFamilies) > 1 && slices.Equal(spec.IPFamilies, was.IPFamilies) {
			spec.IPFamilies = spec.IPFamilies[:1:1]
		}
		return nil
	}
	if n := len(spec.ClusterIPs); n > 0 && n < len(was.ClusterIPs) {
		errs = append(errs, field.Invalid(policyPath, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary cluster IP"))
	}
	if n := len(spec.IPFamilies); n > 0 && n < len(was.IPFamilies) {
		errs = append(errs, field.Invalid(policyPath, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary IP family"))
	}
	return errs
}

// configured sets the families, and refuses families without a range.
func (a *Allocator) configured(s *corev1.Service, single bool) (errs field.ErrorList) {
	if *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(a.ranges) < 2 {
		errs = append(errs, field.Invalid(policyPath, s.Spec.IPFamilyPolicy, "this cluster is not configured for dual-stack services"))
	}
	for i, f := range s.Spec.IPFamilies {
		if a.ranges[f] == nil {
			errs = append(errs, field.Invalid(familiesPath.Index(i), f, "not configured on this cluster"))
		}
	}
	if len(errs) == 0 {
		a.fillFamilies(s, !single && len(a.ranges) == 2)
	}
	return errs
}

func (a *Allocator) fillFamilies(s *corev1.Service, both bool) {
	if len(s.Spec.IPFamilies) == 0 {
		s.Spec.IPFamilies = []corev1.IPFamily{a.first}
	}
	if f := s.Spec.IPFamilies; both && len(f) == 1 {
		s.Spec.IPFamilies = []corev1.IPFamily{f[0], other(f[0])}
	}
}
