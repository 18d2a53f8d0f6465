package podspec_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestAnnotations(t *testing.T) {
	testkinds.Rules(t, pod, []testkinds.Rule{
		{"a mirror Pod has a node", "metadata.annotations: {kubernetes.io/config.mirror: a}", `metadata.annotations[kubernetes.io/config.mirror]: Invalid value: "a": must set spec.nodeName if mirror pod annotation is set`},
		{"tolerations are JSON", "metadata.annotations: {scheduler.alpha.kubernetes.io/tolerations: a}", `metadata.annotations: Invalid value: "scheduler.alpha.kubernetes.io/tolerations": invalid character 'a' looking for beginning of value`},
		{"tolerations are valid", `metadata.annotations: {scheduler.alpha.kubernetes.io/tolerations: '[{"key":"a","operator":"Is"}]'}`, `metadata.annotations.scheduler.alpha.kubernetes.io/tolerations[0].operator: Unsupported value: "Is": supported values: "Equal", "Exists"`},
		{"a deletion cost is a number", "metadata.annotations: {controller.kubernetes.io/pod-deletion-cost: a}", `metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "a": must be a 32bit integer`},
		{"a deletion cost has no plus", "metadata.annotations: {controller.kubernetes.io/pod-deletion-cost: '+1'}", `metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "+1": must be a 32bit integer`},
		{"a deletion cost has no leading zero", "metadata.annotations: {controller.kubernetes.io/pod-deletion-cost: '01'}", `metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "01": must be a 32bit integer`},
		{"a deletion cost has 32 bits", "metadata.annotations: {controller.kubernetes.io/pod-deletion-cost: '2147483648'}", `metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "2147483648": must be a 32bit integer`},
		{"a negative deletion cost", "metadata.annotations: {controller.kubernetes.io/pod-deletion-cost: '-1'}", ""},
		{"seccomp of a Pod is known", "metadata.annotations: {seccomp.security.alpha.kubernetes.io/pod: a}", `metadata.annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: "a": must be a valid seccomp profile`},
		{"seccomp of a container is known", "metadata.annotations: {container.seccomp.security.alpha.kubernetes.io/c: a}", `metadata.annotations.container.seccomp.security.alpha.kubernetes.io/c: Invalid value: "a": must be a valid seccomp profile`},
		{"seccomp of the host is relative", "metadata.annotations: {seccomp.security.alpha.kubernetes.io/pod: localhost//a}", `metadata.annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: "/a": must be a relative path`},
		{"AppArmor of a container that exists", "metadata.annotations: {container.apparmor.security.beta.kubernetes.io/x: runtime/default}", `metadata.annotations[container.apparmor.security.beta.kubernetes.io/x]: Invalid value: "x": container not found`},
		{"AppArmor is known", "metadata.annotations: {container.apparmor.security.beta.kubernetes.io/c: a}", `metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: Invalid value: "a": invalid AppArmor profile name: "a"`},
	}, podErrors)
}

func TestProfileAnnotations(t *testing.T) {
	testkinds.Rules(t, pod, []testkinds.Rule{
		{"seccomp agrees", "metadata.annotations: {seccomp.security.alpha.kubernetes.io/pod: docker/default}\nspec.securityContext: {seccompProfile: {type: RuntimeDefault}}", ""},
		{"seccomp of the Pod", "metadata.annotations: {seccomp.security.alpha.kubernetes.io/pod: unconfined}\nspec.securityContext: {seccompProfile: {type: RuntimeDefault}}", "spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match"},
		{"seccomp of a container", "metadata.annotations: {container.seccomp.security.alpha.kubernetes.io/c: runtime/default}\nspec.containers[0].securityContext: {seccompProfile: {type: Unconfined}}", "spec.containers[0].securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match"},
		{"seccomp with another file", "metadata.annotations: {seccomp.security.alpha.kubernetes.io/pod: localhost/a}\nspec.securityContext: {seccompProfile: {type: Localhost, localhostProfile: b}}", "spec.securityContext.seccompProfile.localhostProfile: Forbidden: seccomp profile in annotation and field must match"},
		{"seccomp with a file alone", "metadata.annotations: {seccomp.security.alpha.kubernetes.io/pod: unconfined}\nspec.securityContext: {seccompProfile: {type: Localhost, localhostProfile: b}}", "spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match"},
		{"AppArmor of a container", "metadata.annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}\nspec.containers[0].securityContext: {appArmorProfile: {type: RuntimeDefault}}", "spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation and field must match"},
		{"AppArmor of the Pod counts for its containers", "metadata.annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}\nspec.securityContext: {appArmorProfile: {type: RuntimeDefault}}", "spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation and field must match"},
		{"AppArmor does not count on Windows", "spec.os: {name: windows}\nmetadata.annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}", ""},
	}, podErrors)
}

func TestSyncAppArmor(t *testing.T) {
	testkinds.Rules(t, pod, []testkinds.Rule{
		{"no annotation", "metadata.annotations: {a: b}", ""},
		{"unconfined", "metadata.annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}", "metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the \"appArmorProfile\" field instead\nspec.containers[0].securityContext.appArmorProfile.type: Unconfined"},
		{"runtime/default", "metadata.annotations: {container.apparmor.security.beta.kubernetes.io/c: runtime/default}", "metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the \"appArmorProfile\" field instead\nspec.containers[0].securityContext.appArmorProfile.type: RuntimeDefault"},
		{"localhost", "metadata.annotations: {container.apparmor.security.beta.kubernetes.io/c: localhost/p}", "metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the \"appArmorProfile\" field instead\nspec.containers[0].securityContext.appArmorProfile.localhostProfile: p\nspec.containers[0].securityContext.appArmorProfile.type: Localhost"},
		{"no profile of the host", "metadata.annotations: {container.apparmor.security.beta.kubernetes.io/c: localhost/}", `metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead`},
		{"the field wins", "metadata.annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}\nspec.containers[0].securityContext: {appArmorProfile: {type: RuntimeDefault}}", ""},
		{"as the Pod has it", "metadata.annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}\nspec.securityContext: {appArmorProfile: {type: Unconfined}}", ""},
		{"not on Windows", "spec.os: {name: windows}\nmetadata.annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}", ""},
	}, func(p *corev1.Pod) (all []string) {
		changes := testkinds.Changes(p, func(p *corev1.Pod) { all = podspec.SyncAppArmor(p) })
		return append(all, changes...)
	})
}
