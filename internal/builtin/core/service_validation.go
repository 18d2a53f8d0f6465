package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

var (
	serviceTypes     = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort}
	affinities       = []corev1.ServiceAffinity{corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone}
	externalPolicies = []corev1.ServiceExternalTrafficPolicy{corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal}
	internalPolicies = []corev1.ServiceInternalTrafficPolicy{corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal}
	distributions    = []string{corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode}
)

// onlyBalanced is the error of fields of load balancers in other Services.
const onlyBalanced = "may only be used when `type` is 'LoadBalancer'"

// maxAffinitySeconds is a day.
const maxAffinitySeconds = 86400

// ValidateService checks a new Service with allocated addresses and ports.
func ValidateService(s *corev1.Service) field.ErrorList { return validateService(s, nil) }

// ValidateServiceUpdate checks the new object, and validates immutable fields.
func ValidateServiceUpdate(s, old *corev1.Service) field.ErrorList {
	errs := validateClusterIPsUpdate(s, old)
	errs = append(errs, validateFamiliesUpdate(s, old)...)
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	if balanced && old.Spec.Type == s.Spec.Type && !check.Equal(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "loadBalancerClass"), s.Spec.LoadBalancerClass, "may not change once set"))
	}
	errs = append(errs, validateLoadBalancerClass(s)...)
	if NeedsHealthCheck(old) && NeedsHealthCheck(s) && s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "healthCheckNodePort"), "field is immutable"))
	}
	return append(errs, validateService(s, old)...)
}

func validateService(s, old *corev1.Service) (errs field.ErrorList) {
	spec, path := &s.Spec, field.NewPath("spec")
	hints, hinted := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if mode, ok := s.Annotations[corev1.AnnotationTopologyMode]; ok && hinted && mode != hints {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.AnnotationTopologyMode), mode, "must match annotations["+corev1.DeprecatedAnnotationTopologyAwareHints+"] when both are specified"))
	}
	headless := isHeadless(s)
	if len(spec.Ports) == 0 && !headless && spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(path.Child("ports"), ""))
	}
	switch spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		if headless {
			errs = append(errs, field.Invalid(clusterIPsPath.Index(0), spec.ClusterIPs[0], "may not be set to 'None' for "+string(spec.Type)+" services"))
		}
	case corev1.ServiceTypeExternalName:
		errs = append(errs, validateExternalName(s)...)
	}
	var names check.Seen[string]
	for i := range spec.Ports {
		errs = append(errs, validateServicePort(&spec.Ports[i], len(spec.Ports), &names, path.Child("ports").Index(i))...)
	}
	if spec.Selector != nil {
		errs = append(errs, metav1validation.ValidateLabels(spec.Selector, path.Child("selector"))...)
	}
	errs = append(errs, validateAffinity(s)...)
	errs = append(errs, ValidateClusterIPs(s, old)...)
	errs = append(errs, validateExternalIPs(s, old)...)
	switch {
	case spec.Type == "":
		errs = append(errs, field.Required(path.Child("type"), ""))
	case !slices.Contains(serviceTypes, spec.Type):
		errs = append(errs, field.NotSupported(path.Child("type"), spec.Type, serviceTypes))
	}
	errs = append(errs, validateUniquePorts(s)...)
	errs = append(errs, validateSourceRanges(s, old)...)
	balanced := spec.Type == corev1.ServiceTypeLoadBalancer
	if spec.AllocateLoadBalancerNodePorts != nil && !balanced {
		errs = append(errs, field.Forbidden(path.Child("allocateLoadBalancerNodePorts"), onlyBalanced))
	}
	if spec.AllocateLoadBalancerNodePorts == nil && balanced {
		errs = append(errs, field.Required(field.NewPath("allocateLoadBalancerNodePorts"), ""))
	}
	errs = append(errs, validateLoadBalancerClass(s)...)
	return append(errs, validateTraffic(s)...)
}

func validateExternalName(s *corev1.Service) (errs field.ErrorList) {
	spec, path := &s.Spec, field.NewPath("spec")
	const none = "may not be set for ExternalName services"
	if len(spec.ClusterIPs) > 0 {
		errs = append(errs, field.Forbidden(clusterIPsPath, none))
	}
	if len(spec.IPFamilies) > 0 {
		errs = append(errs, field.Forbidden(familiesPath, none))
	}
	if spec.IPFamilyPolicy != nil {
		errs = append(errs, field.Forbidden(familyPolicyPath, none))
	}
	name := strings.TrimSuffix(spec.ExternalName, ".")
	if name == "" {
		return append(errs, field.Required(path.Child("externalName"), ""))
	}
	return append(errs, check.DNSSubdomain(name, path.Child("externalName"))...)
}

// validateServicePort checks one of several ports. Names has the names of the preceding ports.
func validateServicePort(p *corev1.ServicePort, ports int, names *check.Seen[string], path *field.Path) (errs field.ErrorList) {
	switch {
	case p.Name != "":
		errs = append(errs, check.DNSLabel(p.Name, path.Child("name"))...)
		if names.Again(p.Name) {
			errs = append(errs, field.Duplicate(path.Child("name"), p.Name))
		}
	case ports > 1:
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, check.Port(p.Port, path.Child("port"))...)
	errs = append(errs, check.Protocol(p.Protocol, path.Child("protocol"))...)
	if p.TargetPort.Type == intstr.String {
		for _, fault := range validation.IsValidPortName(p.TargetPort.StrVal) {
			errs = append(errs, field.Invalid(path.Child("targetPort"), p.TargetPort.StrVal, fault))
		}
	} else {
		errs = append(errs, check.Port(p.TargetPort.IntVal, path.Child("targetPort"))...)
	}
	if p.AppProtocol != nil {
		errs = append(errs, check.QualifiedName(*p.AppProtocol, path.Child("appProtocol"))...)
	}
	return errs
}

func validateAffinity(s *corev1.Service) field.ErrorList {
	affinity, c := s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig
	path := field.NewPath("spec", "sessionAffinityConfig")
	const missing = "when session affinity type is ClientIP"
	switch {
	case affinity == "":
		return field.ErrorList{field.Required(field.NewPath("spec", "sessionAffinity"), "")}
	case !slices.Contains(affinities, affinity):
		return field.ErrorList{field.NotSupported(field.NewPath("spec", "sessionAffinity"), affinity, affinities)}
	case affinity == corev1.ServiceAffinityNone && c != nil:
		return field.ErrorList{field.Forbidden(path, "must not be set when session affinity is None")}
	case affinity == corev1.ServiceAffinityNone:
		return nil
	case c == nil:
		return field.ErrorList{field.Required(path, missing)}
	case c.ClientIP == nil:
		return field.ErrorList{field.Required(path.Child("clientIP"), missing)}
	}
	path = path.Child("clientIP", "timeoutSeconds")
	switch seconds := c.ClientIP.TimeoutSeconds; {
	case seconds == nil:
		return field.ErrorList{field.Required(path, missing)}
	case *seconds <= 0 || *seconds > maxAffinitySeconds:
		return field.ErrorList{field.Invalid(path, *seconds, "must be greater than 0 and less than 86400")}
	}
	return nil
}

func validateExternalIPs(s, old *corev1.Service) (errs field.ErrorList) {
	var known check.Seen[string]
	if old != nil {
		known = check.SeenIn(old.Spec.ExternalIPs)
	}
	for i, ip := range s.Spec.ExternalIPs {
		path := field.NewPath("spec", "externalIPs").Index(i)
		faults := check.LegacyIP(ip, &known, path)
		if len(faults) == 0 {
			faults = check.EndpointIP(ip, path)
		}
		errs = append(errs, faults...)
	}
	return errs
}

// validateUniquePorts checks that ports and node ports are unique for each protocol, and that node
// ports are used only where the type has them.
func validateUniquePorts(s *corev1.Service) (errs field.ErrorList) {
	path, ports := field.NewPath("spec", "ports"), s.Spec.Ports
	if s.Spec.Type == corev1.ServiceTypeClusterIP {
		for i := range ports {
			if ports[i].NodePort != 0 {
				errs = append(errs, field.Forbidden(path.Index(i).Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
			}
		}
	}
	type place struct {
		protocol corev1.Protocol
		port     int32
	}
	var seenNodePorts, seenPorts check.Seen[place]
	for i := range ports {
		if n := ports[i].NodePort; n != 0 && seenNodePorts.Again(place{ports[i].Protocol, n}) {
			errs = append(errs, field.Duplicate(path.Index(i).Child("nodePort"), n))
		}
	}
	for i := range ports {
		if seenPorts.Again(place{ports[i].Protocol, ports[i].Port}) {
			errs = append(errs, field.Duplicate(path.Index(i), check.Bare(corev1.ServicePort{Protocol: ports[i].Protocol, Port: ports[i].Port})))
		}
	}
	return errs
}

func validateSourceRanges(s, old *corev1.Service) (errs field.ErrorList) {
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	if ranges := s.Spec.LoadBalancerSourceRanges; len(ranges) > 0 {
		path := field.NewPath("spec", "LoadBalancerSourceRanges")
		if !balanced {
			errs = append(errs, field.Forbidden(path, onlyBalanced))
		}
		var known check.Seen[string]
		if old != nil {
			for _, r := range old.Spec.LoadBalancerSourceRanges {
				known.Again(strings.TrimSpace(r))
			}
		}
		for i, r := range ranges {
			errs = append(errs, check.LegacyCIDR(strings.TrimSpace(r), &known, path.Index(i))...)
		}
		return errs
	}
	text, ok := s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	if !ok {
		return nil
	}
	path := field.NewPath("metadata", "annotations").Key(corev1.AnnotationLoadBalancerSourceRangesKey)
	if !balanced {
		errs = append(errs, field.Forbidden(path, onlyBalanced))
	}
	if text = strings.TrimSpace(text); text == "" || old != nil && old.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey] == s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey] {
		return errs
	}
	for r := range strings.SplitSeq(text, ",") {
		errs = append(errs, validation.IsValidCIDRForLegacyField(path, strings.TrimSpace(r), true, nil)...)
	}
	return errs
}

func validateLoadBalancerClass(s *corev1.Service) field.ErrorList {
	class, path := s.Spec.LoadBalancerClass, field.NewPath("spec", "loadBalancerClass")
	switch {
	case class == nil:
		return nil
	case s.Spec.Type != corev1.ServiceTypeLoadBalancer:
		return field.ErrorList{field.Forbidden(path, onlyBalanced)}
	}
	return check.QualifiedName(*class, path)
}

// validateTraffic checks the traffic policies.
func validateTraffic(s *corev1.Service) (errs field.ErrorList) {
	spec, path := &s.Spec, field.NewPath("spec")
	switch policy, at := spec.ExternalTrafficPolicy, path.Child("externalTrafficPolicy"); {
	case !externallyAccessible(s) && policy != "":
		errs = append(errs, field.Invalid(at, policy, "may only be set for externally-accessible services"))
	case !externallyAccessible(s):
	case policy == "":
		errs = append(errs, field.Required(at, ""))
	case !slices.Contains(externalPolicies, policy):
		errs = append(errs, field.NotSupported(at, policy, externalPolicies))
	}
	switch port, at := spec.HealthCheckNodePort, path.Child("healthCheckNodePort"); {
	case !NeedsHealthCheck(s) && port != 0:
		errs = append(errs, field.Invalid(at, port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	case !NeedsHealthCheck(s):
	case port == 0:
		errs = append(errs, field.Required(at, ""))
	default:
		errs = append(errs, check.Port(port, at)...)
	}
	switch policy, at := spec.InternalTrafficPolicy, path.Child("internalTrafficPolicy"); {
	case policy == nil && inCluster(s):
		errs = append(errs, field.Required(at, ""))
	case policy != nil && !slices.Contains(internalPolicies, *policy):
		errs = append(errs, field.NotSupported(at, *policy, internalPolicies))
	}
	if d := spec.TrafficDistribution; d != nil && !slices.Contains(distributions, *d) {
		errs = append(errs, field.NotSupported(path.Child("trafficDistribution"), *d, distributions))
	}
	return errs
}
