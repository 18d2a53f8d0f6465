// Package networking has the rules of Ingresses, NetworkPolicies, and the addresses and CIDRs of
// Services.
package networking

import (
	"fmt"
	"net/netip"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// classAnnotation is the deprecated annotation with the class of an Ingress.
const classAnnotation = "kubernetes.io/ingress.class"

// ValidateIngress checks a new Ingress.
func ValidateIngress(i *networkingv1.Ingress) field.ErrorList {
	errs := (&ingressRules{}).validate(i)
	if class, ok := i.Annotations[classAnnotation]; ok && i.Spec.IngressClassName != nil && class != *i.Spec.IngressClassName {
		errs = append(errs, field.Invalid(field.NewPath("annotations", classAnnotation), class, "must match `ingressClassName` when both are specified"))
	}
	return errs
}

// ValidateIngressUpdate checks the new object. It accepts invalid names of Secrets, and invalid
// HTTP rules of wildcard hosts, if the old object has some.
func ValidateIngressUpdate(i, old *networkingv1.Ingress) field.ErrorList {
	var r ingressRules
	for _, t := range old.Spec.TLS {
		r.anySecret = r.anySecret || len(secretName(t.SecretName)) > 0
	}
	for _, rule := range old.Spec.Rules {
		r.anyWildcard = r.anyWildcard || strings.Contains(rule.Host, "*") && len(validateHTTP(rule.HTTP, nil)) > 0
	}
	return r.validate(i)
}

// ValidateIngressStatus checks the ingress points of the load balancer.
func ValidateIngressStatus(i, old *networkingv1.Ingress) (errs field.ErrorList) {
	var known check.Seen[string]
	for _, g := range old.Status.LoadBalancer.Ingress {
		if g.IP != "" {
			known.Again(g.IP)
		}
	}
	for n, g := range i.Status.LoadBalancer.Ingress {
		path := field.NewPath("status", "loadBalancer", "ingress").Index(n)
		if g.IP != "" {
			errs = append(errs, check.LegacyIP(g.IP, &known, path.Child("ip"))...)
		}
		if g.Hostname == "" {
			continue
		}
		errs = append(errs, check.DNSSubdomain(g.Hostname, path.Child("hostname"))...)
		errs = append(errs, notIP(g.Hostname, path.Child("hostname"))...)
	}
	return errs
}

// IngressWarnings warns about a new Ingress whose class is in the deprecated annotation.
func IngressWarnings(i, old *networkingv1.Ingress) []string {
	if _, ok := i.Annotations[classAnnotation]; ok && old == nil && i.Spec.IngressClassName == nil {
		return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", classAnnotation)}
	}
	return nil
}

// ingressRules are the rules that an update may relax.
type ingressRules struct{ anySecret, anyWildcard bool }

func (r *ingressRules) validate(i *networkingv1.Ingress) (errs field.ErrorList) {
	spec, path := &i.Spec, field.NewPath("spec")
	if len(spec.Rules) == 0 && spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(path, spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if spec.DefaultBackend != nil {
		errs = append(errs, validateBackend(spec.DefaultBackend, path.Child("defaultBackend"))...)
	}
	for n := range spec.Rules {
		errs = append(errs, r.validateRule(&spec.Rules[n], path.Child("rules").Index(n))...)
	}
	for n, t := range spec.TLS {
		at := path.Child("tls").Index(n)
		for m, host := range t.Hosts {
			errs = append(errs, validateHost(host, at.Child("hosts").Index(m))...)
		}
		if r.anySecret {
			continue
		}
		for _, fault := range secretName(t.SecretName) {
			errs = append(errs, field.Invalid(at.Child("secretName"), t.SecretName, fault))
		}
	}
	if spec.IngressClassName != nil {
		errs = append(errs, check.DNSSubdomain(*spec.IngressClassName, path.Child("ingressClassName"))...)
	}
	return errs
}

func secretName(name string) []string {
	if name == "" {
		return nil
	}
	return validation.NameIsDNSSubdomain(name, false)
}

func validateHost(host string, path *field.Path) (errs field.ErrorList) {
	if !strings.Contains(host, "*") {
		return check.DNSSubdomain(host, path)
	}
	for _, fault := range utilvalidation.IsWildcardDNS1123Subdomain(host) {
		errs = append(errs, field.Invalid(path, host, fault))
	}
	return errs
}

func notIP(host string, path *field.Path) field.ErrorList {
	if _, err := netip.ParseAddr(host); err != nil {
		return nil
	}
	return field.ErrorList{field.Invalid(path, host, "must be a DNS name, not an IP address")}
}

func (r *ingressRules) validateRule(rule *networkingv1.IngressRule, path *field.Path) (errs field.ErrorList) {
	if rule.Host != "" {
		errs = append(errs, notIP(rule.Host, path.Child("host"))...)
		errs = append(errs, validateHost(rule.Host, path.Child("host"))...)
	}
	if r.anyWildcard && strings.Contains(rule.Host, "*") {
		return errs
	}
	return append(errs, validateHTTP(rule.HTTP, path)...)
}

func validateHTTP(v *networkingv1.HTTPIngressRuleValue, path *field.Path) (errs field.ErrorList) {
	if v == nil {
		return nil
	}
	path = path.Child("http", "paths")
	if len(v.Paths) == 0 {
		errs = append(errs, field.Required(path, ""))
	}
	for i := range v.Paths {
		errs = append(errs, validatePath(&v.Paths[i], path.Index(i))...)
	}
	return errs
}

var pathTypes = []networkingv1.PathType{networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix}

func validatePath(p *networkingv1.HTTPIngressPath, path *field.Path) (errs field.ErrorList) {
	if p.PathType == nil {
		return field.ErrorList{field.Required(path.Child("pathType"), "pathType must be specified")}
	}
	wrong := func(detail string) { errs = append(errs, field.Invalid(path.Child("path"), p.Path, detail)) }
	absolute := strings.HasPrefix(p.Path, "/")
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		if !absolute {
			wrong("must be an absolute path")
		}
		for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			if strings.Contains(p.Path, part) {
				wrong("must not contain '" + part + "'")
			}
		}
		for _, end := range []string{"/..", "/."} {
			if strings.HasSuffix(p.Path, end) {
				wrong("cannot end with '" + end + "'")
			}
		}
	case networkingv1.PathTypeImplementationSpecific:
		if p.Path != "" && !absolute {
			wrong("must be an absolute path")
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("pathType"), *p.PathType, pathTypes))
	}
	return append(errs, validateBackend(&p.Backend, path.Child("backend"))...)
}

func validateBackend(b *networkingv1.IngressBackend, path *field.Path) (errs field.ErrorList) {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(path, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return validateReference(b.Resource.APIGroup, b.Resource.Kind, b.Resource.Name, path.Child("resource"))
	case b.Service == nil:
		return field.ErrorList{field.Invalid(path, "", "resource or service backend is required")}
	}
	s, at := b.Service, path.Child("service")
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		errs = append(errs, check.DNSLabel(s.Name, at.Child("name"))...)
	}
	switch {
	case s.Port.Name != "" && s.Port.Number != 0:
		errs = append(errs, field.Invalid(path, "", "cannot set both port name & port number"))
	case s.Port.Name != "":
		errs = append(errs, check.PortName(s.Port.Name, at.Child("port", "name"))...)
	case s.Port.Number != 0:
		errs = append(errs, check.Port(s.Port.Number, at.Child("port", "number"))...)
	default:
		errs = append(errs, field.Required(path, "port name or number is required"))
	}
	return errs
}

func validateReference(group *string, kind, name string, path *field.Path) (errs field.ErrorList) {
	if group != nil {
		errs = append(errs, check.DNSSubdomain(*group, path.Child("apiGroup"))...)
	}
	errs = append(errs, check.RequiredSegment(kind, path.Child("kind"))...)
	return append(errs, check.RequiredSegment(name, path.Child("name"))...)
}
