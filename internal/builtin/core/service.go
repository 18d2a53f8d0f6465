package core

import (
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// DefaultService sets the defaults, except for allocated addresses and ports.
func DefaultService(s *corev1.Service) {
	spec := &s.Spec
	if spec.SessionAffinity == "" {
		spec.SessionAffinity = corev1.ServiceAffinityNone
	}
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if c := spec.SessionAffinityConfig; c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			seconds := corev1.DefaultClientIPServiceAffinitySeconds
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
		}
	}
	if spec.Type == "" {
		spec.Type = corev1.ServiceTypeClusterIP
	}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		if p.Protocol == "" {
			p.Protocol = corev1.ProtocolTCP
		}
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if externallyAccessible(s) && spec.ExternalTrafficPolicy == "" {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if spec.InternalTrafficPolicy == nil && inCluster(s) {
		policy := corev1.ServiceInternalTrafficPolicyCluster
		spec.InternalTrafficPolicy = &policy
	}
	if p := spec.InternalTrafficPolicy; spec.Type == corev1.ServiceTypeExternalName && p != nil && slices.Contains(internalPolicies, *p) {
		spec.InternalTrafficPolicy = nil // an ExternalName Service has no such traffic
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	if spec.AllocateLoadBalancerNodePorts == nil {
		yes := true
		spec.AllocateLoadBalancerNodePorts = &yes
	}
	for i := range s.Status.LoadBalancer.Ingress {
		if g := &s.Status.LoadBalancer.Ingress[i]; g.IP != "" && g.IPMode == nil {
			vip := corev1.LoadBalancerIPModeVIP
			g.IPMode = &vip
		}
	}
}

// inCluster reports whether a Service of this type can have a cluster IP.
func inCluster(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	}
	return false
}

func externallyAccessible(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeClusterIP:
		return len(s.Spec.ExternalIPs) > 0
	}
	return false
}

// NeedsHealthCheck reports whether nodes have to serve health checks of the Service on a port of
// its own.
func NeedsHealthCheck(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// isHeadless reports whether a Service is headless by its clusterIPs, as validation does.
func isHeadless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// PrepareServiceUpdate removes fields that the new type does not use, if the update leaves
// them unchanged. Validation rejects an update that changes them, too.
func PrepareServiceUpdate(s, old *corev1.Service) bool {
	to, from, sent := &s.Spec, &old.Spec, *s
	if from.Type != corev1.ServiceTypeExternalName && to.Type == corev1.ServiceTypeExternalName {
		if to.ClusterIP == from.ClusterIP && slices.Equal(to.ClusterIPs, from.ClusterIPs) {
			to.ClusterIP, to.ClusterIPs = "", nil
		}
		if slices.Equal(to.IPFamilies, from.IPFamilies) {
			to.IPFamilies = nil
		}
		if check.Equal(to.IPFamilyPolicy, from.IPFamilyPolicy) {
			to.IPFamilyPolicy = nil
		}
	}
	if hasNodePorts(old) && !hasNodePorts(s) && !newNodePorts(s, old) {
		to.Ports = slices.Clone(to.Ports)
		for i := range to.Ports {
			to.Ports[i].NodePort = 0
		}
	}
	if NeedsHealthCheck(old) && !NeedsHealthCheck(s) && to.HealthCheckNodePort == from.HealthCheckNodePort {
		to.HealthCheckNodePort = 0
	}
	balanced := from.Type == corev1.ServiceTypeLoadBalancer && to.Type != corev1.ServiceTypeLoadBalancer
	if a, b := to.AllocateLoadBalancerNodePorts, from.AllocateLoadBalancerNodePorts; balanced && a != nil && b != nil && *a == *b {
		to.AllocateLoadBalancerNodePorts = nil
	}
	if balanced && check.Equal(to.LoadBalancerClass, from.LoadBalancerClass) {
		to.LoadBalancerClass = nil
	}
	if externallyAccessible(old) && !externallyAccessible(s) && to.ExternalTrafficPolicy == from.ExternalTrafficPolicy {
		to.ExternalTrafficPolicy = ""
	}
	if to.Type != corev1.ServiceTypeLoadBalancer {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	return !reflect.DeepEqual(to, &sent.Spec) || !reflect.DeepEqual(&s.Status, &sent.Status)
}

func hasNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// newNodePorts reports whether an update adds a node port.
func newNodePorts(s, old *corev1.Service) bool {
	var had check.Seen[int32]
	for i := range old.Spec.Ports {
		had.Again(old.Spec.Ports[i].NodePort)
	}
	return slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 && !had.Has(p.NodePort) })
}

// ServiceWarnings warns about fields that have no effect, are not in canonical form, or are
// deprecated.
func ServiceWarnings(s, _ *corev1.Service) (all []string) {
	spec, path := &s.Spec, field.NewPath("spec")
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if _, ok := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; ok {
		add("annotation %s is deprecated, please use %s instead", corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode)
	}
	if spec.ClusterIP != "" && spec.ClusterIP != corev1.ClusterIPNone {
		for i, ip := range spec.ClusterIPs {
			all = append(all, check.IPWarnings(ip, path.Child("clusterIPs").Index(i))...)
		}
	}
	headless := spec.Type == corev1.ServiceTypeClusterIP && spec.ClusterIP == corev1.ClusterIPNone
	if headless {
		if spec.LoadBalancerIP != "" {
			add("spec.loadBalancerIP is ignored for headless services")
		}
		if len(spec.ExternalIPs) > 0 {
			add("spec.externalIPs is ignored for headless services")
		}
		if spec.SessionAffinity != corev1.ServiceAffinityNone {
			add("spec.SessionAffinity is ignored for headless services")
		}
	}
	for i, ip := range spec.ExternalIPs {
		all = append(all, check.IPWarnings(ip, path.Child("externalIPs").Index(i))...)
	}
	external := spec.Type == corev1.ServiceTypeExternalName
	if len(spec.ExternalIPs) > 0 && !headless && !external {
		add("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if spec.LoadBalancerIP != "" {
		all = append(all, check.IPWarnings(spec.LoadBalancerIP, path.Child("loadBalancerIP"))...)
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		all = append(all, check.CIDRWarnings(cidr, path.Child("loadBalancerSourceRanges").Index(i))...)
	}
	if external && len(spec.ExternalIPs) > 0 {
		add("spec.externalIPs is ignored when spec.type is %q", spec.Type)
	}
	if !external && spec.ExternalName != "" {
		add("spec.externalName is ignored when spec.type is not %q", corev1.ServiceTypeExternalName)
	}
	if d := spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		add("spec.trafficDistribution: %q is deprecated; use %q", *d, corev1.ServiceTrafficDistributionPreferSameZone)
	}
	return all
}
