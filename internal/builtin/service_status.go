package builtin

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// setServiceStatus sets the subresource "status" of Services. IPMode has a default only if the sent
// spec has type LoadBalancer: a client that sends the status alone must set it.
func setServiceStatus(o, sent runtime.Object) error {
	s, next := o.(*corev1.Service), sent.(*corev1.Service)
	ingress := next.Status.LoadBalancer.Ingress
	if next.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for i := range ingress {
			if ingress[i].IP != "" && ingress[i].IPMode == nil {
				vip := corev1.LoadBalancerIPModeVIP
				ingress[i].IPMode = &vip
			}
		}
	}
	s.Status = next.Status
	takeMetadata(&s.ObjectMeta, &next.ObjectMeta)
	return nil
}

// validateServiceStatus checks the status of a Service. It accepts a stored address in a form that
// is rejected for new ones.
func validateServiceStatus(_ context.Context, o, old runtime.Object) field.ErrorList {
	var known check.Seen[string]
	for _, g := range old.(*corev1.Service).Status.LoadBalancer.Ingress {
		known.Again(g.IP)
	}
	return validateIngress(o.(*corev1.Service), &known, field.NewPath("status", "loadBalancer", "ingress"))
}

// validateIngress checks the ingress points of a load balancer.
func validateIngress(s *corev1.Service, known *check.Seen[string], path *field.Path) field.ErrorList {
	all := s.Status.LoadBalancer.Ingress
	if len(all) > 0 && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return field.ErrorList{field.Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")}
	}
	var errs field.ErrorList
	modes := []corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP}
	for i := range all {
		g, at := &all[i], path.Index(i)
		if g.IP != "" {
			errs = append(errs, check.LegacyIP(g.IP, known, at.Child("ip"))...)
		}
		switch {
		case g.IP != "" && g.IPMode == nil:
			errs = append(errs, field.Required(at.Child("ipMode"), "must be specified when `ip` is set"))
		case g.IP == "" && g.IPMode != nil:
			errs = append(errs, field.Forbidden(at.Child("ipMode"), "may not be specified when `ip` is not set"))
		case g.IPMode != nil && *g.IPMode != modes[0] && *g.IPMode != modes[1]:
			errs = append(errs, field.NotSupported(at.Child("ipMode"), *g.IPMode, modes))
		}
		if g.Hostname == "" {
			continue
		}
		for _, fault := range validation.IsDNS1123Subdomain(g.Hostname) {
			errs = append(errs, field.Invalid(at.Child("hostname"), g.Hostname, fault))
		}
		if _, err := netip.ParseAddr(g.Hostname); err == nil {
			errs = append(errs, field.Invalid(at.Child("hostname"), g.Hostname, "must be a DNS name, not an IP address"))
		}
	}
	return errs
}
