package podspec_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestSpec(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec", []testkinds.Rule{
		{"restartPolicy is known", "restartPolicy: Often", `restartPolicy: Unsupported value: "Often": supported values: "Always", "OnFailure", "Never"`},
		{"dnsPolicy is known", "dnsPolicy: Any", `dnsPolicy: Unsupported value: "Any": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"`},
		{"nodeSelector has labels", "nodeSelector: {a b: c}", `nodeSelector: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"serviceAccountName is a name", "serviceAccountName: A", `serviceAccountName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"nodeName is a name", "nodeName: A", `nodeName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"activeDeadlineSeconds is positive", "activeDeadlineSeconds: 0", "activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"},
		{"activeDeadlineSeconds has 32 bits", "activeDeadlineSeconds: 2147483648", "activeDeadlineSeconds: Invalid value: 2147483648: must be between 1 and 2147483647, inclusive"},
		{"hostname is a label", "hostname: a.b", `hostname: Invalid value: "a.b": must not contain dots`},
		{"subdomain is a label", "subdomain: a.b", `subdomain: Invalid value: "a.b": must not contain dots`},
		{"a host alias is an address", "hostAliases: [{ip: a}]", `hostAliases[0].ip: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
		{"names of a host alias are names", "hostAliases: [{ip: 10.0.0.1, hostnames: [a, A]}]", `hostAliases[0].hostnames[1]: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"priorityClassName is a name", "priorityClassName: A", `priorityClassName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"runtimeClassName is a name", "runtimeClassName: A", `runtimeClassName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"preemptionPolicy is known", "preemptionPolicy: Always", `preemptionPolicy: Unsupported value: "Always": supported values: "PreemptLowerPriority", "Never"`},
		{"preemptionPolicy is not empty", "preemptionPolicy: \"\"", "preemptionPolicy: Required value"},
		{"readiness gates have names", "readinessGates: [{conditionType: a b}]", `readinessGates[0].conditionType: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"scheduling gates have names", "schedulingGates: [{name: a b}]", `schedulingGates[0]: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"scheduling gates are unique", "schedulingGates: [{name: a}, {name: a}]", `schedulingGates[1]: Duplicate value: "a"`},
		{"hostnameOverride is a name", "hostnameOverride: A", `hostnameOverride: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"hostnameOverride has 64 characters", "hostnameOverride: \"{a*65}\"", "hostnameOverride: Too long: may not be more than 64 bytes"},
		{"hostnameOverride or the full name", "hostnameOverride: a\nsetHostnameAsFQDN: true", "hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true"},
		{"hostnameOverride or the host's network", "hostnameOverride: a\nhostNetwork: true", "hostnameOverride: Forbidden: may not be specified when hostNetwork is true"},
		{"a token needs a service account", "volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]", "volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set"},
		{"a token with a service account", "serviceAccountName: a\nvolumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]", ""},
	}), podErrors)
}

func TestDNS(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "dnsConfig: {nameservers: [10.0.0.1], searches: [a.b., ., _a.b], options: [{name: ndots, value: \"2\"}]}", ""},
		{"None needs a configuration", "dnsPolicy: None", "dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"},
		{"None needs a nameserver", "dnsPolicy: None\ndnsConfig: {searches: [a]}", "dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None"},
		{"a nameserver is an address", "dnsConfig: {nameservers: [a]}", `dnsConfig.nameservers[0]: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
		{"three nameservers", "dnsConfig: {nameservers: [10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4]}", `dnsConfig.nameservers: Invalid value: ["10.0.0.1","10.0.0.2","10.0.0.3","10.0.0.4"]: must not have more than 3 nameservers`},
		{"a search path is a name", "dnsConfig: {searches: [a b]}", `dnsConfig.searches[0]: Invalid value: "a b": a lowercase RFC 1123 subdomain must consist of...`},
		{"32 search paths", "dnsConfig: {searches: [" + strings.Repeat("a,", 33) + "]}", `dnsConfig.searches: Invalid value: ["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"]: must not have more than 32 search paths`},
		{"2048 bytes of search paths", "dnsConfig: {searches: [" + strings.Repeat("{a*60}.{b*60}.{c*60},", 12) + "]}", "dnsConfig.searches: Invalid value: ...]: must not have more than 2048 characters (including spaces) in the search list"},
		{"an option has a name", "dnsConfig: {options: [{value: \"2\"}]}", "dnsConfig.options[0]: Required value: must not be empty"},
	}), podErrors)
}

func TestDefaults(t *testing.T) {
	testkinds.Rules(t, pod, []testkinds.Rule{
		{"all", "", "spec.containers[0].imagePullPolicy: IfNotPresent\nspec.containers[0].terminationMessagePath: /dev/termination-log\nspec.containers[0].terminationMessagePolicy: File\nspec.dnsPolicy: ClusterFirst\nspec.enableServiceLinks: true\nspec.restartPolicy: Always\nspec.schedulerName: default-scheduler\nspec.securityContext: {}\nspec.terminationGracePeriodSeconds: 30"},
		{"what is set stays", "spec.dnsPolicy: Default\nspec.restartPolicy: Never\nspec.schedulerName: s\nspec.terminationGracePeriodSeconds: 5\nspec.enableServiceLinks: false\nspec.securityContext: {runAsUser: 1}", "spec.containers[0].imagePullPolicy: IfNotPresent\nspec.containers[0].terminationMessagePath: /dev/termination-log\nspec.containers[0].terminationMessagePolicy: File"},
		{"the old name of the service account", "spec.serviceAccount: a", "spec.containers[0].imagePullPolicy: IfNotPresent\nspec.containers[0].terminationMessagePath: /dev/termination-log\nspec.containers[0].terminationMessagePolicy: File\nspec.dnsPolicy: ClusterFirst\nspec.enableServiceLinks: true\nspec.restartPolicy: Always\nspec.schedulerName: default-scheduler\nspec.securityContext: {}\nspec.serviceAccountName: a\nspec.terminationGracePeriodSeconds: 30"},
		{"the new name of the service account wins", "spec.serviceAccount: a\nspec.serviceAccountName: b", "spec.containers[0].imagePullPolicy: IfNotPresent\nspec.containers[0].terminationMessagePath: /dev/termination-log\nspec.containers[0].terminationMessagePolicy: File\nspec.dnsPolicy: ClusterFirst\nspec.enableServiceLinks: true\nspec.restartPolicy: Always\nspec.schedulerName: default-scheduler\nspec.securityContext: {}\nspec.serviceAccount: b\nspec.terminationGracePeriodSeconds: 30"},
		{"a negative grace period is 1", "spec.terminationGracePeriodSeconds: -5", "spec.containers[0].imagePullPolicy: IfNotPresent\nspec.containers[0].terminationMessagePath: /dev/termination-log\nspec.containers[0].terminationMessagePolicy: File\nspec.dnsPolicy: ClusterFirst\nspec.enableServiceLinks: true\nspec.restartPolicy: Always\nspec.schedulerName: default-scheduler\nspec.securityContext: {}\nspec.terminationGracePeriodSeconds: 1"},
		{"annotations of old init containers go", "metadata.annotations: {pod.beta.kubernetes.io/init-containers: x, a: b}", "metadata.annotations[pod.beta.kubernetes.io/init-containers]: removed\nspec.containers[0].imagePullPolicy: IfNotPresent\nspec.containers[0].terminationMessagePath: /dev/termination-log\nspec.containers[0].terminationMessagePolicy: File\nspec.dnsPolicy: ClusterFirst\nspec.enableServiceLinks: true\nspec.restartPolicy: Always\nspec.schedulerName: default-scheduler\nspec.securityContext: {}\nspec.terminationGracePeriodSeconds: 30"},
		{"ephemeral containers have defaults", "spec.ephemeralContainers: [{name: e, image: i}]", "spec.containers[0].imagePullPolicy: IfNotPresent\nspec.containers[0].terminationMessagePath: /dev/termination-log\nspec.containers[0].terminationMessagePolicy: File\nspec.dnsPolicy: ClusterFirst\nspec.enableServiceLinks: true\nspec.ephemeralContainers[0].imagePullPolicy: Always\nspec.ephemeralContainers[0].terminationMessagePath: /dev/termination-log\nspec.ephemeralContainers[0].terminationMessagePolicy: File\nspec.restartPolicy: Always\nspec.schedulerName: default-scheduler\nspec.securityContext: {}\nspec.terminationGracePeriodSeconds: 30"},
		{"init containers have defaults", "spec.initContainers: [{name: e, image: i}]", "spec.containers[0].imagePullPolicy: IfNotPresent\nspec.containers[0].terminationMessagePath: /dev/termination-log\nspec.containers[0].terminationMessagePolicy: File\nspec.dnsPolicy: ClusterFirst\nspec.enableServiceLinks: true\nspec.initContainers[0].imagePullPolicy: Always\nspec.initContainers[0].terminationMessagePath: /dev/termination-log\nspec.initContainers[0].terminationMessagePolicy: File\nspec.restartPolicy: Always\nspec.schedulerName: default-scheduler\nspec.securityContext: {}\nspec.terminationGracePeriodSeconds: 30"},
		{"overhead in thousandths", "spec.overhead: {cpu: 100u}", "spec.containers[0].imagePullPolicy: IfNotPresent\nspec.containers[0].terminationMessagePath: /dev/termination-log\nspec.containers[0].terminationMessagePolicy: File\nspec.dnsPolicy: ClusterFirst\nspec.enableServiceLinks: true\nspec.overhead.cpu: 1m\nspec.restartPolicy: Always\nspec.schedulerName: default-scheduler\nspec.securityContext: {}\nspec.terminationGracePeriodSeconds: 30"},
	}, func(p *corev1.Pod) []string { return testkinds.Changes(p, podspec.DefaultPod) })
}

func TestTemplate(t *testing.T) {
	testkinds.Rules(t, template, []testkinds.Rule{
		{"valid", "spec.restartPolicy: Never", ""},
		{"labels are valid", "metadata.labels: {a b: c}", `template.labels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"annotations are valid", "metadata.annotations: {a b: c}", `template.annotations: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"annotations with a meaning", "metadata.annotations: {controller.kubernetes.io/pod-deletion-cost: a}", `template.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "a": must be a 32bit integer`},
		{"the spec", "spec.containers[0].image: \"\"", "template.spec.containers[0].image: Required value"},
		{"an image may have space around it", "spec.containers[0].image: \" a\"", ""},
		{"no ephemeral containers", "spec.ephemeralContainers: [{name: e, image: i}]", "template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"},
		{"ports in the host's network may stay open", "spec.hostNetwork: true\nspec.containers[0].ports: [{containerPort: 80}]", ""},
		{"annotations and fields agree", "metadata.annotations: {seccomp.security.alpha.kubernetes.io/pod: unconfined}\nspec.securityContext: {seccompProfile: {type: RuntimeDefault}}", "template.spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match"},
	}, templateErrors)
	testkinds.Rules(t, template, []testkinds.Rule{
		{"no defaults of Pods alone", "spec.hostNetwork: true\nspec.containers[0].ports: [{containerPort: 80}]\nspec.containers[0].resources: {limits: {cpu: 1}}", "spec.containers[0].imagePullPolicy: IfNotPresent\nspec.containers[0].ports[0].protocol: TCP\nspec.containers[0].terminationMessagePath: /dev/termination-log\nspec.containers[0].terminationMessagePolicy: File\nspec.dnsPolicy: ClusterFirst\nspec.restartPolicy: Always\nspec.schedulerName: default-scheduler\nspec.securityContext: {}\nspec.terminationGracePeriodSeconds: 30"},
	}, func(p *corev1.PodTemplateSpec) []string { return testkinds.Changes(p, podspec.DefaultTemplate) })
}
