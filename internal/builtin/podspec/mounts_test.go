package podspec_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

const podWithVolumes = pod + `
  volumes:
  - {name: v}
  - {name: p, persistentVolumeClaim: {claimName: p}}
`

func TestMounts(t *testing.T) {
	testkinds.Rules(t, podWithVolumes, testkinds.Below("spec.containers[0].volumeMounts[0]", []testkinds.Rule{
		{"valid", ": {name: v, mountPath: /a, subPath: b, readOnly: true, recursiveReadOnly: Enabled, mountPropagation: None}", ""},
		{"a name is required", ": {mountPath: /a}", "name: Required value\nname: Not found: \"\""},
		{"a volume exists", ": {name: x, mountPath: /a}", `name: Not found: "x"`},
		{"a path is required", ": {name: v}", "mountPath: Required value"},
		{"paths are unique", ": {name: v, mountPath: /a}\nspec.containers[0].volumeMounts[1]: {name: p, mountPath: /a}", `spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must be unique`},
		{"not mounted and a device", ": {name: p, mountPath: /a}\nspec.containers[0].volumeDevices: [{name: p, devicePath: /dev/a}]", "name: Invalid value: \"p\": must not already exist in volumeDevices\nspec.containers[0].volumeDevices[0].name: Invalid value: \"p\": must not already exist in volumeMounts"},
		{"not at the path of a device", ": {name: v, mountPath: /dev/a}\nspec.containers[0].volumeDevices: [{name: p, devicePath: /dev/a}]", "mountPath: Invalid value: \"/dev/a\": must not already exist as a path in volumeDevices\nspec.containers[0].volumeDevices[0].devicePath: Invalid value: \"/dev/a\": must not already exist as a path in volumeMounts"},
		{"subPath is relative", ": {name: v, mountPath: /a, subPath: /b}", `spec.containers[0].volumeMounts.subPath: Invalid value: "/b": must be a relative path`},
		{"subPath stays below", ": {name: v, mountPath: /a, subPath: b/../..}", `spec.containers[0].volumeMounts.subPath: Invalid value: "b/../..": must not contain '..'`},
		{"subPathExpr is relative", ": {name: v, mountPath: /a, subPathExpr: /$(B)}", `spec.containers[0].volumeMounts.subPathExpr: Invalid value: "/$(B)": must be a relative path`},
		{"subPath or subPathExpr", ": {name: v, mountPath: /a, subPath: b, subPathExpr: b}", `subPathExpr: Invalid value: "b": subPathExpr and subPath are mutually exclusive`},
		{"mountPropagation is known", ": {name: v, mountPath: /a, mountPropagation: Both}", `spec.containers[0].volumeMounts.mountPropagation: Unsupported value: "Both": supported values: "Bidirectional", "HostToContainer", "None"`},
		{"Bidirectional needs privileges", ": {name: v, mountPath: /a, mountPropagation: Bidirectional}", "spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers"},
		{"Bidirectional with privileges", ": {name: v, mountPath: /a, mountPropagation: Bidirectional}\nspec.containers[0].securityContext: {privileged: true}", ""},
		{"recursiveReadOnly is known", ": {name: v, mountPath: /a, recursiveReadOnly: \"true\"}", `spec.containers[0].volumeMounts.recursiveReadOnly: Unsupported value: "true": supported values: "Disabled", "Enabled", "IfPossible"`},
		{"recursiveReadOnly needs readOnly", ": {name: v, mountPath: /a, recursiveReadOnly: Enabled}", "spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true"},
		{"recursiveReadOnly needs no propagation", ": {name: v, mountPath: /a, readOnly: true, recursiveReadOnly: IfPossible, mountPropagation: HostToContainer}", "spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified"},
	}), podErrors)
}

func TestDevices(t *testing.T) {
	testkinds.Rules(t, podWithVolumes, testkinds.Below("spec.containers[0].volumeDevices[0]", []testkinds.Rule{
		{"valid", ": {name: p, devicePath: /dev/a}", ""},
		{"a name is required", ": {devicePath: /dev/a}", "name: Required value\nname: Not found: \"\""},
		{"a volume exists", ": {name: x, devicePath: /dev/a}", `name: Not found: "x"`},
		{"a volume is of a claim", ": {name: v, devicePath: /dev/a}", `name: Invalid value: "v": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode`},
		{"names are unique", ": {name: p, devicePath: /dev/a}\nspec.containers[0].volumeDevices[1]: {name: p, devicePath: /dev/b}", `spec.containers[0].volumeDevices[1].name: Invalid value: "p": must be unique`},
		{"a path is required", ": {name: p}", "devicePath: Required value"},
		{"paths are unique", "spec.volumes[2]: {name: q, persistentVolumeClaim: {claimName: q}}\n: {name: p, devicePath: /dev/a}\nspec.containers[0].volumeDevices[1]: {name: q, devicePath: /dev/a}", `spec.containers[0].volumeDevices[1].devicePath: Invalid value: "/dev/a": must be unique`},
		{"a path has no backsteps", ": {name: p, devicePath: /dev/../a}", `devicePath: Invalid value: "/dev/../a": can not contain backsteps ('..')`},
	}), podErrors)
}
