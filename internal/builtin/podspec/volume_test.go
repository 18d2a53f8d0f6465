package podspec_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestVolumes(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.volumes", []testkinds.Rule{
		{"valid", ": [{name: a}, {name: b, secret: {secretName: s, optional: true}}]", ""},
		{"a name is required", ": [{emptyDir: {}}]", "[0].name: Required value"},
		{"a name is a label", ": [{name: A}]", `[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"names are unique", ": [{name: a}, {name: a}]", `[1].name: Duplicate value: "a"`},
		{"one source", ": [{name: a, emptyDir: {}, hostPath: {path: /}}]", "[0].hostPath: Forbidden: may not specify more than 1 volume type"},
		{"a wrong volume cannot be mounted", "spec.containers[0].volumeMounts: [{name: a, mountPath: /a}]\n: [{name: a, hostPath: {}}]", "[0].hostPath.path: Required value\nspec.containers[0].volumeMounts[0].name: Not found: \"a\""},
		{"a claim is not that of an ephemeral volume", ": [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}}}}}, {name: b, persistentVolumeClaim: {claimName: web-a}}]", `[1].persistentVolumeClaim.claimName: Invalid value: "web-a": must not reference a PVC that gets created for an ephemeral volume`},
	}), podErrors)
}

func TestVolumeSources(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.volumes[0]", []testkinds.Rule{
		{"emptyDir: a size is not negative", ": {name: v, emptyDir: {sizeLimit: -1}}", "emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity"},
		{"hostPath: a path is required", ": {name: v, hostPath: {}}", "hostPath.path: Required value"},
		{"hostPath: a path has no backsteps", ": {name: v, hostPath: {path: /a/../b}}", `hostPath.path: Invalid value: "/a/../b": must not contain '..'`},
		{"hostPath: a type is known", ": {name: v, hostPath: {path: /, type: Link}}", `hostPath.type: Unsupported value: "Link": supported values: "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"`},
		{"secret: a name is required", ": {name: v, secret: {}}", "secret.secretName: Required value"},
		{"secret: a mode", ": {name: v, secret: {secretName: s, defaultMode: 512}}", "secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive"},
		{"secret: a key is required", ": {name: v, secret: {secretName: s, items: [{path: p}]}}", "secret.items[0].key: Required value"},
		{"secret: a path is required", ": {name: v, secret: {secretName: s, items: [{key: k}]}}", "secret.items[0].path: Required value"},
		{"secret: a path is relative", ": {name: v, secret: {secretName: s, items: [{key: k, path: /p}]}}", `secret.items[0].path: Invalid value: "/p": must be a relative path`},
		{"secret: a path stays below", ": {name: v, secret: {secretName: s, items: [{key: k, path: a/../b}]}}", `secret.items[0].path: Invalid value: "a/../b": must not contain '..'`},
		{"secret: a path does not begin with dots", ": {name: v, secret: {secretName: s, items: [{key: k, path: ..a}]}}", `secret.items[0].path: Invalid value: "..a": must not start with '..'`},
		{"secret: a mode of a file", ": {name: v, secret: {secretName: s, items: [{key: k, path: p, mode: -1}]}}", "secret.items[0].mode: Invalid value: -1: must be a number between 0 and 0777 (octal), both inclusive"},
		{"configMap: a name is required", ": {name: v, configMap: {}}", "configMap.name: Required value"},
		{"configMap: a mode", ": {name: v, configMap: {name: m, defaultMode: 512}}", "configMap.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive"},
		{"configMap: a key is required", ": {name: v, configMap: {name: m, items: [{path: p}]}}", "configMap.items[0].key: Required value"},
		{"persistentVolumeClaim: a name is required", ": {name: v, persistentVolumeClaim: {}}", "persistentVolumeClaim.claimName: Required value"},
		{"downwardAPI: a mode", ": {name: v, downwardAPI: {defaultMode: 512}}", "downwardAPI.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive"},
		{"downwardAPI: a path is required", ": {name: v, downwardAPI: {items: [{fieldRef: {fieldPath: metadata.name}}]}}", "downwardAPI.path: Required value"},
		{"downwardAPI: one source", ": {name: v, downwardAPI: {items: [{path: p}]}}", "downwardAPI: Required value: one of fieldRef and resourceFieldRef is required"},
		{"downwardAPI: no two sources", ": {name: v, downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}, resourceFieldRef: {containerName: c, resource: limits.cpu}}]}}", `downwardAPI: Invalid value: "resource": fieldRef and resourceFieldRef can not be specified simultaneously`},
		{"downwardAPI: a field for volumes", ": {name: v, downwardAPI: {items: [{path: p, fieldRef: {fieldPath: spec.nodeName}}]}}", `downwardAPI.fieldRef.fieldPath: Unsupported value: "spec.nodeName": supported values: "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"`},
		{"downwardAPI: a container is required", ": {name: v, downwardAPI: {items: [{path: p, resourceFieldRef: {resource: limits.cpu}}]}}", "downwardAPI.resourceFieldRef.containerName: Required value"},
		{"csi: a driver is required", ": {name: v, csi: {}}", "csi.driver: Required value"},
		{"csi: a driver has 63 characters", ": {name: v, csi: {driver: \"{a*64}\"}}", "csi.driver: Too long: may not be more than 63 bytes"},
		{"csi: a driver is a name", ": {name: v, csi: {driver: a_b}}", `csi.driver: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of...`},
		{"csi: a secret has a name", ": {name: v, csi: {driver: A.b, nodePublishSecretRef: {}}}", "csi.nodePublishSecretRef.name: Required value"},
		{"csi: a secret has a valid name", ": {name: v, csi: {driver: a, nodePublishSecretRef: {name: A}}}", `csi.name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"ephemeral: a template is required", ": {name: v, ephemeral: {}}", "ephemeral.volumeClaimTemplate: Required value"},
		{"ephemeral: a template has labels and annotations alone", ": {name: v, ephemeral: {volumeClaimTemplate: {metadata: {name: a, labels: {a b: c}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}}}}}", "ephemeral.volumeClaimTemplate.metadata.labels: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\nephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set"},
		{"ephemeral: a claim is valid", ": {name: v, ephemeral: {volumeClaimTemplate: {spec: {}}}}", "ephemeral.volumeClaimTemplate.spec.accessModes: Required value: at least 1 access mode is required\nephemeral.volumeClaimTemplate.spec.resources[storage]: Required value"},
		{"ephemeral: the claim has a valid name", "metadata.name: \"{a*250}\"\n: {name: vvvvv, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}}}}}", `name: Invalid value: "vvvvv": PVC name "{a*250}-vvvvv": must be no more than 253 characters`},
		{"image: a reference is required", ": {name: v, image: {}}", "image.reference: Required value"},
		{"image: a policy is known", ": {name: v, image: {reference: a, pullPolicy: Often}}", `image.pullPolicy: Unsupported value: "Often": supported values: "Always", "IfNotPresent", "Never"`},
	}), podErrors)
}

func TestLegacyVolumeSources(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.volumes[0]", []testkinds.Rule{
		{"gitRepo", ": {name: v, gitRepo: {directory: /a}}", "gitRepo.repository: Required value\ngitRepo.directory: Invalid value: \"/a\": must be a relative path"},
		{"gcePersistentDisk", ": {name: v, gcePersistentDisk: {partition: 256}}", "persistentDisk.pdName: Required value\npersistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive"},
		{"awsElasticBlockStore", ": {name: v, awsElasticBlockStore: {partition: -1}}", "awsElasticBlockStore.volumeID: Required value\nawsElasticBlockStore.partition: Invalid value: -1: must be between 1 and 255, inclusive"},
		{"nfs", ": {name: v, nfs: {path: a}}", "nfs.server: Required value\nnfs.path: Invalid value: \"a\": must be an absolute path"},
		{"iscsi: required", ": {name: v, iscsi: {}}", "iscsi.targetPortal: Required value\niscsi.iqn: Required value"},
		{"iscsi: a name begins with its kind", ": {name: v, iscsi: {targetPortal: a, iqn: b, lun: 256}}", "iscsi.iqn: Invalid value: \"b\": must be valid format starting with iqn, eui, or naa\niscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive"},
		{"iscsi: a name has a form", ": {name: v, iscsi: {targetPortal: a, iqn: iqn.b, initiatorName: eui.0}}", "iscsi.iqn: Invalid value: \"iqn.b\": must be valid format\niscsi.initiatorname: Invalid value: \"eui.0\": must be valid format"},
		{"iscsi: CHAP needs a secret", ": {name: v, iscsi: {targetPortal: a, iqn: iqn.2001-04.com.example:a, chapAuthSession: true}}", "iscsi.secretRef: Required value"},
		{"iscsi: 64 characters with an initiator", ": {name: v, iscsi: {targetPortal: \"{a*63}\", iqn: iqn.2001-04.com.example:a, initiatorName: naa.{0*32}}}", `name: Invalid value: "v": Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.`},
		{"glusterfs", ": {name: v, glusterfs: {}}", "glusterfs.endpoints: Required value\nglusterfs.path: Required value"},
		{"flocker: one of two", ": {name: v, flocker: {}}", "flocker: Required value: one of datasetName and datasetUUID is required"},
		{"flocker: not both", ": {name: v, flocker: {datasetName: a/b, datasetUUID: c}}", "flocker: Invalid value: \"resource\": datasetName and datasetUUID can not be specified simultaneously\nflocker.datasetName: Invalid value: \"a/b\": must not contain '/'"},
		{"rbd", ": {name: v, rbd: {}}", "rbd.monitors: Required value\nrbd.image: Required value"},
		{"cinder", ": {name: v, cinder: {secretRef: {}}}", "cinder.volumeID: Required value\ncinder.secretRef.name: Required value"},
		{"cephfs", ": {name: v, cephfs: {}}", "cephfs.monitors: Required value"},
		{"quobyte: a registry is required", ": {name: v, quobyte: {}}", "quobyte.registry: Required value: must be a host:port pair or multiple pairs separated by commas\nquobyte.volume: Required value"},
		{"quobyte: a registry is a list of hosts", ": {name: v, quobyte: {volume: a, registry: \"b,c:1\"}}", `quobyte.registry: Invalid value: "b,c:1": must be a host:port pair or multiple pairs separated by commas`},
		{"quobyte: a tenant has 64 characters", ": {name: v, quobyte: {volume: a, registry: c:1, tenant: \"{a*65}\"}}", "quobyte.tenant: Required value: must be a UUID and may not exceed a length of 64 characters"},
		{"fc: targets or identifiers", ": {name: v, fc: {}}", "fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"},
		{"fc: not both", ": {name: v, fc: {targetWWNs: [a], wwids: [b], lun: 1}}", `fc.targetWWNs: Invalid value: ["a"]: targetWWNs and wwids can not be specified simultaneously`},
		{"fc: targets need a number", ": {name: v, fc: {targetWWNs: [a]}}", "fc.lun: Required value: lun is required if targetWWNs is specified"},
		{"fc: a number is a byte", ": {name: v, fc: {targetWWNs: [a], lun: 256}}", "fc.lun: Invalid value: 256: must be between 0 and 255, inclusive"},
		{"flexVolume", ": {name: v, flexVolume: {options: {a.k8s.io/b: c, kubernetes.io/d: e}}}", "flexVolume.driver: Required value\nflexVolume.options[a.k8s.io/b]: Invalid value: \"a.k8s.io/b\": kubernetes.io and k8s.io namespaces are reserved\nflexVolume.options[kubernetes.io/d]: Invalid value: \"kubernetes.io/d\": kubernetes.io and k8s.io namespaces are reserved"},
		{"azureFile", ": {name: v, azureFile: {}}", "azureFile.secretName: Required value\nazureFile.shareName: Required value"},
		{"azureDisk: required", ": {name: v, azureDisk: {}}", "azureDisk.diskName: Required value\nazureDisk.diskURI: Required value\nazureDisk.diskURI: Unsupported value: \"\": supported values: \"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd\""},
		{"azureDisk: modes", ": {name: v, azureDisk: {diskName: a, diskURI: https://a, cachingMode: b, kind: c}}", "azureDisk.cachingMode: Unsupported value: \"b\": supported values: \"None\", \"ReadOnly\", \"ReadWrite\"\nazureDisk.kind: Unsupported value: \"c\": supported values: \"Dedicated\", \"Managed\", \"Shared\""},
		{"azureDisk: a managed one", ": {name: v, azureDisk: {diskName: a, diskURI: https://a, kind: Managed}}", `azureDisk.diskURI: Unsupported value: "https://a": supported values: "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"`},
		{"vsphereVolume", ": {name: v, vsphereVolume: {}}", "vsphereVolume.volumePath: Required value"},
		{"photonPersistentDisk", ": {name: v, photonPersistentDisk: {}}", "photonPersistentDisk.pdID: Required value"},
		{"portworxVolume", ": {name: v, portworxVolume: {}}", "portworxVolume.volumeID: Required value"},
		{"storageos: a name is required", ": {name: v, storageos: {volumeNamespace: A, secretRef: {}}}", "storageos.volumeName: Required value\nstorageos.volumeNamespace: Invalid value: \"A\": a lowercase RFC 1123 label must consist of...\nstorageos.secretRef.name: Required value"},
		{"storageos: a name is a label", ": {name: v, storageos: {volumeName: A}}", `storageos.volumeName: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"scaleIO", ": {name: v, scaleIO: {}}", "scaleIO.gateway: Required value\nscaleIO.system: Required value\nscaleIO.volumeName: Required value"},
	}), podErrors)
}

func TestProjectedVolumes(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.volumes[0].projected", []testkinds.Rule{
		{"valid", "spec.serviceAccountName: a\nspec.volumes[0]: {name: v}\n: {sources: [{secret: {name: s}}, {configMap: {name: m, items: [{key: k, path: p}]}}, {serviceAccountToken: {path: t}}]}", ""},
		{"a mode", "spec.volumes[0]: {name: v}\n: {defaultMode: 512}", "defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive"},
		{"one source at a time", "spec.volumes[0]: {name: v}\n: {sources: [{secret: {name: s}, configMap: {name: m}}]}", "sources[0]: Forbidden: may not specify more than 1 volume type per source"},
		{"a Secret has a name", "spec.volumes[0]: {name: v}\n: {sources: [{secret: {}}]}", "sources[0].secret.name: Required value"},
		{"a ConfigMap has a name", "spec.volumes[0]: {name: v}\n: {sources: [{configMap: {}}]}", "sources[0].configMap.name: Required value"},
		{"a key is required", "spec.volumes[0]: {name: v}\n: {sources: [{secret: {name: s, items: [{path: p}]}}]}", "sources[0].secret.items[0].key: Required value"},
		{"a downward file is checked", "spec.volumes[0]: {name: v}\n: {sources: [{downwardAPI: {items: [{path: p}]}}]}", "sources[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required"},
		{"paths are unique", "spec.volumes[0]: {name: v}\n: {sources: [{secret: {name: s, items: [{key: k, path: p}]}}, {downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}]}", `: Invalid value: "p": conflicting duplicate paths`},
		{"a token lives for 10 minutes", "spec.serviceAccountName: a\nspec.volumes[0]: {name: v}\n: {sources: [{serviceAccountToken: {path: t, expirationSeconds: 599}}]}", "sources[0].serviceAccountToken.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"},
		{"a token lives for 2^32 seconds at most", "spec.serviceAccountName: a\nspec.volumes[0]: {name: v}\n: {sources: [{serviceAccountToken: {path: t, expirationSeconds: 4294967297}}]}", "sources[0].serviceAccountToken.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds"},
		{"a token has a path", "spec.serviceAccountName: a\nspec.volumes[0]: {name: v}\n: {sources: [{serviceAccountToken: {}}]}", "path: Required value"},
		{"a token has a relative path", "spec.serviceAccountName: a\nspec.volumes[0]: {name: v}\n: {sources: [{serviceAccountToken: {path: /t}}]}", `path: Invalid value: "/t": must be a relative path`},
	}), podErrors)
}

func TestVolumesOfTemplates(t *testing.T) {
	testkinds.Rules(t, template, []testkinds.Rule{
		{"an image has a reference", "spec.volumes: [{name: v, image: {}}]", "template.spec.volumes[0].image.reference: Required value"},
		{"the name of a claim is not known", "spec.volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}}}}}, {name: w, persistentVolumeClaim: {claimName: web-v}}]", ""},
	}, templateErrors)
}

func TestVolumeDefaults(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.volumes[0]", []testkinds.Rule{
		{"none: emptyDir", ": {name: v}", "emptyDir: {}"},
		{"image", ": {name: v, image: {reference: a}}", "image.pullPolicy: Always"},
		{"hostPath", ": {name: v, hostPath: {path: /}}", `hostPath.type: ""`},
		{"secret", ": {name: v, secret: {secretName: s}}", "secret.defaultMode: 420"},
		{"configMap", ": {name: v, configMap: {name: m}}", "configMap.defaultMode: 420"},
		{"downwardAPI", ": {name: v, downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}", "downwardAPI.defaultMode: 420\ndownwardAPI.items[0].fieldRef.apiVersion: v1"},
		{"projected", ": {name: v, projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}]}}", "projected.defaultMode: 420\nprojected.sources[0].serviceAccountToken.expirationSeconds: 3600\nprojected.sources[1].downwardAPI.items[0].fieldRef.apiVersion: v1"},
		{"ephemeral", ": {name: v, ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: 100u}}}}}}", "ephemeral.volumeClaimTemplate.spec.resources.requests.storage: 1m\nephemeral.volumeClaimTemplate.spec.volumeMode: Filesystem"},
		{"iscsi", ": {name: v, iscsi: {targetPortal: a, iqn: b, lun: 0}}", "iscsi.iscsiInterface: default"},
		{"rbd", ": {name: v, rbd: {monitors: [a], image: b}}", "rbd.keyring: /etc/ceph/keyring\nrbd.pool: rbd\nrbd.user: admin"},
		{"scaleIO", ": {name: v, scaleIO: {gateway: a, system: b, secretRef: {name: c}}}", "scaleIO.fsType: xfs\nscaleIO.storageMode: ThinProvisioned"},
		{"azureDisk", ": {name: v, azureDisk: {diskName: a, diskURI: b}}", "azureDisk.cachingMode: ReadWrite\nazureDisk.fsType: ext4\nazureDisk.kind: Shared\nazureDisk.readOnly: false"},
	}), defaultsBelow("spec.volumes[0]"))
}
