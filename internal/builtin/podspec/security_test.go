package podspec_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestSecurityContext(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.containers[0].securityContext", []testkinds.Rule{
		{"valid", ": {privileged: true, runAsUser: 0, runAsGroup: 0, procMount: Default, seccompProfile: {type: Localhost, localhostProfile: a/b}, appArmorProfile: {type: RuntimeDefault}}", ""},
		{"runAsUser is not negative", ": {runAsUser: -1}", "runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"},
		{"runAsGroup is not negative", ": {runAsGroup: -1}", "runAsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive"},
		{"procMount is known", ": {procMount: Masked}", `procMount: Unsupported value: "Masked": supported values: "Default", "Unmasked"`},
		{"Unmasked needs users of its own", ": {procMount: Unmasked}", "procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`"},
		{"Unmasked with users of its own", "spec.hostUsers: false\n: {procMount: Unmasked}", ""},
		{"privileged escalates", ": {privileged: true, allowPrivilegeEscalation: false}", `: Invalid value: {"Capabilities":null,"Privileged":true,"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"ReadOnlyRootFilesystem":null,"AllowPrivilegeEscalation":false,"ProcMount":null,"SeccompProfile":null,"AppArmor...`},
		{"CAP_SYS_ADMIN escalates", ": {allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}}", `: Invalid value: {"Capabilities":{"Add":["CAP_SYS_ADMIN"],"Drop":null},"Privileged":null,"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"ReadOnlyRootFilesystem":null,"AllowPrivilegeEscalation":false,"ProcMount":nul...`},
		{"seccomp: a type is required", ": {seccompProfile: {}}", "seccompProfile.type: Required value: type is required when seccompProfile is set"},
		{"seccomp: a type is known", ": {seccompProfile: {type: None}}", `seccompProfile.type: Unsupported value: "None": supported values: "Localhost", "RuntimeDefault", "Unconfined"`},
		{"seccomp: Localhost needs a file", ": {seccompProfile: {type: Localhost}}", "seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost"},
		{"seccomp: a file is relative", ": {seccompProfile: {type: Localhost, localhostProfile: /a}}", `seccompProfile.localhostProfile: Invalid value: "/a": must be a relative path`},
		{"seccomp: a file is for Localhost", ": {seccompProfile: {type: Unconfined, localhostProfile: a}}", `seccompProfile.localhostProfile: Invalid value: {"Type":"Unconfined","LocalhostProfile":"a"}: can only be set when seccomp type is Localhost`},
		{"AppArmor: a type is required", ": {appArmorProfile: {}}", "appArmorProfile.type: Required value: type is required when appArmorProfile is set"},
		{"AppArmor: a type is known", ": {appArmorProfile: {type: None}}", `appArmorProfile.type: Unsupported value: "None": supported values: "Localhost", "RuntimeDefault", "Unconfined"`},
		{"AppArmor: Localhost needs a profile", ": {appArmorProfile: {type: Localhost, localhostProfile: \"\"}}", "appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost"},
		{"AppArmor: a profile has no space around it", ": {appArmorProfile: {type: Localhost, localhostProfile: \"a \"}}", `appArmorProfile.localhostProfile: Invalid value: "a ": must not be padded with whitespace`},
		{"AppArmor: a profile has 4095 bytes", ": {appArmorProfile: {type: Localhost, localhostProfile: \"{a*4096}\"}}", "appArmorProfile.localhostProfile: Too long: may not be more than 4095 bytes"},
		{"AppArmor: a profile is for Localhost", ": {appArmorProfile: {type: Unconfined, localhostProfile: a}}", `appArmorProfile.localhostProfile: Invalid value: "a": can only be set when AppArmor type is Localhost`},
	}), podErrors)
}

func TestPodSecurityContext(t *testing.T) {
	testkinds.Rules(t, pod, []testkinds.Rule{
		{"processes are shared within the Pod or the host", "spec.shareProcessNamespace: true\nspec.hostPID: true", "spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled"},
	}, podErrors)
	testkinds.Rules(t, pod, testkinds.Below("spec.securityContext", []testkinds.Rule{
		{"valid", ": {fsGroup: 1, supplementalGroups: [1], fsGroupChangePolicy: OnRootMismatch, supplementalGroupsPolicy: Strict, seLinuxChangePolicy: Recursive, sysctls: [{name: kernel.shm_rmid_forced, value: \"1\"}]}", ""},
		{"fsGroup is not negative", ": {fsGroup: -1}", "fsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive"},
		{"runAsUser is not negative", ": {runAsUser: -1}", "runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"},
		{"runAsGroup is not negative", ": {runAsGroup: -1}", "runAsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive"},
		{"supplementalGroups are not negative", ": {supplementalGroups: [1, -1]}", "supplementalGroups[1]: Invalid value: -1: must be between 0 and 2147483647, inclusive"},
		{"fsGroupChangePolicy is known", ": {fsGroupChangePolicy: Never}", `fsGroupChangePolicy: Unsupported value: "Never": supported values: "Always", "OnRootMismatch"`},
		{"supplementalGroupsPolicy is known", ": {supplementalGroupsPolicy: None}", `supplementalGroupsPolicy: Unsupported value: "None": supported values: "Merge", "Strict"`},
		{"seLinuxChangePolicy is known", ": {seLinuxChangePolicy: None}", `seLinuxChangePolicy: Unsupported value: "None": supported values: "MountOption", "Recursive"`},
		{"seLinuxChangePolicy by mount option", ": {seLinuxChangePolicy: MountOption}", ""},
		{"seccomp", ": {seccompProfile: {}}", "seccompProfile.type: Required value: type is required when seccompProfile is set"},
		{"AppArmor", ": {appArmorProfile: {}}", "appArmorProfile.type: Required value: type is required when appArmorProfile is set"},
		{"a sysctl has a name", ": {sysctls: [{value: a}]}", "sysctls[0].name: Required value"},
		{"a sysctl has a valid name", ": {sysctls: [{name: A}]}", `sysctls[0].name: Invalid value: "A": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`},
		{"sysctls are unique", ": {sysctls: [{name: a.b}, {name: a.b}]}", `sysctls[1].name: Duplicate value: "a.b"`},
		{"a sysctl of the network is not for the host's", "spec.hostNetwork: true\n: {sysctls: [{name: net.a}]}", `sysctls[0].name: Invalid value: "net.a": may not be specified when 'hostNetwork' is true`},
		{"a sysctl of the network with slashes", "spec.hostNetwork: true\n: {sysctls: [{name: net/a.b}]}", `sysctls[0].name: Invalid value: "net/a.b": may not be specified when 'hostNetwork' is true`},
		{"a sysctl of IPC is not for the host's", "spec.hostIPC: true\n: {sysctls: [{name: kernel.shmmax}, {name: fs.mqueue.a}]}", "sysctls[0].name: Invalid value: \"kernel.shmmax\": may not be specified when 'hostIPC' is true\nsysctls[1].name: Invalid value: \"fs.mqueue.a\": may not be specified when 'hostIPC' is true"},
	}), podErrors)
}

func TestHostUsers(t *testing.T) {
	testkinds.Rules(t, podWithVolumes, testkinds.Below("spec", []testkinds.Rule{
		{"not with the host's network", "hostUsers: false\nhostNetwork: true", "hostNetwork: Forbidden: when `hostUsers` is false"},
		{"not with the host's processes", "hostUsers: false\nhostPID: true", "HostPID: Forbidden: when `hostUsers` is false"},
		{"not with the host's IPC", "hostUsers: false\nhostIPC: true", "HostIPC: Forbidden: when `hostUsers` is false"},
		{"not with devices", "hostUsers: false\ncontainers[0].volumeDevices: [{name: p, devicePath: /a}]", "containers[0].volumeDevices: Forbidden: when `hostUsers` is false"},
		{"the host's users go with all", "hostUsers: true\nhostNetwork: true\nhostPID: true", ""},
	}), podErrors)
}
