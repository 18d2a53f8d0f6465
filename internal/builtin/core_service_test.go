package builtin_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

const service = "{metadata: {name: s}, spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, ports: [{port: 80}]}}"

func serviceErrors(s *corev1.Service) []string {
	core.DefaultService(s)
	return testkinds.Texts(core.ValidateService(s))
}

func TestService(t *testing.T) {
	testkinds.Rules(t, service, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "type: NodePort\nports[0].nodePort: 30000", ""},
		{"a type is known", "type: Any", `type: Unsupported value: "Any": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"`},
		{"annotations of topology agree", "metadata.annotations: {service.kubernetes.io/topology-aware-hints: a, service.kubernetes.io/topology-mode: b}", `metadata.annotations[service.kubernetes.io/topology-mode]: Invalid value: "b": must match annotations[service.kubernetes.io/topology-aware-hints] when both are specified`},
		{"a port is required", "ports: []", "ports: Required value"},
		{"a headless one needs no port", "clusterIP: None\nclusterIPs: [None]\nports: []", ""},
		{"a node port needs an address", "type: NodePort\nclusterIP: None\nclusterIPs: [None]", `clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services`},
		{"a selector has labels", "selector: {a b: c}", `selector: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"port: a name is a label", "ports[0].name: A", `ports[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"port: names are unique", "ports: [{name: a, port: 80}, {name: a, port: 81}]", `ports[1].name: Duplicate value: "a"`},
		{"port: of several each has a name", "ports: [{name: a, port: 80}, {port: 81}]", "ports[1].name: Required value"},
		{"port: a number is in range", "ports[0].port: 0", "ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive\nports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive"},
		{"port: a protocol is known", "ports[0].protocol: tcp", `ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"`},
		{"port: a target has a name", "ports[0].targetPort: a_b", `ports[0].targetPort: Invalid value: "a_b": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)`},
		{"port: a target is in range", "ports[0].targetPort: 65536", "ports[0].targetPort: Invalid value: 65536: must be between 1 and 65535, inclusive"},
		{"port: appProtocol is a name", "ports[0].appProtocol: a b", `ports[0].appProtocol: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"port: numbers are unique", "ports: [{name: a, port: 80}, {name: b, port: 80}]", `ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}`},
		{"port: node ports are unique", "type: NodePort\nports: [{name: a, port: 80, nodePort: 30000}, {name: b, port: 81, nodePort: 30000}]", "ports[1].nodePort: Duplicate value: 30000"},
		{"port: no node port of ClusterIP", "ports[0].nodePort: 30000", "ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"},
		{"affinity is known", "sessionAffinity: Any", `sessionAffinity: Unsupported value: "Any": supported values: "ClientIP", "None"`},
		{"affinity: None has no configuration", "sessionAffinity: ClientIP\nsessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}", "sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0 and less than 86400"},
		{"affinity: a day at most", "sessionAffinity: ClientIP\nsessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}", "sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400"},
		{"externalIPs are addresses", "externalIPs: [a]", `externalIPs[0]: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
		{"externalIPs are reached from elsewhere", "externalIPs: [127.0.0.1]", `externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`},
		{"loadBalancerSourceRanges are for LoadBalancer", "loadBalancerSourceRanges: [10.0.0.0/8]", "LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'"},
		{"loadBalancerSourceRanges are ranges", "type: LoadBalancer\nloadBalancerSourceRanges: [a]", `LoadBalancerSourceRanges[0]: Invalid value: "a": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`},
		{"the annotation of source ranges is for LoadBalancer", "metadata.annotations: {service.beta.kubernetes.io/load-balancer-source-ranges: 10.0.0.0/8}", "metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: Forbidden: may only be used when `type` is 'LoadBalancer'"},
		{"the annotation of source ranges has ranges", "type: LoadBalancer\nmetadata.annotations: {service.beta.kubernetes.io/load-balancer-source-ranges: a}", `metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: Invalid value: "a": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`},
		{"allocateLoadBalancerNodePorts is for LoadBalancer", "allocateLoadBalancerNodePorts: true", "allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'"},
		{"loadBalancerClass is for LoadBalancer", "loadBalancerClass: a", "loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"},
		{"loadBalancerClass is a name", "type: LoadBalancer\nloadBalancerClass: a b", `loadBalancerClass: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"externalTrafficPolicy is for traffic from outside", "externalTrafficPolicy: Local", `externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services`},
		{"externalTrafficPolicy is known", "type: NodePort\nexternalTrafficPolicy: Any", `externalTrafficPolicy: Unsupported value: "Any": supported values: "Cluster", "Local"`},
		{"healthCheckNodePort is for Local", "type: LoadBalancer\nhealthCheckNodePort: 30000", "healthCheckNodePort: Invalid value: 30000: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"},
		{"healthCheckNodePort is required for Local", "type: LoadBalancer\nexternalTrafficPolicy: Local", "healthCheckNodePort: Required value"},
		{"healthCheckNodePort is in range", "type: LoadBalancer\nexternalTrafficPolicy: Local\nhealthCheckNodePort: 65536", "healthCheckNodePort: Invalid value: 65536: must be between 1 and 65535, inclusive"},
		{"internalTrafficPolicy is known", "internalTrafficPolicy: Any", `internalTrafficPolicy: Unsupported value: "Any": supported values: "Cluster", "Local"`},
		{"trafficDistribution is known", "trafficDistribution: Any", `trafficDistribution: Unsupported value: "Any": supported values: "PreferClose", "PreferSameZone", "PreferSameNode"`},
		{"ExternalName: a name is required", "type: ExternalName\nclusterIP: null\nclusterIPs: null\nipFamilies: null\nipFamilyPolicy: null", "externalName: Required value"},
		{"ExternalName: a name is valid", "type: ExternalName\nclusterIP: null\nclusterIPs: null\nipFamilies: null\nipFamilyPolicy: null\nexternalName: A", `externalName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"ExternalName: no addresses", "type: ExternalName\nexternalName: a.", "clusterIPs: Forbidden: may not be set for ExternalName services\nipFamilies: Forbidden: may not be set for ExternalName services\nipFamilyPolicy: Forbidden: may not be set for ExternalName services"},
	}), serviceErrors)
}

func TestServiceAddresses(t *testing.T) {
	testkinds.Rules(t, service, testkinds.Below("spec", []testkinds.Rule{
		{"both families", "clusterIPs: [10.0.0.1, \"fd00::1\"]\nipFamilies: [IPv4, IPv6]\nipFamilyPolicy: RequireDualStack", ""},
		{"clusterIPs need clusterIP", "clusterIP: null", "clusterIPs: Invalid value: [\"10.0.0.1\"]: must be empty when `clusterIP` is not specified"},
		{"clusterIP needs clusterIPs", "clusterIPs: null", "clusterIPs: Required value"},
		{"clusterIP is the first of clusterIPs", "clusterIP: 10.0.0.2", "clusterIPs: Invalid value: [\"10.0.0.1\"]: first value must match `clusterIP`"},
		{"a family is known", "ipFamilies: [IPv5]", `ipFamilies[0]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"`},
		{"families are unique", "ipFamilies: [IPv4, IPv4]", `ipFamilies[1]: Duplicate value: "IPv4"`},
		{"a policy is known", "ipFamilyPolicy: Any", `ipFamilyPolicy: Unsupported value: "Any": supported values: "PreferDualStack", "RequireDualStack", "SingleStack"`},
		{"None is alone", "clusterIP: None\nclusterIPs: [None, 10.0.0.1]", `clusterIPs: Invalid value: ["None","10.0.0.1"]: 'None' must be the first and only value`},
		{"an address is one", "clusterIP: a\nclusterIPs: [a]", `clusterIPs[0]: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
		{"two addresses", "clusterIPs: [10.0.0.1, \"fd00::1\", 10.0.0.2]", `clusterIPs: Invalid value: ["10.0.0.1","fd00::1","10.0.0.2"]: may only hold up to 2 values`},
		{"one address of a family", "clusterIPs: [10.0.0.1, 10.0.0.2]", `clusterIPs: Invalid value: ["10.0.0.1","10.0.0.2"]: may specify no more than one IP for each IP family`},
		{"an address is of its family", "ipFamilies: [IPv6]", "clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`"},
	}), serviceErrors)
	const dual = "spec.clusterIPs: [10.0.0.1, \"fd00::1\"]\nspec.ipFamilies: [IPv4, IPv6]\nspec.ipFamilyPolicy: PreferDualStack"
	testkinds.Updates(t, service, []testkinds.Update{
		{"an address stays", "", "spec.clusterIP: 10.0.0.2\nspec.clusterIPs: [10.0.0.2]", `spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set`},
		{"an address does not go", "", "spec.clusterIP: null\nspec.clusterIPs: null", "spec.clusterIPs[0]: Invalid value: null: primary clusterIP can not be unset"},
		{"a second address comes", "", dual, ""},
		{"a second address goes with the policy", dual, "spec.clusterIPs: [10.0.0.1]\nspec.ipFamilies: [IPv4]", "spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be set to 'SingleStack' when releasing the secondary clusterIP\nspec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be set to 'SingleStack' when releasing the secondary ipFamily"},
		{"a first address stays when a second one comes", "", "spec.clusterIP: 10.0.0.2\nspec.clusterIPs: [10.0.0.2, \"fd00::1\"]\nspec.ipFamilies: [IPv4, IPv6]\nspec.ipFamilyPolicy: PreferDualStack", `spec.clusterIPs[0]: Invalid value: ["10.0.0.2","fd00::1"]: may not change once set`},
		{"a family stays", "", "spec.ipFamilies: [IPv6]", "spec.ipFamilies[0]: Invalid value: [\"IPv6\"]: may not change once set\nspec.clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`"},
		{"a family does not go", "", "spec.ipFamilies: []\nspec.clusterIPs: []\nspec.clusterIP: null", "spec.clusterIPs[0]: Invalid value: []: primary clusterIP can not be unset\nspec.ipFamilies[0]: Invalid value: []: primary ipFamily can not be unset"},
		{"a first family stays when a second one comes", "", "spec.ipFamilies: [IPv6, IPv4]", "spec.ipFamilies[0]: Invalid value: [\"10.0.0.1\"]: may not change once set\nspec.clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`"},
		{"a class stays", "spec.type: LoadBalancer\nspec.loadBalancerClass: a", "spec.loadBalancerClass: b", `spec.loadBalancerClass: Invalid value: "b": may not change once set`},
		{"a health check stays", "spec.type: LoadBalancer\nspec.externalTrafficPolicy: Local\nspec.healthCheckNodePort: 30000", "spec.healthCheckNodePort: 30001", "spec.healthCheckNodePort: Forbidden: field is immutable"},
		{"known wrong addresses stay", "spec.externalIPs: [010.0.0.1]", "metadata.labels: {a: b}", ""},
	}, func(s, old *corev1.Service) []string {
		core.DefaultService(s)
		core.DefaultService(old)
		return testkinds.Texts(core.ValidateServiceUpdate(s, old))
	})
}

func TestServiceDefaults(t *testing.T) {
	testkinds.Rules(t, "{metadata: {name: s}, spec: {ports: [{port: 80}]}}", testkinds.Below("spec", []testkinds.Rule{
		{"all", "selector: {a: b}", "internalTrafficPolicy: Cluster\nports[0].protocol: TCP\nports[0].targetPort: 80\nsessionAffinity: None\ntype: ClusterIP"},
		{"a target is the port", "ports: [{port: 80, protocol: UDP, targetPort: \"\"}]", "internalTrafficPolicy: Cluster\nports[0].targetPort: 80\nsessionAffinity: None\ntype: ClusterIP"},
		{"ClientIP", "sessionAffinity: ClientIP", "internalTrafficPolicy: Cluster\nports[0].protocol: TCP\nports[0].targetPort: 80\nsessionAffinityConfig.clientIP.timeoutSeconds: 10800\ntype: ClusterIP"},
		{"None drops the configuration", "sessionAffinityConfig: {clientIP: {timeoutSeconds: 5}}", "internalTrafficPolicy: Cluster\nports[0].protocol: TCP\nports[0].targetPort: 80\nsessionAffinity: None\nsessionAffinityConfig.clientIP.timeoutSeconds: removed\ntype: ClusterIP"},
		{"NodePort", "type: NodePort", "externalTrafficPolicy: Cluster\ninternalTrafficPolicy: Cluster\nports[0].protocol: TCP\nports[0].targetPort: 80\nsessionAffinity: None"},
		{"LoadBalancer", "type: LoadBalancer\nstatus: {loadBalancer: {ingress: [{ip: 10.0.0.1}]}}", "allocateLoadBalancerNodePorts: true\nexternalTrafficPolicy: Cluster\ninternalTrafficPolicy: Cluster\nports[0].protocol: TCP\nports[0].targetPort: 80\nsessionAffinity: None\nstatus.loadBalancer.ingress[0].ipMode: VIP"},
		{"ExternalName", "type: ExternalName\ninternalTrafficPolicy: Local", "internalTrafficPolicy: removed\nports[0].protocol: TCP\nports[0].targetPort: 80\nsessionAffinity: None"},
		{"externalIPs", "externalIPs: [10.0.0.1]", "externalTrafficPolicy: Cluster\ninternalTrafficPolicy: Cluster\nports[0].protocol: TCP\nports[0].targetPort: 80\nsessionAffinity: None\ntype: ClusterIP"},
	}), func(s *corev1.Service) []string { return testkinds.Changes(s, core.DefaultService) })
}

func TestPrepareServiceUpdate(t *testing.T) {
	testkinds.Updates(t, service, []testkinds.Update{
		{"to ExternalName: addresses go", "", "spec.type: ExternalName", "spec.clusterIP: removed\nspec.clusterIPs[0]: removed\nspec.ipFamilies[0]: removed\nspec.ipFamilyPolicy: removed"},
		{"to ExternalName: a new address stays, for validation", "", "spec.type: ExternalName\nspec.clusterIP: 10.0.0.2\nspec.clusterIPs: [10.0.0.2]", "spec.ipFamilies[0]: removed\nspec.ipFamilyPolicy: removed"},
		{"from NodePort: node ports go", "spec.type: NodePort\nspec.ports[0].nodePort: 30000\nspec.externalTrafficPolicy: Local", "spec.type: ClusterIP", "spec.externalTrafficPolicy: removed\nspec.ports[0].nodePort: removed"},
		{"from LoadBalancer: what it alone has goes", "spec.type: LoadBalancer\nspec.loadBalancerClass: a\nspec.allocateLoadBalancerNodePorts: true\nspec.externalTrafficPolicy: Local\nspec.healthCheckNodePort: 30000\nstatus: {loadBalancer: {ingress: [{ip: 10.0.0.1}]}}", "spec.type: ClusterIP", "spec.allocateLoadBalancerNodePorts: removed\nspec.externalTrafficPolicy: removed\nspec.healthCheckNodePort: removed\nspec.loadBalancerClass: removed\nstatus.loadBalancer.ingress[0].ip: removed\nstatus.loadBalancer: {}"},
	}, func(s, old *corev1.Service) []string {
		return testkinds.Changes(s, func(s *corev1.Service) { core.PrepareServiceUpdate(s, old) })
	})
}

func TestServiceWarnings(t *testing.T) {
	testkinds.Rules(t, "{metadata: {name: s}, spec: {type: ClusterIP, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], sessionAffinity: None}}", []testkinds.Rule{
		{"none", "metadata.labels: {a: b}", ""},
		{"an old annotation", "metadata.annotations: {service.kubernetes.io/topology-aware-hints: a}", "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead"},
		{"an unusual address", "spec.clusterIPs: [010.0.0.1]", `spec.clusterIPs[0]: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1"`},
		{"headless", "spec.clusterIP: None\nspec.loadBalancerIP: 10.0.0.1\nspec.externalIPs: [10.0.0.1]\nspec.sessionAffinity: ClientIP", "spec.loadBalancerIP is ignored for headless services\nspec.externalIPs is ignored for headless services\nspec.SessionAffinity is ignored for headless services"},
		{"externalIPs", "spec.externalIPs: [10.0.0.1]", "spec.externalIPs is deprecated and may no longer be implemented in some clusters"},
		{"loadBalancerIP", "spec.loadBalancerIP: \"2001:DB8::1\"", `spec.loadBalancerIP: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")`},
		{"a range with host bits", "spec.loadBalancerSourceRanges: [10.0.0.1/8]", `spec.loadBalancerSourceRanges[0]: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)`},
		{"externalIPs of ExternalName", "spec.type: ExternalName\nspec.externalIPs: [10.0.0.1]", `spec.externalIPs is ignored when spec.type is "ExternalName"`},
		{"externalName without the type", "spec.externalName: a", `spec.externalName is ignored when spec.type is not "ExternalName"`},
		{"PreferClose", "spec.trafficDistribution: PreferClose", `spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`},
	}, func(s *corev1.Service) []string { return core.ServiceWarnings(s, nil) })
}

func TestNode(t *testing.T) {
	nodeErrors := func(n *corev1.Node) []string {
		core.DefaultNode(n)
		return testkinds.Texts(core.ValidateNode(n))
	}
	testkinds.Rules(t, "{metadata: {name: n1}}", []testkinds.Rule{
		{"valid", "spec: {podCIDR: 10.0.0.0/24, taints: [{key: a, effect: NoSchedule}]}\nstatus: {capacity: {cpu: 1}, declaredFeatures: [A, A/b]}", ""},
		{"avoided Pods are JSON", "metadata.annotations: {scheduler.alpha.kubernetes.io/preferAvoidPods: a}", `metadata.annotations.AvoidPods: Invalid value: "scheduler.alpha.kubernetes.io/preferAvoidPods": invalid character 'a' looking for beginning of value`},
		{"avoided Pods have a controller", `metadata.annotations: {scheduler.alpha.kubernetes.io/preferAvoidPods: '{"preferAvoidPods":[{},{"podSignature":{"podController":{"kind":"a"}}}]}'}`, "metadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[0].PodSignature: Required value\nmetadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[1].PodSignature.PodController.Controller: Invalid value: false: must point to a controller"},
		{"a taint has a key", "spec: {taints: [{key: a b, effect: NoSchedule}]}", `metadata.taints[0].key: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"a taint has the value of a label", "spec: {taints: [{key: a, value: b c, effect: NoSchedule}]}", `metadata.taints[0].value: Invalid value: "b c": a valid label must be an empty...`},
		{"a taint has an effect", "spec: {taints: [{key: a}]}", "metadata.taints[0].effect: Required value"},
		{"an effect is known", "spec: {taints: [{key: a, effect: Never}]}", `metadata.taints[0].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`},
		{"taints are unique", "spec: {taints: [{key: a, value: b, effect: NoSchedule}, {key: a, effect: NoSchedule}]}", `metadata.taints[1]: Duplicate value: {"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}: taints must be unique by key and effect pair`},
		{"amounts are not negative", "status: {capacity: {cpu: -1}, allocatable: {pods: 500m}}", "status.capacity.cpu: Invalid value: \"-1\": must be greater than or equal to 0\nstatus.allocatable.pods: Invalid value: \"500m\": must be an integer"},
		{"a feature has a name", "status: {declaredFeatures: [a]}", `status.declaredFeatures[0]: Invalid value: "a": invalid feature name "a": must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes`},
		{"features are sorted", "status: {declaredFeatures: [B, A]}", `status.declaredFeatures[1]: Invalid value: "A": list must be sorted alphabetically`},
		{"features are unique", "status: {declaredFeatures: [A, A]}", `status.declaredFeatures[1]: Duplicate value: "A"`},
		{"swap is positive", "status: {nodeInfo: {swap: {capacity: 0}, machineID: '', systemUUID: '', bootID: '', kernelVersion: '', osImage: '', containerRuntimeVersion: '', kubeletVersion: '', kubeProxyVersion: '', operatingSystem: '', architecture: ''}}", "metadata.nodeSwapStatus.capacity: Invalid value: 0: must be greater than zero"},
		{"podCIDRs are ranges", "spec: {podCIDRs: [a]}", `spec.podCIDRs[0]: Invalid value: "a": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`},
		{"one range of a family", "spec: {podCIDRs: [10.0.0.0/24, 10.0.1.0/24]}", `spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: may specify no more than one CIDR for each IP family`},
		{"two ranges, and one is not a CIDR", "spec: {podCIDRs: [10.0.0.0/24, a]}", "spec.podCIDRs[1]: Invalid value: \"a\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)\nspec.podCIDRs: Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[1]: <nil> (invalid CIDR address: a)\nspec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"a\"]: may specify no more than one CIDR for each IP family"},
	}, nodeErrors)
	testkinds.Updates(t, "{metadata: {name: n1}, spec: {podCIDR: 10.0.0.0/24, podCIDRs: [10.0.0.0/24], providerID: a, externalID: b}}", []testkinds.Update{
		{"labels change", "", "metadata.labels: {a: b}", ""},
		{"ranges stay", "", "spec.podCIDRs: [10.0.1.0/24]", `spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid`},
		{"ranges do not come", "", "spec.podCIDRs[1]: fd00::/64", `spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid`},
		{"the provider stays", "", "spec.providerID: c", `spec.providerID: Invalid value: null: field cannot be modified once set`},
		{"the provider is not removed", "", "spec.providerID: null", `spec.providerID: Invalid value: null: field cannot be cleared once set`},
		{"the external name stays", "", "spec.externalID: c", "spec.externalID: Forbidden: may not be updated"},
		{"addresses are unique", "", "status: {addresses: [{type: InternalIP, address: a}, {type: InternalIP, address: a}]}", `status.addresses[1]: Duplicate value: {"Type":"InternalIP","Address":"a"}`},
	}, func(n, old *corev1.Node) []string { return testkinds.Texts(core.ValidateNodeStatus(n, old)) })
	testkinds.Rules(t, "{metadata: {name: n1}}", []testkinds.Rule{
		{"default: allocatable is the capacity", "status: {capacity: {cpu: 1}}", "status.allocatable.cpu: 1"},
		{"default: empty allocatable is the capacity", "status: {capacity: {cpu: 1}, allocatable: {}}", "status.allocatable.cpu: 1"},
		{"default: podCIDR is the first", "spec: {podCIDRs: [10.0.0.0/24]}", "spec.podCIDR: 10.0.0.0/24"},
		{"default: podCIDR wins", "spec: {podCIDR: 10.0.1.0/24, podCIDRs: [10.0.0.0/24]}", "spec.podCIDRs[0]: 10.0.1.0/24"},
		{"what the server no longer has", "spec: {configSource: {}}\nstatus: {config: {}}", "spec.configSource: removed\nspec: {}\nstatus.config: removed"},
	}, func(n *corev1.Node) []string {
		return testkinds.Changes(n, func(n *corev1.Node) { core.DefaultNode(n); core.PrepareNode(n) })
	})
	testkinds.Rules(t, "{metadata: {name: n1}}", []testkinds.Rule{
		{"warn: fields without effect", "spec: {configSource: {}, externalID: a, podCIDRs: [10.0.0.1/24]}", "spec.configSource: the feature is removed\nspec.externalID: this field is deprecated, and is unused by Kubernetes\nspec.podCIDRs[0]: CIDR value \"10.0.0.1/24\" is ambiguous in this context (should be \"10.0.0.0/24\" or \"10.0.0.1/32\"?)"},
	}, func(n *corev1.Node) []string { return core.NodeWarnings(n, nil) })
}
