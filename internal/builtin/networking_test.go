package builtin_test

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/networking"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestIngress(t *testing.T) {
	const (
		ingress = "{metadata: {name: i}, spec: {rules: [{host: a.b, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}}]}}"
		path    = "rules[0].http.paths[0]"
	)
	testkinds.Rules(t, ingress, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "ingressClassName: a\ntls: [{hosts: [\"*.a.b\"], secretName: s}]", ""},
		{"a class has one name", "ingressClassName: a\nmetadata.annotations: {kubernetes.io/ingress.class: b}", "annotations.kubernetes.io/ingress.class: Invalid value: \"b\": must match `ingressClassName` when both are specified"},
		{"a backend or rules", "rules: []", ": Invalid value: []: either `defaultBackend` or `rules` must be specified"},
		{"a backend is a service or a resource", "defaultBackend: {}", `defaultBackend: Invalid value: "": resource or service backend is required`},
		{"a backend is not both", "defaultBackend: {service: {name: s}, resource: {kind: A, name: a}}", `defaultBackend: Invalid value: "": cannot set both resource and service backends`},
		{"a backend has a valid resource", "defaultBackend: {resource: {apiGroup: A, kind: a/b}}", "defaultBackend.resource.apiGroup: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of...\ndefaultBackend.resource.kind: Invalid value: \"a/b\": may not contain '/'\ndefaultBackend.resource.name: Required value"},
		{"a service has a name", "defaultBackend: {service: {port: {number: 80}}}", "defaultBackend.service.name: Required value"},
		{"a service has a valid name", "defaultBackend: {service: {name: A, port: {number: 80}}}", `defaultBackend.service.name: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"a port is required", "defaultBackend: {service: {name: s}}", "defaultBackend: Required value: port name or number is required"},
		{"a port has a name or a number", "defaultBackend: {service: {name: s, port: {name: a, number: 80}}}", `defaultBackend: Invalid value: "": cannot set both port name & port number`},
		{"a port has a valid name", "defaultBackend: {service: {name: s, port: {name: A}}}", "defaultBackend.service.port.name: Invalid value: \"A\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)\ndefaultBackend.service.port.name: Invalid value: \"A\": must contain at least one letter (a-z)"},
		{"a port is in range", "defaultBackend: {service: {name: s, port: {number: 65536}}}", "defaultBackend.service.port.number: Invalid value: 65536: must be between 1 and 65535, inclusive"},
		{"a host is no address", "rules[0].host: 10.0.0.1", `rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address`},
		{"a host is a name", "rules[0].host: A", `rules[0].host: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"a host has one star", "rules[0].host: a.*", `rules[0].host: Invalid value: "a.*": a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of...`},
		{"a path is required", "rules[0].http.paths: []", "rules[0].http.paths: Required value"},
		{"a type is required", path + ".pathType: null", "rules[0].http.paths[0].pathType: Required value: pathType must be specified"},
		{"a type is known", path + ".pathType: Any", `rules[0].http.paths[0].pathType: Unsupported value: "Any": supported values: "Exact", "ImplementationSpecific", "Prefix"`},
		{"a path is absolute", path + ".path: a", `rules[0].http.paths[0].path: Invalid value: "a": must be an absolute path`},
		{"a path of an implementation is absolute", path + ".pathType: ImplementationSpecific\n" + path + ".path: a", `rules[0].http.paths[0].path: Invalid value: "a": must be an absolute path`},
		{"a path is clean", path + ".path: /a//b/./c/../d%2fe%2F", "rules[0].http.paths[0].path: Invalid value: \"/a//b/./c/../d%2fe%2F\": must not contain '//'\nrules[0].http.paths[0].path: Invalid value: \"/a//b/./c/../d%2fe%2F\": must not contain '/./'\nrules[0].http.paths[0].path: Invalid value: \"/a//b/./c/../d%2fe%2F\": must not contain '/../'\nrules[0].http.paths[0].path: Invalid value: \"/a//b/./c/../d%2fe%2F\": must not contain '%2f'\nrules[0].http.paths[0].path: Invalid value: \"/a//b/./c/../d%2fe%2F\": must not contain '%2F'"},
		{"a path ends clean", path + ".path: /a/..", `rules[0].http.paths[0].path: Invalid value: "/a/..": cannot end with '/..'`},
		{"a backend of a path is checked", path + ".backend: {}", `rules[0].http.paths[0].backend: Invalid value: "": resource or service backend is required`},
		{"a host of TLS is a name", "tls: [{hosts: [A]}]", `tls[0].hosts[0]: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"a secret of TLS is a name", "tls: [{secretName: A}]", `tls[0].secretName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"ingressClassName is a name", "ingressClassName: A", `ingressClassName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
	}), func(i *networkingv1.Ingress) []string { return testkinds.Texts(networking.ValidateIngress(i)) })
	testkinds.Updates(t, ingress, []testkinds.Update{
		{"a wrong secret stays", "spec.tls: [{secretName: A}]", "spec.tls: [{secretName: B}]", ""},
		{"wrong paths of a star stay", "spec.rules[0].host: '*.a'\nspec.rules[0].http.paths: []", "metadata.labels: {a: b}", ""},
		{"a wrong secret does not come", "", "spec.tls: [{secretName: A}]", `spec.tls[0].secretName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
	}, func(i, old *networkingv1.Ingress) []string {
		return testkinds.Texts(networking.ValidateIngressUpdate(i, old))
	})
	testkinds.Updates(t, ingress, []testkinds.Update{
		{"status: an address is one", "", "status: {loadBalancer: {ingress: [{ip: a}]}}", `status.loadBalancer.ingress[0].ip: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
		{"status: a wrong address stays", "status: {loadBalancer: {ingress: [{ip: 010.0.0.1}]}}", "metadata.labels: {a: b}", ""},
		{"status: a host is a name", "", "status: {loadBalancer: {ingress: [{hostname: A}, {hostname: 10.0.0.1}]}}", "status.loadBalancer.ingress[0].hostname: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of...\nstatus.loadBalancer.ingress[1].hostname: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address"},
	}, func(i, old *networkingv1.Ingress) []string {
		return testkinds.Texts(networking.ValidateIngressStatus(i, old))
	})
	testkinds.Rules(t, ingress, []testkinds.Rule{
		{"warn: the annotation", "metadata.annotations: {kubernetes.io/ingress.class: b}", `annotation "kubernetes.io/ingress.class" is deprecated, please use 'spec.ingressClassName' instead`},
	}, func(i *networkingv1.Ingress) []string { return networking.IngressWarnings(i, nil) })
}

func TestIngressClass(t *testing.T) {
	const class = "{metadata: {name: c}, spec: {controller: a.b/c}}"
	testkinds.Rules(t, class, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "parameters: {kind: A, name: a}", ""},
		{"a controller has a domain", "controller: a", `controller: Invalid value: "a": must be a domain-prefixed path (such as "acme.io/foo")`},
		{"a controller has 250 bytes", "controller: \"a.b/{c*250}\"", "controller: Too long: may not be more than 250 bytes"},
		{"parameters are named", "parameters: {apiGroup: A}", "parameters.apiGroup: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of...\nparameters.kind: Required value\nparameters.name: Required value"},
		{"a scope is known", "parameters: {kind: A, name: a, scope: Any}", `parameters.scope: Unsupported value: "Any": supported values: "Cluster", "Namespace"`},
		{"Namespace needs a namespace", "parameters: {kind: A, name: a, scope: Namespace}", "parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"},
		{"a namespace is valid", "parameters: {kind: A, name: a, scope: Namespace, namespace: A}", `parameters.namespace: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"Cluster has no namespace", "parameters: {kind: A, name: a, scope: Cluster, namespace: a}", "parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"},
	}), func(c *networkingv1.IngressClass) []string {
		networking.DefaultIngressClass(c)
		return testkinds.Texts(networking.ValidateIngressClass(c))
	})
	testkinds.Updates(t, class, []testkinds.Update{
		{"the controller stays", "", "spec.controller: a.b/d", `spec.controller: Invalid value: "a.b/d": field is immutable`},
	}, func(c, old *networkingv1.IngressClass) []string {
		return testkinds.Texts(networking.ValidateIngressClassUpdate(c, old))
	})
}

func TestNetworkPolicy(t *testing.T) {
	const policy = "{metadata: {name: p}, spec: {ingress: [{}]}}"
	testkinds.Rules(t, policy, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "ingress: [{from: [{podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}], ports: [{port: 80, endPort: 90}]}]", ""},
		{"a selector is valid", "podSelector: {matchLabels: {a b: c}}", `podSelector.matchLabels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"a type is known", "policyTypes: [Any]", `policyTypes[0]: Unsupported value: "Any": supported values: "Ingress", "Egress"`},
		{"two types", "policyTypes: [Ingress, Egress, Ingress]", `policyTypes: Invalid value: ["Ingress","Egress","Ingress"]: may not specify more than two policyTypes`},
		{"port: a protocol is known", "ingress: [{ports: [{protocol: tcp}]}]", `ingress[0].ports[0].protocol: Unsupported value: "tcp": supported values: "TCP", "UDP", "SCTP"`},
		{"port: a number is in range", "ingress: [{ports: [{port: 65536}]}]", "ingress[0].ports[0].port: Invalid value: 65536: must be between 1 and 65535, inclusive"},
		{"port: a name is valid", "ingress: [{ports: [{port: A}]}]", "ingress[0].ports[0].port: Invalid value: \"A\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)\ningress[0].ports[0].port: Invalid value: \"A\": must contain at least one letter (a-z)"},
		{"port: an end needs a port", "ingress: [{ports: [{endPort: 80}]}]", "ingress[0].ports[0].endPort: Invalid value: 80: may not be specified when `port` is not specified"},
		{"port: an end needs a number", "ingress: [{ports: [{port: a, endPort: 80}]}]", "ingress[0].ports[0].endPort: Invalid value: 80: may not be specified when `port` is non-numeric"},
		{"port: an end is not below", "ingress: [{ports: [{port: 80, endPort: 79}]}]", "ingress[0].ports[0].endPort: Invalid value: 79: must be greater than or equal to `port`"},
		{"port: an end is in range", "ingress: [{ports: [{port: 80, endPort: 65536}]}]", "ingress[0].ports[0].endPort: Invalid value: 65536: must be between 1 and 65535, inclusive"},
		{"peer: it is required", "ingress: [{from: [{}]}]", "ingress[0].from[0]: Required value: must specify a peer"},
		{"peer: one of both", "egress: [{to: [{podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}]}]", "egress[0].to[0]: Forbidden: may not specify both ipBlock and another peer"},
		{"peer: selectors are valid", "ingress: [{from: [{podSelector: {matchLabels: {a b: c}}, namespaceSelector: {matchLabels: {a b: c}}}]}]", "ingress[0].from[0].podSelector.matchLabels: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\ningress[0].from[0].namespaceSelector.matchLabels: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"},
		{"peer: a range is required", "ingress: [{from: [{ipBlock: {}}]}]", "ingress[0].from[0].ipBlock.cidr: Required value"},
		{"peer: a range is one", "ingress: [{from: [{ipBlock: {cidr: a}}]}]", `ingress[0].from[0].ipBlock.cidr: Invalid value: "a": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`},
		{"peer: an exception is within", "ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/8, 11.0.0.0/16]}}]}]", "ingress[0].from[0].ipBlock.except[0]: Invalid value: \"10.0.0.0/8\": must be a strict subset of `cidr`\ningress[0].from[0].ipBlock.except[1]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`"},
	}), func(p *networkingv1.NetworkPolicy) []string {
		networking.DefaultNetworkPolicy(p)
		return testkinds.Texts(networking.ValidateNetworkPolicy(p))
	})
	testkinds.Rules(t, policy, []testkinds.Rule{
		{"default: ingress", "spec.ingress: [{ports: [{port: 80}]}]", "spec.ingress[0].ports[0].protocol: TCP\nspec.policyTypes[0]: Ingress"},
		{"default: egress", "spec.egress: [{}]", "spec.policyTypes[0]: Ingress\nspec.policyTypes[1]: Egress"},
	}, func(p *networkingv1.NetworkPolicy) []string {
		return testkinds.Changes(p, networking.DefaultNetworkPolicy)
	})
	testkinds.Updates(t, policy, []testkinds.Update{
		{"a wrong range stays", "spec.ingress: [{from: [{ipBlock: {cidr: 010.0.0.0/8}}]}]", "spec.policyTypes: [Ingress]", ""},
	}, func(p, old *networkingv1.NetworkPolicy) []string {
		return testkinds.Texts(networking.ValidateNetworkPolicyUpdate(p, old))
	})
	testkinds.Rules(t, policy, []testkinds.Rule{
		{"warn: unusual ranges", "spec.egress: [{to: [{ipBlock: {cidr: 10.0.0.1/8, except: [\"2001:DB8::/64\"]}}]}]", "spec.egress[0].to[0].ipBlock.cidr: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.0.0.1/32\"?)\nspec.egress[0].to[0].ipBlock.except[0]: IPv6 CIDR value \"2001:DB8::/64\" should be in RFC 5952 canonical format (\"2001:db8::/64\")"},
	}, func(p *networkingv1.NetworkPolicy) []string { return networking.NetworkPolicyWarnings(p, nil) })
}

func TestIPAddress(t *testing.T) {
	const address = "{metadata: {name: 10.0.0.1}, spec: {parentRef: {resource: services, namespace: a, name: s}}}"
	testkinds.Rules(t, address, testkinds.Below("spec.parentRef", []testkinds.Rule{
		{"a parent is required", ": null", ": Required value"},
		{"a group is a name", "group: A", `group: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"a resource is required", "resource: ''", "resource: Required value"},
		{"a name is a segment", "name: a/b", `name: Invalid value: "a/b": may not contain '/'`},
		{"a namespace is a segment", "namespace: a/b", `namespace: Invalid value: "a/b": may not contain '/'`},
	}), func(a *networkingv1.IPAddress) []string { return testkinds.Texts(networking.ValidateIPAddress(a)) })
	testkinds.Updates(t, address, []testkinds.Update{
		{"the parent stays", "", "spec.parentRef.name: b", `spec.parentRef: Invalid value: {"Group":"","Resource":"services","Namespace":"a","Name":"b"}: field is immutable`},
	}, func(a, old *networkingv1.IPAddress) []string {
		return testkinds.Texts(networking.ValidateIPAddressUpdate(a, old))
	})
}

func TestServiceCIDR(t *testing.T) {
	const cidr = "{metadata: {name: c}, spec: {cidrs: [10.0.0.0/24]}}"
	testkinds.Rules(t, cidr, testkinds.Below("spec.cidrs", []testkinds.Rule{
		{"both families", "[1]: fd00::/112", ""},
		{"one is required", ": []", ": Required value: at least one CIDR required"},
		{"two at most", ": [10.0.0.0/24, fd00::/112, 10.1.0.0/24]", `: Invalid value: {"CIDRs":["10.0.0.0/24","fd00::/112","10.1.0.0/24"]}: may only hold up to 2 values`},
		{"a range is one", ": [a]", `[0]: Invalid value: "a": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`},
		{"one of a family", "[1]: 10.1.0.0/24", `: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64`},
	}), func(c *networkingv1.ServiceCIDR) []string { return testkinds.Texts(networking.ValidateServiceCIDR(c)) })
	testkinds.Updates(t, cidr, []testkinds.Update{
		{"the other family comes", "", "spec.cidrs[1]: fd00::/112", ""},
		{"the same family does not", "", "spec.cidrs[1]: 10.1.0.0/24", `spec.cidrs: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64`},
		{"a range stays", "", "spec.cidrs[0]: 10.1.0.0/24", `spec.cidrs[0]: Invalid value: "10.1.0.0/24": field is immutable`},
		{"a range does not go", "", "spec.cidrs: []", "spec.cidrs: Invalid value: []: field is immutable"},
	}, func(c, old *networkingv1.ServiceCIDR) []string {
		return testkinds.Texts(networking.ValidateServiceCIDRUpdate(c, old))
	})
}
