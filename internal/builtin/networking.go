package builtin

import (
	networkingv1 "k8s.io/api/networking/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidemark-dev/tidemark/internal/builtin/networking"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// networkingGroup is what stands between Services and the network.
func networkingGroup() resource.Group {
	return group("networking.k8s.io", version{"v1", []resource.Type{
		{
			Resource: "ingressclasses", Kind: "IngressClass", New: object[networkingv1.IngressClass],
			UnconditionalUpdate: true, Generation: true,
			Default:        defaults(networking.DefaultIngressClass),
			Validate:       validates(networking.ValidateIngressClass),
			ValidateUpdate: updates(networking.ValidateIngressClassUpdate),
		},
		{
			Resource: "ingresses", Kind: "Ingress", New: object[networkingv1.Ingress],
			Namespaced: true, ShortNames: []string{"ing"},
			UnconditionalUpdate: true, Generation: true,
			Subresources:   []resource.Subresource{statusWith(updates(networking.ValidateIngressStatus))},
			Validate:       validates(networking.ValidateIngress),
			ValidateUpdate: updates(networking.ValidateIngressUpdate),
			Warnings:       warns(networking.WarnOfIngress),
		},
		{
			Resource: "ipaddresses", Kind: "IPAddress", New: object[networkingv1.IPAddress],
			ShortNames:          []string{"ip"},
			UnconditionalUpdate: true,
			ValidateName:        ipAddress,
			Validate:            validates(networking.ValidateIPAddress),
			ValidateUpdate:      updates(networking.ValidateIPAddressUpdate),
		},
		{
			Resource: "networkpolicies", Kind: "NetworkPolicy", New: object[networkingv1.NetworkPolicy],
			MetadataOnce: true,
			Namespaced:   true, ShortNames: []string{"netpol"},
			UnconditionalUpdate: true, Generation: true,
			Default:        defaults(networking.DefaultNetworkPolicy),
			Validate:       validates(networking.ValidateNetworkPolicy),
			ValidateUpdate: updates(networking.ValidateNetworkPolicyUpdate),
			Warnings:       warns(networking.WarnOfNetworkPolicy),
		},
		{
			Resource: "servicecidrs", Kind: "ServiceCIDR", New: object[networkingv1.ServiceCIDR],
			MetadataOnce:        true,
			UnconditionalUpdate: true,
			Subresources:        []resource.Subresource{status},
			StatusKeeps:         allMetadata,
			Validate:            validates(networking.ValidateServiceCIDR),
			ValidateUpdate:      updates(networking.ValidateServiceCIDRUpdate),
		},
	}})
}

// ipAddress is for names that are an address in the form in which it is printed.
func ipAddress(name string, _ bool) []string {
	var wrong []string
	for _, err := range utilvalidation.IsValidIP(nil, name) {
		wrong = append(wrong, err.Detail)
	}
	return wrong
}
