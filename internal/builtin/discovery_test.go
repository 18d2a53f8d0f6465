package builtin_test

import (
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/discovery"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestEndpointSlice(t *testing.T) {
	const slice = "{metadata: {name: s}, addressType: IPv4, endpoints: [{addresses: [10.0.0.1]}], ports: [{port: 80}]}"
	testkinds.Rules(t, slice, []testkinds.Rule{
		{"valid", "endpoints[0]: {addresses: [10.0.0.1], hostname: a, nodeName: b, hints: {forZones: [{name: c}], forNodes: [{name: d}]}}", ""},
		{"addressType is required", "addressType: ''", "addressType: Required value"},
		{"addressType is known", "addressType: IPv5", `addressType: Unsupported value: "IPv5": supported values: "FQDN", "IPv4", "IPv6"`},
		{"a port has a name", "ports[0].name: A", `ports[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"names of ports are unique", "ports[1]: {port: 81}", `ports[1].name: Duplicate value: ""`},
		{"a protocol is known", "ports[0].protocol: tcp", `ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"`},
		{"appProtocol is a name", "ports[0].appProtocol: a b", `ports[0].appProtocol: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"an address is required", "endpoints[0].addresses: []", "endpoints[0].addresses: Required value: must contain at least 1 address"},
		{"100 addresses", "endpoints[0].addresses: [" + strings.Repeat("10.0.0.1,", 101) + "]", "endpoints[0].addresses: Too many: 101: must have at most 100 items"},
		{"1000 endpoints", "endpoints: [" + strings.Repeat("{addresses: [10.0.0.1]},", 1001) + "]", "endpoints: Too many: 1001: must have at most 1000 items"},
		{"20000 ports", "ports: [" + strings.Repeat("{},", 20001) + "]", "ports: Too many: 20001: must have at most 20000 items"},
		{"an address is one", "endpoints[0].addresses: [a]", `endpoints[0].addresses[0]: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
		{"an address is of its family", "endpoints[0].addresses: [\"2001:db8::1\"]", `endpoints[0].addresses: Invalid value: "2001:db8::1": must be an IPv4 address`},
		{"an IPv6 address is of its family", "addressType: IPv6", `endpoints[0].addresses: Invalid value: "10.0.0.1": must be an IPv6 address`},
		{"an address is reached from elsewhere", "endpoints[0].addresses: [127.0.0.1]", `endpoints[0].addresses[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`},
		{"a name is one", "addressType: FQDN\nendpoints[0].addresses: [a_b]", `endpoints[0].addresses[0]: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of...`},
		{"a node is a name", "endpoints[0].nodeName: A", `endpoints[0].nodeName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"a hostname is a label", "endpoints[0].hostname: A", `endpoints[0].hostname: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"a zone is that of a label", "endpoints[0].hints: {forZones: [{name: a b}]}", `endpoints[0].hints.forZones[0].name: Invalid value: "a b": a valid label must be an empty...`},
		{"zones are unique", "endpoints[0].hints: {forZones: [{name: a}, {name: a}]}", `endpoints[0].hints.forZones[1].name: Duplicate value: "a"`},
		{"8 zones", "endpoints[0].hints: {forZones: [" + strings.Repeat("{name: a},", 9) + "]}", "endpoints[0].hints.forZones: Too many: 9: must have at most 8 items"},
		{"nodes of hints are names", "endpoints[0].hints: {forNodes: [{name: A}]}", `endpoints[0].hints.forNodes[0].name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"nodes of hints are unique", "endpoints[0].hints: {forNodes: [{name: a}, {name: a}]}", `endpoints[0].hints.forNodes[1].name: Duplicate value: "a"`},
		{"8 nodes", "endpoints[0].hints: {forNodes: [" + strings.Repeat("{name: a},", 9) + "]}", "endpoints[0].hints.forNodes: Too many: 9: must have at most 8 items"},
	}, func(s *discoveryv1.EndpointSlice) []string {
		discovery.DefaultSlice(s)
		return testkinds.Texts(discovery.ValidateSlice(s))
	})
	testkinds.Updates(t, slice, []testkinds.Update{
		{"addressType stays", "", "addressType: IPv6\nendpoints: []", `addressType: Invalid value: "IPv6": field is immutable`},
		{"wrong endpoints stay", "endpoints: [{addresses: []}]", "metadata.labels: {a: b}", ""},
		{"changed endpoints are checked", "endpoints: [{addresses: []}]", "endpoints[1]: {addresses: []}", "endpoints[0].addresses: Required value: must contain at least 1 address\nendpoints[1].addresses: Required value: must contain at least 1 address"},
	}, func(s, old *discoveryv1.EndpointSlice) []string {
		discovery.DefaultSlice(s)
		discovery.DefaultSlice(old)
		return testkinds.Texts(discovery.ValidateSliceUpdate(s, old))
	})
	testkinds.Rules(t, slice, []testkinds.Rule{
		{"default: ports", "", "ports[0].name: \"\"\nports[0].protocol: TCP"},
	}, func(s *discoveryv1.EndpointSlice) []string { return testkinds.Changes(s, discovery.DefaultSlice) })
	testkinds.Rules(t, slice, []testkinds.Rule{
		{"prepare: topology", "endpoints[0].deprecatedTopology: {a: b}", "endpoints[0].deprecatedTopology.a: removed"},
	}, func(s *discoveryv1.EndpointSlice) []string { return testkinds.Changes(s, discovery.PrepareSlice) })
	testkinds.Updates(t, slice, []testkinds.Update{
		{"the topology of endpoints that stay", "endpoints[0].deprecatedTopology: {kubernetes.io/hostname: m}", "metadata.labels: {a: b}", ""},
		{"that of endpoints that change", "endpoints[0].deprecatedTopology: {kubernetes.io/hostname: m}", "endpoints[0].hostname: h",
			"endpoints[0].deprecatedTopology[kubernetes.io/hostname]: removed\nendpoints[0].nodeName: m"},
		{"that of a client", "", "endpoints[0].deprecatedTopology: {kubernetes.io/hostname: m}", "endpoints[0].deprecatedTopology[kubernetes.io/hostname]: removed"},
	}, func(s, old *discoveryv1.EndpointSlice) []string {
		return testkinds.Changes(s, func(s *discoveryv1.EndpointSlice) { discovery.PrepareSliceUpdate(s, old) })
	})
	testkinds.Rules(t, slice, []testkinds.Rule{
		{"warn: names", "addressType: FQDN", "spec.addressType: FQDN endpoints are deprecated"},
		{"warn: unusual addresses", "endpoints[0].addresses: [010.0.0.1]", `endpoints[0].addresses[0]: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1"`},
		{"warn: not those of the controller", "endpoints[0].addresses: [010.0.0.1]\nmetadata.labels: {endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}", ""},
	}, func(s *discoveryv1.EndpointSlice) []string { return discovery.SliceWarnings(s, nil) })
}
