package builtin

import (
	networkingv1 "k8s.io/api/networking/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidemark-dev/tidemark/internal/builtin/networking"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// networkingGroup has Ingresses, NetworkPolicies, and the addresses and CIDRs of Services.
func networkingGroup() resource.Group {
	return group("networking.k8s.io", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "ingressclasses", Kind: "IngressClass"},
			New:   object[networkingv1.IngressClass],
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Generation: counted,
				Default:        defaults(networking.DefaultIngressClass),
				Validate:       validates(networking.ValidateIngressClass),
				ValidateUpdate: updates(networking.ValidateIngressClassUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "ingresses", Kind: "Ingress", ShortNames: []string{"ing"}},
			New:   object[networkingv1.Ingress], Namespaced: true,
			Subresources: []resource.Subresource{statusWith(updates(networking.ValidateIngressStatus))},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Generation: counted,
				Validate:       validates(networking.ValidateIngress),
				ValidateUpdate: updates(networking.ValidateIngressUpdate),
				Warnings:       warns(networking.IngressWarnings),
			},
		},
		{
			Names: resource.Names{Resource: "ipaddresses", Kind: "IPAddress", ShortNames: []string{"ip"}},
			New:   object[networkingv1.IPAddress],
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: resource.MetadataRules{ValidateName: ipAddress},
				Validate:       validates(networking.ValidateIPAddress),
				ValidateUpdate: updates(networking.ValidateIPAddressUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "networkpolicies", Kind: "NetworkPolicy", ShortNames: []string{"netpol"}},
			New:   object[networkingv1.NetworkPolicy], Namespaced: true,
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: recheckUpdate, Generation: countedExactly,
				Default:        defaults(networking.DefaultNetworkPolicy),
				Validate:       validates(networking.ValidateNetworkPolicy),
				ValidateUpdate: updates(networking.ValidateNetworkPolicyUpdate),
				Warnings:       warns(networking.NetworkPolicyWarnings),
			},
		},
		{
			Names:        resource.Names{Resource: "servicecidrs", Kind: "ServiceCIDR"},
			New:          object[networkingv1.ServiceCIDR],
			Subresources: []resource.Subresource{status},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: recheckUpdate, Status: statusAlone,
				Validate:       validates(networking.ValidateServiceCIDR),
				ValidateUpdate: updates(networking.ValidateServiceCIDRUpdate),
			},
		},
	}})
}

// ipAddress validates names that are an IP address in canonical form.
func ipAddress(name string, _ bool) []string {
	var wrong []string
	for _, err := range utilvalidation.IsValidIP(nil, name) {
		wrong = append(wrong, err.Detail)
	}
	return wrong
}
