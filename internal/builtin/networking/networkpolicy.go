package networking

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// DefaultNetworkPolicy sets the default policy types, and the default protocol of ports.
func DefaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	spec := &p.Spec
	for i := range spec.Ingress {
		defaultPorts(spec.Ingress[i].Ports)
	}
	for i := range spec.Egress {
		defaultPorts(spec.Egress[i].Ports)
	}
	if len(spec.PolicyTypes) > 0 {
		return
	}
	spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if len(spec.Egress) > 0 {
		spec.PolicyTypes = append(spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
}

func defaultPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		if ports[i].Protocol == nil {
			tcp := corev1.ProtocolTCP
			ports[i].Protocol = &tcp
		}
	}
}

// ValidateNetworkPolicy checks the Pod selector and the rules of a policy.
func ValidateNetworkPolicy(p *networkingv1.NetworkPolicy) field.ErrorList {
	return validatePolicy(p, nil)
}

// ValidateNetworkPolicyUpdate checks the new object. It accepts CIDRs of the old object that are
// rejected for new ones.
func ValidateNetworkPolicyUpdate(p, old *networkingv1.NetworkPolicy) field.ErrorList {
	return validatePolicy(p, old)
}

// peersOf calls f with the rules of a policy.
func peersOf(p *networkingv1.NetworkPolicy, f func(ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, path *field.Path, to string)) {
	path := field.NewPath("spec")
	for i, r := range p.Spec.Ingress {
		f(r.Ports, r.From, path.Child("ingress").Index(i), "from")
	}
	for i, r := range p.Spec.Egress {
		f(r.Ports, r.To, path.Child("egress").Index(i), "to")
	}
}

func validatePolicy(p, old *networkingv1.NetworkPolicy) field.ErrorList {
	rules := peerRules{}
	path, selector := field.NewPath("spec"), p.Spec.PodSelector
	errs := check.Selector(&selector, nil, path.Child("podSelector"))
	if old != nil {
		errs = check.Selector(&selector, &old.Spec.PodSelector, path.Child("podSelector"))
		peersOf(old, func(_ []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, _ *field.Path, _ string) {
			for i := range peers {
				if b := peers[i].IPBlock; b != nil {
					rules.known.Again(b.CIDR)
					for _, except := range b.Except {
						rules.known.Again(except)
					}
				}
			}
		})
	}
	peersOf(p, func(ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, path *field.Path, to string) {
		for i := range ports {
			errs = append(errs, validatePolicyPort(&ports[i], path.Child("ports").Index(i))...)
		}
		for i := range peers {
			errs = append(errs, rules.validate(&peers[i], path.Child(to).Index(i))...)
		}
	})
	types := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	if len(p.Spec.PolicyTypes) > len(types) {
		return append(errs, field.Invalid(path.Child("policyTypes"), &p.Spec.PolicyTypes, "may not specify more than two policyTypes"))
	}
	for i, t := range p.Spec.PolicyTypes {
		errs = append(errs, check.OneOf(t, types, path.Child("policyTypes").Index(i))...)
	}
	return errs
}

func validatePolicyPort(p *networkingv1.NetworkPolicyPort, path *field.Path) (errs field.ErrorList) {
	if p.Protocol != nil {
		errs = append(errs, check.OneOf(*p.Protocol, []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, path.Child("protocol"))...)
	}
	end := path.Child("endPort")
	switch {
	case p.Port == nil:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified"))
		}
	case p.Port.Type == intstr.String:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric"))
		}
		errs = append(errs, check.PortName(p.Port.StrVal, path.Child("port"))...)
	default:
		errs = append(errs, check.Port(p.Port.IntVal, path.Child("port"))...)
		if p.EndPort == nil {
			break
		}
		if *p.EndPort < p.Port.IntVal {
			errs = append(errs, field.Invalid(end, *p.EndPort, "must be greater than or equal to `port`"))
		}
		errs = append(errs, check.Port(*p.EndPort, end)...)
	}
	return errs
}

// peerRules checks peers.
type peerRules struct{ known check.Seen[string] } // CIDRs of the old object

func (r *peerRules) validate(p *networkingv1.NetworkPolicyPeer, path *field.Path) field.ErrorList {
	errs := check.Selector(p.PodSelector, nil, path.Child("podSelector"))
	errs = append(errs, check.Selector(p.NamespaceSelector, nil, path.Child("namespaceSelector"))...)
	if p.IPBlock != nil {
		errs = append(errs, r.validateBlock(p.IPBlock, path.Child("ipBlock"))...)
	}
	selects := p.PodSelector != nil || p.NamespaceSelector != nil
	switch {
	case !selects && p.IPBlock == nil:
		errs = append(errs, field.Required(path, "must specify a peer"))
	case selects && p.IPBlock != nil:
		errs = append(errs, field.Forbidden(path, "may not specify both ipBlock and another peer"))
	}
	return errs
}

func (r *peerRules) validateBlock(b *networkingv1.IPBlock, path *field.Path) field.ErrorList {
	if b.CIDR == "" {
		return field.ErrorList{field.Required(path.Child("cidr"), "")}
	}
	errs := check.LegacyCIDR(b.CIDR, &r.known, path.Child("cidr"))
	all, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		return errs
	}
	for i, text := range b.Except {
		at := path.Child("except").Index(i)
		errs = append(errs, check.LegacyCIDR(text, &r.known, at)...)
		part, err := netip.ParsePrefix(text)
		if err == nil && (!all.Contains(part.Masked().Addr()) || all.Bits() >= part.Bits()) {
			errs = append(errs, field.Invalid(at, text, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}

// NetworkPolicyWarnings warns about CIDRs that are not in canonical form.
func NetworkPolicyWarnings(p, _ *networkingv1.NetworkPolicy) (all []string) {
	peersOf(p, func(_ []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, path *field.Path, to string) {
		for i := range peers {
			b, at := peers[i].IPBlock, path.Child(to).Index(i).Child("ipBlock")
			if b == nil {
				continue
			}
			all = append(all, check.CIDRWarnings(b.CIDR, at.Child("cidr"))...)
			for j, text := range b.Except {
				all = append(all, check.CIDRWarnings(text, at.Child("except").Index(j))...)
			}
		}
	})
	return all
}
