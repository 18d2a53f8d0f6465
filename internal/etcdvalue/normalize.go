package etcdvalue

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// normalize fills in fields that objects of earlier releases lack and that defaults cannot know,
// since a client may not want them in a new object.
func normalize(o runtime.Object) {
	switch o := o.(type) {
	case *corev1.Service:
		normalizeService(&o.Spec)
	case *corev1.PersistentVolumeClaim:
		normalizeSources(&o.Spec)
	}
}

// normalizeService completes a Service that was written before a Service could have several
// addresses. The families of one without an address depend on the server's ranges: they stay
// empty.
func normalizeService(s *corev1.ServiceSpec) {
	if s.Type == corev1.ServiceTypeExternalName {
		s.InternalTrafficPolicy = nil
		return
	}
	if len(s.ClusterIPs) == 0 && s.ClusterIP != "" {
		s.ClusterIPs = []string{s.ClusterIP}
	}
	if len(s.IPFamilies) > 0 || s.ClusterIP == corev1.ClusterIPNone {
		return
	}
	for _, text := range s.ClusterIPs {
		family := corev1.IPv4Protocol
		if at, err := netip.ParseAddr(text); err == nil && at.Is6() {
			family = corev1.IPv6Protocol
		}
		s.IPFamilies = append(s.IPFamilies, family)
	}
	policy := corev1.IPFamilyPolicySingleStack
	switch len(s.IPFamilies) {
	case 0:
		return
	case 2:
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	s.IPFamilyPolicy = &policy
}

// normalizeSources completes a claim that has one of the two fields for its source.
func normalizeSources(s *corev1.PersistentVolumeClaimSpec) {
	switch from, to := s.DataSource, s.DataSourceRef; {
	case from != nil && to == nil:
		s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: from.APIGroup, Kind: from.Kind, Name: from.Name}
	case from == nil && to != nil && (to.Namespace == nil || *to.Namespace == ""):
		s.DataSource = &corev1.TypedLocalObjectReference{APIGroup: to.APIGroup, Kind: to.Kind, Name: to.Name}
	}
}
