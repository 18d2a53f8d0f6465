package podspec_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestWindowsOptions(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.securityContext.windowsOptions", []testkinds.Rule{
		{"valid", ": {gmsaCredentialSpecName: a, gmsaCredentialSpec: b, runAsUserName: 'DOMAIN\\user'}", ""},
		{"gmsaCredentialSpecName is a name", ": {gmsaCredentialSpecName: A}", `gmsaCredentialSpecName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"gmsaCredentialSpec is not empty", ": {gmsaCredentialSpec: ''}", `gmsaCredentialSpec: Invalid value: "": gmsaCredentialSpec cannot be an empty string`},
		{"gmsaCredentialSpec has 64 KiB", ": {gmsaCredentialSpec: '{a*65537}'}", `gmsaCredentialSpec: Invalid value: "{a*65537}": gmsaCredentialSpec size must be under 64 KiB`},
		{"a user is not empty", ": {runAsUserName: ''}", `runAsUserName: Invalid value: "": runAsUserName cannot be an empty string`},
		{"a user has no control characters", ": {runAsUserName: \"a\\tb\"}", `runAsUserName: Invalid value: "a\tb": runAsUserName cannot contain control characters`},
		{"a user has one backslash", ": {runAsUserName: 'a\\b\\c'}", `runAsUserName: Invalid value: "a\\b\\c": runAsUserName cannot contain more than one backslash`},
		{"a domain has under 256 characters", ": {runAsUserName: '{a*256}\\b'}", "runAsUserName: Invalid value: \"{a*256}\\\\b\": runAsUserName's Domain length must be under 256 characters\nrunAsUserName: Invalid value: \"{a*256}\\\\b\": runAsUserName's Domain doesn't match the NetBios nor the DNS format"},
		{"a domain has a known form", ": {runAsUserName: '..\\b'}", `runAsUserName: Invalid value: "..\\b": runAsUserName's Domain doesn't match the NetBios nor the DNS format`},
		{"a domain needs a user", ": {runAsUserName: 'a\\'}", `runAsUserName: Invalid value: "a\\": runAsUserName's User cannot be empty`},
		{"a user has 104 characters", ": {runAsUserName: '{a*105}'}", `runAsUserName: Invalid value: "{a*105}": runAsUserName's User length must not be longer than 104 characters`},
		{"a user is not of dots alone", ": {runAsUserName: '. .'}", `runAsUserName: Invalid value: ". .": runAsUserName's User cannot contain only periods or spaces`},
		{"a user has no special characters", ": {runAsUserName: 'a|b'}", `runAsUserName: Invalid value: "a|b": runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]`},
	}), podErrors)
}

func TestHostProcess(t *testing.T) {
	const on = "windowsOptions: {hostProcess: true}"
	testkinds.Rules(t, pod, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "hostNetwork: true\nsecurityContext: {" + on + "}", ""},
		{"in the host's network", "securityContext: {" + on + "}", "hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers"},
		{"all containers or none", "hostNetwork: true\ncontainers[0].securityContext: {" + on + "}\ncontainers[1]: {name: d, image: i}", `: Invalid value: "": If pod contains any hostProcess containers then all containers must be HostProcess containers`},
		{"Pod and container say the same", "hostNetwork: true\nsecurityContext: {" + on + "}\ncontainers[0].securityContext: {windowsOptions: {hostProcess: false}}", "containers[0].securityContext.windowsOptions.hostProcess: Invalid value: false: pod hostProcess value must be identical if both are specified, was true"},
	}), podErrors)
}

func TestOS(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec", []testkinds.Rule{
		{"a name is required", "os: {}", "os.name: Required value"},
		{"a name is known", "os: {name: plan9}", `os: Unsupported value: "plan9": supported values: "linux", "windows"`},
		{"linux has no Windows options", "os: {name: linux}\nsecurityContext: {windowsOptions: {}}\ncontainers[0].securityContext: {windowsOptions: {}}", "securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod\ncontainers[0].securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod"},
		{"windows has windows options", "os: {name: windows}\nsecurityContext: {windowsOptions: {}}", ""},
		{"windows has no hostUsers", "os: {name: windows}\nhostUsers: true", "hostUsers: Forbidden: cannot be set for a windows pod"},
		{"windows has no hostPID", "os: {name: windows}\nhostPID: true", "hostPID: Forbidden: cannot be set for a windows pod"},
		{"windows has no hostIPC", "os: {name: windows}\nhostIPC: true", "hostIPC: Forbidden: cannot be set for a windows pod"},
		{"windows has no shareProcessNamespace", "os: {name: windows}\nshareProcessNamespace: false", "shareProcessNamespace: Forbidden: cannot be set for a windows pod"},
		{
			"windows has no security context of Linux",
			"os: {name: windows}\nsecurityContext: {appArmorProfile: {type: Unconfined}, seLinuxOptions: {}, seccompProfile: {type: Unconfined}, fsGroup: 1, fsGroupChangePolicy: Always, sysctls: [{name: a}], runAsUser: 1, runAsGroup: 1, supplementalGroups: [], supplementalGroupsPolicy: Merge, seLinuxChangePolicy: Recursive}",
			"securityContext.appArmorProfile: Forbidden: cannot be set for a windows pod\nsecurityContext.seLinuxOptions: Forbidden: cannot be set for a windows pod\nsecurityContext.seccompProfile: Forbidden: cannot be set for a windows pod\nsecurityContext.fsGroup: Forbidden: cannot be set for a windows pod\nsecurityContext.fsGroupChangePolicy: Forbidden: cannot be set for a windows pod\nsecurityContext.sysctls: Forbidden: cannot be set for a windows pod\nsecurityContext.runAsUser: Forbidden: cannot be set for a windows pod\nsecurityContext.runAsGroup: Forbidden: cannot be set for a windows pod\nsecurityContext.supplementalGroups: Forbidden: cannot be set for a windows pod\nsecurityContext.supplementalGroupsPolicy: Forbidden: cannot be set for a windows pod\nsecurityContext.seLinuxChangePolicy: Forbidden: cannot be set for a windows pod",
		},
		{
			"windows has no security context of Linux in containers",
			"os: {name: windows}\ncontainers[0].securityContext: {appArmorProfile: {type: Unconfined}, seLinuxOptions: {}, seccompProfile: {type: Unconfined}, capabilities: {}, readOnlyRootFilesystem: true, privileged: true, allowPrivilegeEscalation: true, procMount: Default, runAsUser: 1, runAsGroup: 1}",
			"containers[0].securityContext.appArmorProfile: Forbidden: cannot be set for a windows pod\ncontainers[0].securityContext.seLinuxOptions: Forbidden: cannot be set for a windows pod\ncontainers[0].securityContext.seccompProfile: Forbidden: cannot be set for a windows pod\ncontainers[0].securityContext.capabilities: Forbidden: cannot be set for a windows pod\ncontainers[0].securityContext.readOnlyRootFilesystem: Forbidden: cannot be set for a windows pod\ncontainers[0].securityContext.privileged: Forbidden: cannot be set for a windows pod\ncontainers[0].securityContext.allowPrivilegeEscalation: Forbidden: cannot be set for a windows pod\ncontainers[0].securityContext.procMount: Forbidden: cannot be set for a windows pod\ncontainers[0].securityContext.runAsUser: Forbidden: cannot be set for a windows pod\ncontainers[0].securityContext.runAsGroup: Forbidden: cannot be set for a windows pod",
		},
	}), podErrors)
}
