package core

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

var (
	families         = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	familyPolicies   = []corev1.IPFamilyPolicy{corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack}
	clusterIPsPath   = field.NewPath("spec", "clusterIPs")
	familiesPath     = field.NewPath("spec", "ipFamilies")
	familyPolicyPath = field.NewPath("spec", "ipFamilyPolicy")
)

// IsIPv6 reports whether text is an IPv6 address.
func IsIPv6(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && !ip.Unmap().Is4()
}

// ValidateClusterIPs checks that the addresses of a Service agree with its families. Old is nil for
// a new Service. The allocators use it, too.
func ValidateClusterIPs(s, old *corev1.Service) (errs field.ErrorList) {
	spec := &s.Spec
	if spec.Type == corev1.ServiceTypeExternalName {
		return nil // validateExternalName reports addresses as errors
	}
	switch {
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		errs = append(errs, field.Invalid(clusterIPsPath, spec.ClusterIPs, "must be empty when `clusterIP` is not specified"))
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		errs = append(errs, field.Required(clusterIPsPath, ""))
	case spec.ClusterIP != "" && spec.ClusterIPs[0] != spec.ClusterIP:
		errs = append(errs, field.Invalid(clusterIPsPath, spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	var seenFamilies check.Seen[corev1.IPFamily]
	for i, f := range spec.IPFamilies {
		if !slices.Contains(families, f) {
			errs = append(errs, field.NotSupported(familiesPath.Index(i), f, families))
		}
		if seenFamilies.Again(f) {
			errs = append(errs, field.Duplicate(familiesPath.Index(i), f))
		}
	}
	if p := spec.IPFamilyPolicy; p != nil && !slices.Contains(familyPolicies, *p) {
		errs = append(errs, field.NotSupported(familyPolicyPath, p, familyPolicies))
	}
	wrong := len(errs)
	var known check.Seen[string]
	if old != nil {
		known = check.SeenIn(old.Spec.ClusterIPs)
	}
	for i, ip := range spec.ClusterIPs {
		if i == 0 && ip == corev1.ClusterIPNone {
			if len(spec.ClusterIPs) > 1 {
				errs = append(errs, field.Invalid(clusterIPsPath, spec.ClusterIPs, "'None' must be the first and only value"))
			}
			continue
		}
		errs = append(errs, check.LegacyIP(ip, &known, clusterIPsPath.Index(i))...)
	}
	malformed := len(errs) > wrong
	if len(spec.ClusterIPs) > 2 {
		errs = append(errs, field.Invalid(clusterIPsPath, spec.ClusterIPs, "may only hold up to 2 values"))
	}
	if malformed {
		return errs // the checks below need valid addresses
	}
	return append(errs, matchFamilies(s)...)
}

// matchFamilies checks that there is at most one address of each family, in the order of the
// families.
func matchFamilies(s *corev1.Service) (errs field.ErrorList) {
	ips := s.Spec.ClusterIPs
	if len(ips) > 1 && !slices.ContainsFunc(ips[1:], func(ip string) bool { return IsIPv6(ip) != IsIPv6(ips[0]) }) {
		errs = append(errs, field.Invalid(clusterIPsPath, ips, "may specify no more than one IP for each IP family"))
	}
	if isHeadless(s) {
		return errs
	}
	for i, f := range s.Spec.IPFamilies {
		if i == len(ips) {
			break
		}
		if f == corev1.IPv4Protocol && IsIPv6(ips[i]) || f == corev1.IPv6Protocol && !IsIPv6(ips[i]) {
			errs = append(errs, field.Invalid(clusterIPsPath.Index(i), ips[i], fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", f, i)))
		}
	}
	return errs
}

// validateClusterIPsUpdate checks that the first address does not change. A second one can be
// added, and removed with a change of the policy.
func validateClusterIPsUpdate(s, old *corev1.Service) (errs field.ErrorList) {
	if either(s, old, func(s *corev1.Service) bool { return s.Spec.Type == corev1.ServiceTypeExternalName }) || isHeadless(s) && isHeadless(old) {
		return nil
	}
	ips, had := s.Spec.ClusterIPs, old.Spec.ClusterIPs
	if len(ips) == len(had) {
		for i := range ips {
			if ips[i] != had[i] {
				errs = append(errs, field.Invalid(clusterIPsPath.Index(i), ips, "may not change once set"))
			}
		}
		return errs
	}
	if len(ips) == 0 {
		errs = append(errs, field.Invalid(clusterIPsPath.Index(0), ips, "primary clusterIP can not be unset"))
	}
	if len(had) > 0 && len(ips) > 0 && ips[0] != had[0] {
		errs = append(errs, field.Invalid(clusterIPsPath.Index(0), ips, "may not change once set"))
	}
	if len(had) > len(ips) && len(ips) == 1 && !singleStack(s) {
		errs = append(errs, field.Invalid(familyPolicyPath, s.Spec.IPFamilyPolicy, "must be set to 'SingleStack' when releasing the secondary clusterIP"))
	}
	return errs
}

// validateFamiliesUpdate is validateClusterIPsUpdate for families.
func validateFamiliesUpdate(s, old *corev1.Service) (errs field.ErrorList) {
	if either(s, old, func(s *corev1.Service) bool { return s.Spec.Type == corev1.ServiceTypeExternalName || isHeadless(s) }) {
		return nil
	}
	have, had := s.Spec.IPFamilies, old.Spec.IPFamilies
	first := familiesPath.Index(0)
	if len(have) == len(had) {
		for i := range have {
			if have[i] != had[i] {
				errs = append(errs, field.Invalid(first, have, "may not change once set"))
			}
		}
		return errs
	}
	if len(had) > len(have) && len(s.Spec.ClusterIPs) == 0 {
		errs = append(errs, field.Invalid(first, have, "primary ipFamily can not be unset"))
	}
	if len(had) > 0 && len(have) > 0 && have[0] != had[0] {
		errs = append(errs, field.Invalid(first, s.Spec.ClusterIPs, "may not change once set"))
	}
	if len(had) > len(have) && len(have) == 1 && !singleStack(s) {
		errs = append(errs, field.Invalid(familyPolicyPath, s.Spec.IPFamilyPolicy, "must be set to 'SingleStack' when releasing the secondary ipFamily"))
	}
	return errs
}

func either(a, b *corev1.Service, is func(*corev1.Service) bool) bool { return is(a) || is(b) }

func singleStack(s *corev1.Service) bool {
	return s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
}
