package podspec_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestWarnings(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec", []testkinds.Rule{
		{"none", "hostname: a", ""},
		{"a deprecated label selects nodes", "nodeSelector: {beta.kubernetes.io/os: a, beta.kubernetes.io/arch: b}", "nodeSelector[beta.kubernetes.io/arch]: deprecated since v1.14; use \"kubernetes.io/arch\" instead\nnodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead"},
		{"a deprecated label in a required term", "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: beta.kubernetes.io/os, operator: Exists}]}]}}}", `affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead`},
		{"a deprecated label in a preferred term", "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: beta.kubernetes.io/os, operator: In, values: [a b]}]}}]}}", "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key: beta.kubernetes.io/os is deprecated since v1.14; use \"kubernetes.io/os\" instead\naffinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values[0]: a b is invalid, a valid label must be an empty..."},
		{"a deprecated label spreads Pods", "topologySpreadConstraints: [{topologyKey: beta.kubernetes.io/os, labelSelector: {}}]", `topologySpreadConstraints[0].topologyKey: beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead`},
		{"spreading without a selector", "topologySpreadConstraints: [{topologyKey: a}]", "topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod"},
		{"affinity without a selector", "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a}]}, podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: a}}]}}", "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod\naffinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector: a null labelSelector results in matching no pod"},
		{"annotations without effect", "metadata.annotations: {scheduler.alpha.kubernetes.io/critical-pod: a, security.alpha.kubernetes.io/sysctls: b, security.alpha.kubernetes.io/unsafe-sysctls: c}", "metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; use the \"priorityClassName\" field instead\nmetadata.annotations[security.alpha.kubernetes.io/sysctls]: non-functional in v1.11+; use the \"sysctls\" field instead\nmetadata.annotations[security.alpha.kubernetes.io/unsafe-sysctls]: non-functional in v1.11+; use the \"sysctls\" field instead"},
		{"an annotation of seccomp", "metadata.annotations: {seccomp.security.alpha.kubernetes.io/pod: a, container.seccomp.security.alpha.kubernetes.io/c: b}", "metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the \"seccompProfile\" field instead\nmetadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]: non-functional in v1.27+; use the \"seccompProfile\" field instead"},
		{"an annotation of seccomp with a field", "securityContext: {seccompProfile: {type: Unconfined}}\nmetadata.annotations: {seccomp.security.alpha.kubernetes.io/pod: a}", ""},
		{"a host alias twice", "hostAliases: [{ip: 10.0.0.1}, {ip: 10.0.0.1}]", `hostAliases[1].ip: duplicate ip "10.0.0.1"`},
		{"an address with zeros", "hostAliases: [{ip: 010.0.0.1}]\ndnsConfig: {nameservers: [010.0.0.1, \"::ffff:1.2.3.4\"]}", "dnsConfig.nameservers[0]: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\"\ndnsConfig.nameservers[1]: non-standard IP address \"::ffff:1.2.3.4\" is invalid: use \"1.2.3.4\"\nhostAliases[0].ip: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\""},
		{"a pull secret twice", "imagePullSecrets: [{name: a}, {name: a}]", `imagePullSecrets[1].name: duplicate name "a"`},
		{"a pull secret without a name", "imagePullSecrets: [{}]", `imagePullSecrets[0].name: invalid empty name ""`},
		{"a part of a byte", "overhead: {memory: 100m}\ncontainers[0].resources: {limits: {memory: 1500m}, requests: {ephemeral-storage: 100m}}", "overhead[memory]: fractional byte value \"100m\" is invalid, must be an integer\ncontainers[0].resources.limits[memory]: fractional byte value \"1500m\" is invalid, must be an integer\ncontainers[0].resources.requests[ephemeral-storage]: fractional byte value \"100m\" is invalid, must be an integer"},
		{"a negative grace period", "terminationGracePeriodSeconds: -1", "terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"},
		{"a variable that is hidden", "containers[0].env: [{name: A, value: b}, {name: A, value: c}]", `containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply`},
		{"a variable that is made of itself", "containers[0].env: [{name: A, value: b}, {name: A, value: c$(A)}]", ""},
		{"a port twice", "containers[0].ports: [{containerPort: 80}, {containerPort: 80}]", "containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]"},
		{"ports that overlap", "containers[0].ports: [{containerPort: 80}, {containerPort: 80, hostPort: 90}]", "containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]"},
		{"ports that may overlap", "containers[0].ports: [{containerPort: 80, hostPort: 90}, {containerPort: 80, hostPort: 90, hostIP: 10.0.0.1}]", "containers[0].ports[1]: dangerously ambiguous port definition with spec.containers[0].ports[0]"},
		{"an address without a host port", "containers[0].ports: [{containerPort: 80, hostIP: 10.0.0.1}]", "containers[0].ports[0]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol: HostIP:10.0.0.1}"},
		{"a name of a port twice", "containers[0].ports: [{containerPort: 80, name: a}]\ncontainers[1]: {name: d, image: i, ports: [{containerPort: 81, name: a}]}", `containers[1].ports[0]: duplicate port name "a" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]`},
		{"AppArmor annotations are SyncAppArmor's", "metadata.annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}", ""},
	}), podspec.Warnings)
}

func TestVolumeWarnings(t *testing.T) {
	testkinds.Rules(t, pod, []testkinds.Rule{
		{"drivers that are gone", "spec.volumes: [{photonPersistentDisk: {}}, {gitRepo: {}}, {scaleIO: {}}, {flocker: {}}, {storageos: {}}, {quobyte: {}}, {glusterfs: {}}, {cephfs: {}}, {rbd: {}}]", "spec.volumes[0].photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+\nspec.volumes[1].gitRepo: deprecated in v1.11, and disabled by default in v1.33+\nspec.volumes[2].scaleIO: deprecated in v1.16, non-functional in v1.22+\nspec.volumes[3].flocker: deprecated in v1.22, non-functional in v1.25+\nspec.volumes[4].storageOS: deprecated in v1.22, non-functional in v1.25+\nspec.volumes[5].quobyte: deprecated in v1.22, non-functional in v1.25+\nspec.volumes[6].glusterfs: deprecated in v1.25, non-functional in v1.26+\nspec.volumes[7].cephfs: deprecated in v1.28, non-functional in v1.31+\nspec.volumes[8].rbd: deprecated in v1.28, non-functional in v1.31+"},
		{"a part of a byte of a claim", "spec.volumes: [{ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: 100m}, limits: {storage: 100m}}}}}}]", "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: fractional byte value \"100m\" is invalid, must be an integer\nspec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.limits[storage]: fractional byte value \"100m\" is invalid, must be an integer"},
		{"paths of a ConfigMap", "spec.volumes: [{name: v, configMap: {name: m, items: [{path: a}, {path: a/b}, {path: ab}]}}]", `volume "v" (ConfigMap "m"): overlapping paths: "a/b" with "a"`},
		{"paths of a Secret", "spec.volumes: [{name: v, secret: {secretName: s, items: [{path: a}, {path: a/}]}}]", `volume "v" (Secret "s"): overlapping paths: "a" with "a"`},
		{"paths of the downward API", "spec.volumes: [{name: v, downwardAPI: {items: [{path: a}, {path: a}]}}]", `volume "v" (DownwardAPI): overlapping paths: "a" with "a"`},
		{"paths of a projection", "spec.volumes: [{name: v, projected: {sources: [{secret: {name: s, items: [{path: a}]}}, {configMap: {name: m, items: [{path: a/b}]}}, {downwardAPI: {items: [{path: c}]}}, {serviceAccountToken: {path: c/d}}]}}]", "volume \"v\" (Projected): overlapping paths: \"a/b\" (ConfigMap \"m\") with \"a\" (Secret \"s\")\nvolume \"v\" (Projected): overlapping paths: \"c/d\" (ServiceAccountToken) with \"c\" (DownwardAPI)"},
		{"a projection of nothing", "spec.volumes: [{name: v, projected: {sources: [{}]}}]", `volume "v" (Projected) has no sources provided`},
	}, podspec.Warnings)
}

func TestTemplateWarnings(t *testing.T) {
	testkinds.Rules(t, template, []testkinds.Rule{
		{"paths begin at the template", "spec.nodeSelector: {beta.kubernetes.io/os: a}", `template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`},
		{"AppArmor annotations", "metadata.annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}", `template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead`},
		{"AppArmor annotations as the Pod has it", "metadata.annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}\nspec.securityContext: {appArmorProfile: {type: Unconfined}}", ""},
	}, func(p *corev1.PodTemplateSpec) []string {
		return podspec.TemplateWarnings(p, field.NewPath("template"))
	})
}

func TestNameWarnings(t *testing.T) {
	if got := podspec.NameWarnings("a"); got != nil {
		t.Errorf("a label: %q", got)
	}
	if got := podspec.NameWarnings("a.b"); len(got) != 1 {
		t.Errorf("a subdomain: %q, want a warning", got)
	}
}
