//lint:file-ignore SA1019 Endpoints are deprecated, and served.

package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// DefaultEndpoints sets the default protocol of ports.
func DefaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			if p := &e.Subsets[i].Ports[j].Protocol; *p == "" {
				*p = corev1.ProtocolTCP
			}
		}
	}
}

// ValidateEndpoints checks addresses and ports.
func ValidateEndpoints(e *corev1.Endpoints) (errs field.ErrorList) {
	for i := range e.Subsets {
		s, path := &e.Subsets[i], field.NewPath("subsets").Index(i)
		if len(s.Addresses) == 0 && len(s.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(path, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j := range s.Addresses {
			errs = append(errs, validateEndpointAddress(&s.Addresses[j], path.Child("addresses").Index(j))...)
		}
		for j := range s.NotReadyAddresses {
			errs = append(errs, validateEndpointAddress(&s.NotReadyAddresses[j], path.Child("notReadyAddresses").Index(j))...)
		}
		for j := range s.Ports {
			errs = append(errs, validateEndpointPort(&s.Ports[j], len(s.Ports) > 1, path.Child("ports").Index(j))...)
		}
	}
	return errs
}

// ValidateEndpointsUpdate checks the new object. It accepts invalid subsets that are unchanged.
func ValidateEndpointsUpdate(e, old *corev1.Endpoints) field.ErrorList {
	errs := ValidateEndpoints(e)
	if len(errs) > 0 && equality.Semantic.DeepEqual(e.Subsets, old.Subsets) {
		return nil
	}
	return errs
}

// EndpointsWarnings warns about addresses that are not in canonical form.
func EndpointsWarnings(e, _ *corev1.Endpoints) (all []string) {
	if e.Labels["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" {
		return nil
	}
	path := field.NewPath("subsets")
	for i := range e.Subsets {
		for j, a := range e.Subsets[i].Addresses {
			all = append(all, check.IPWarnings(a.IP, path.Index(i).Child("addresses").Index(j).Child("ip"))...)
		}
		for j, a := range e.Subsets[i].NotReadyAddresses {
			all = append(all, check.IPWarnings(a.IP, path.Index(i).Child("notReadyAddresses").Index(j).Child("ip"))...)
		}
	}
	return all
}

func validateEndpointAddress(a *corev1.EndpointAddress, path *field.Path) field.ErrorList {
	errs := utilvalidation.IsValidIPForLegacyField(path.Child("ip"), a.IP, true, nil)
	if a.Hostname != "" {
		errs = append(errs, check.DNSLabel(a.Hostname, path.Child("hostname"))...)
	}
	if a.NodeName != nil {
		for _, fault := range validation.NameIsDNSSubdomain(*a.NodeName, false) {
			errs = append(errs, field.Invalid(path.Child("nodeName"), *a.NodeName, fault))
		}
	}
	return append(errs, check.EndpointIP(a.IP, path.Child("ip"))...)
}

func validateEndpointPort(p *corev1.EndpointPort, named bool, path *field.Path) (errs field.ErrorList) {
	switch {
	case named && p.Name == "":
		errs = append(errs, field.Required(path.Child("name"), ""))
	case p.Name != "":
		errs = append(errs, check.DNSLabel(p.Name, path.Child("name"))...)
	}
	errs = append(errs, check.Port(p.Port, path.Child("port"))...)
	errs = append(errs, check.Protocol(p.Protocol, path.Child("protocol"))...)
	if p.AppProtocol != nil {
		errs = append(errs, check.QualifiedName(*p.AppProtocol, path.Child("appProtocol"))...)
	}
	return errs
}
