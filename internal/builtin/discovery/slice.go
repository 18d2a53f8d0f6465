// Package discovery has the rules of EndpointSlices.
package discovery

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// The maximum numbers in a slice, and in an endpoint.
const (
	maxEndpoints = 1000
	maxPorts     = 20000
	maxAddresses = 100
	maxHints     = 8
)

// DefaultSlice sets the default name and protocol of ports.
func DefaultSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		if p := &s.Ports[i]; p.Name == nil {
			p.Name = new(string)
		}
		if p := &s.Ports[i]; p.Protocol == nil {
			tcp := corev1.ProtocolTCP
			p.Protocol = &tcp
		}
	}
}

// PrepareSlice drops the topology of endpoints, which is read-only in v1.
func PrepareSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Endpoints {
		s.Endpoints[i].DeprecatedTopology = nil
	}
}

// PrepareSliceUpdate drops the topology of endpoints if they change. A node that the topology of the stored endpoints
// names becomes the node name.
func PrepareSliceUpdate(next, current *discoveryv1.EndpointSlice) bool {
	has := func(e discoveryv1.Endpoint) bool { return e.DeprecatedTopology != nil }
	if !slices.ContainsFunc(next.Endpoints, has) || equality.Semantic.DeepEqual(next.Endpoints, current.Endpoints) {
		return false
	}
	next.Endpoints = slices.Clone(next.Endpoints)
	known := map[string]bool{}
	for i := range current.Endpoints {
		known[current.Endpoints[i].DeprecatedTopology[corev1.LabelHostname]] = true
	}
	for i := range next.Endpoints {
		e := &next.Endpoints[i]
		if node, ok := e.DeprecatedTopology[corev1.LabelHostname]; ok && e.NodeName == nil && known[node] && len(check.DNSSubdomain(node, nil)) == 0 {
			e.NodeName = &node
		}
	}
	PrepareSlice(next)
	return true
}

// ValidateSlice checks addresses and ports.
func ValidateSlice(s *discoveryv1.EndpointSlice) field.ErrorList {
	return append(validateHead(s), validateEndpoints(s)...)
}

// ValidateSliceUpdate checks the new object, and that the address type does not change. It accepts
// invalid endpoints that are unchanged.
func ValidateSliceUpdate(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	errs := validateHead(s)
	if faults := validateEndpoints(s); len(faults) > 0 && !equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		errs = append(errs, faults...)
	}
	return append(errs, validation.ValidateImmutableField(s.AddressType, old.AddressType, field.NewPath("addressType"))...)
}

func validateHead(s *discoveryv1.EndpointSlice) (errs field.ErrorList) {
	at := field.NewPath("addressType")
	if s.AddressType == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, check.OneOf(s.AddressType, []discoveryv1.AddressType{discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}, at)...)
	}
	path := field.NewPath("ports")
	if len(s.Ports) > maxPorts {
		return append(errs, field.TooMany(path, len(s.Ports), maxPorts))
	}
	var names check.Seen[portName]
	for i, p := range s.Ports {
		at, name := path.Index(i), ""
		if p.Name != nil {
			name = *p.Name
		}
		if name != "" {
			errs = append(errs, check.DNSLabel(name, at.Child("name"))...)
		}
		if names.Again(portName{p.Name != nil, name}) {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
		if p.Protocol == nil {
			errs = append(errs, field.Required(at.Child("protocol"), ""))
		} else {
			errs = append(errs, check.OneOf(*p.Protocol, check.Protocols, at.Child("protocol"))...)
		}
		if p.AppProtocol != nil {
			errs = append(errs, check.QualifiedName(*p.AppProtocol, at.Child("appProtocol"))...)
		}
	}
	return errs
}

// portName is the name of a port, which may be absent.
type portName struct {
	isSet bool
	name  string
}

func validateEndpoints(s *discoveryv1.EndpointSlice) (errs field.ErrorList) {
	path := field.NewPath("endpoints")
	if len(s.Endpoints) > maxEndpoints {
		return field.ErrorList{field.TooMany(path, len(s.Endpoints), maxEndpoints)}
	}
	for i := range s.Endpoints {
		e, at := &s.Endpoints[i], path.Index(i)
		addresses := at.Child("addresses")
		switch n := len(e.Addresses); {
		case n == 0:
			errs = append(errs, field.Required(addresses, "must contain at least 1 address"))
		case n > maxAddresses:
			errs = append(errs, field.TooMany(addresses, n, maxAddresses))
		}
		for j, a := range e.Addresses {
			errs = append(errs, validateAddress(s.AddressType, a, addresses, j)...)
		}
		if e.NodeName != nil {
			errs = append(errs, check.DNSSubdomain(*e.NodeName, at.Child("nodeName"))...)
		}
		if e.Hostname != nil {
			errs = append(errs, check.DNSLabel(*e.Hostname, at.Child("hostname"))...)
		}
		if e.Hints != nil {
			errs = append(errs, validateHints(e.Hints, at.Child("hints"))...)
		}
	}
	return errs
}

// validateAddress checks the address at an index of a list.
func validateAddress(kind discoveryv1.AddressType, text string, list *field.Path, place int) (errs field.ErrorList) {
	at := list.Index(place)
	switch kind {
	case discoveryv1.AddressTypeFQDN:
		return utilvalidation.IsFullyQualifiedDomainName(at, text)
	case discoveryv1.AddressTypeIPv4:
		errs = utilvalidation.IsValidIPForLegacyField(at, text, true, nil)
	case discoveryv1.AddressTypeIPv6:
		errs = utilvalidation.IsValidIP(at, text)
	default:
		return nil
	}
	if len(errs) > 0 {
		return errs
	}
	if ip, err := netip.ParseAddr(text); err == nil && ip.Unmap().Is4() != (kind == discoveryv1.AddressTypeIPv4) {
		errs = append(errs, field.Invalid(list, text, "must be an "+string(kind)+" address"))
	}
	return append(errs, check.EndpointIP(text, at)...)
}

func validateHints(h *discoveryv1.EndpointHints, path *field.Path) (errs field.ErrorList) {
	zones := path.Child("forZones")
	if len(h.ForZones) > maxHints {
		return field.ErrorList{field.TooMany(zones, len(h.ForZones), maxHints)}
	}
	var seenZones check.Seen[discoveryv1.ForZone]
	for i, z := range h.ForZones {
		at := zones.Index(i).Child("name")
		if seenZones.Again(z) {
			errs = append(errs, field.Duplicate(at, z.Name))
		}
		for _, fault := range utilvalidation.IsValidLabelValue(z.Name) {
			errs = append(errs, field.Invalid(at, z.Name, fault))
		}
	}
	nodes := path.Child("forNodes")
	if len(h.ForNodes) > maxHints {
		return append(errs, field.TooMany(nodes, len(h.ForNodes), maxHints))
	}
	var seenNodes check.Seen[discoveryv1.ForNode]
	for i, n := range h.ForNodes {
		at := nodes.Index(i).Child("name")
		if seenNodes.Again(n) {
			errs = append(errs, field.Duplicate(at, n.Name))
		}
		errs = append(errs, check.DNSSubdomain(n.Name, at)...)
	}
	return errs
}

// SliceWarnings warns about a deprecated address type, and about addresses that are not in
// canonical form.
func SliceWarnings(s, old *discoveryv1.EndpointSlice) (all []string) {
	if old == nil && s.AddressType == discoveryv1.AddressTypeFQDN {
		all = append(all, "spec.addressType: FQDN endpoints are deprecated")
	}
	switch s.Labels[discoveryv1.LabelManagedBy] {
	case "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io":
		return all // these controllers write valid addresses
	}
	for i, e := range s.Endpoints {
		for j, a := range e.Addresses {
			all = append(all, check.IPWarnings(a, field.NewPath("endpoints").Index(i).Child("addresses").Index(j))...)
		}
	}
	return all
}
