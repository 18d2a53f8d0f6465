package builtin_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/claimspec"
	"github.com/tidemark-dev/tidemark/internal/builtin/storage"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

const (
	storageClaim = "{metadata: {name: c}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"
	volume       = "{metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /a}}}"
)

func TestPersistentVolumeClaim(t *testing.T) {
	testkinds.Rules(t, storageClaim, []testkinds.Rule{
		{"the spec is checked", "spec.accessModes: []", "spec.accessModes: Required value: at least 1 access mode is required"},
	}, func(c *corev1.PersistentVolumeClaim) []string { return testkinds.Texts(storage.ValidateClaim(c)) })
	testkinds.Rules(t, storageClaim, testkinds.Below("spec", []testkinds.Rule{
		{"prepare: a source is a reference, too", "dataSource: {kind: PersistentVolumeClaim, name: a}", "dataSourceRef.apiGroup: null\ndataSourceRef.kind: PersistentVolumeClaim\ndataSourceRef.name: a"},
		{"prepare: a reference is a source, too", "dataSourceRef: {apiGroup: a.b, kind: A, name: a}", "dataSource.apiGroup: a.b\ndataSource.kind: A\ndataSource.name: a"},
		{"prepare: an old source is a claim or a snapshot", "dataSource: {apiGroup: a.b, kind: A, name: a}", "dataSource.apiGroup: removed\ndataSource.kind: removed\ndataSource.name: removed"},
		{"prepare: no references elsewhere", "dataSourceRef: {kind: PersistentVolumeClaim, name: a, namespace: b}", "dataSourceRef.apiGroup: removed\ndataSourceRef.kind: removed\ndataSourceRef.name: removed\ndataSourceRef.namespace: removed"},
	}), func(c *corev1.PersistentVolumeClaim) []string { return testkinds.Changes(c, storage.PrepareClaim) })
	testkinds.Updates(t, storageClaim, []testkinds.Update{
		{"a volume is named", "", "spec.volumeName: v", ""},
		{"the spec stays", "spec.volumeName: v", "spec.volumeName: w", "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims..."},
		{"a bound claim grows", "status: {phase: Bound, capacity: {storage: 1Gi}}", "spec.resources.requests.storage: 2Gi", ""},
		{"a bound claim does not shrink", "status: {phase: Bound, capacity: {storage: 1Gi}}", "spec.resources.requests.storage: 512Mi", "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"},
		{"the mode stays", "spec.volumeMode: Filesystem", "spec.volumeMode: Block", "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims...\nvolumeMode: Invalid value: \"Block\": field is immutable"},
		{"a class comes", "", "spec.storageClassName: a", ""},
		{"a class follows the annotation", "metadata.annotations: {volume.beta.kubernetes.io/storage-class: a}", "spec.storageClassName: a", ""},
		{"the annotation stays", "metadata.annotations: {volume.beta.kubernetes.io/storage-class: a}", "metadata.annotations: {volume.beta.kubernetes.io/storage-class: b}", `metadata.annotations.volume.beta.kubernetes.io/storage-class: Invalid value: "b": field is immutable`},
		{"attributes do not go", "spec.volumeAttributesClassName: a\nstatus: {phase: Bound, currentVolumeAttributesClassName: a}", "spec.volumeAttributesClassName: null", "spec.volumeAttributesClassName: Forbidden: update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"},
		{"attributes are not empty", "spec.volumeAttributesClassName: a\nstatus: {phase: Bound, currentVolumeAttributesClassName: a}", "spec.volumeAttributesClassName: ''", "spec.volumeAttributesClassName: Forbidden: update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil"},
	}, func(c, old *corev1.PersistentVolumeClaim) []string {
		for _, c := range []*corev1.PersistentVolumeClaim{c, old} {
			claimspec.DefaultClaim(c)
		}
		return testkinds.Texts(storage.ValidateClaimUpdate(c, old))
	})
	testkinds.Updates(t, storageClaim, []testkinds.Update{
		{"status: amounts are not negative", "", "status: {capacity: {storage: -1}, allocatedResources: {storage: -1}}", "status.capacity[storage]: Invalid value: -1: must be a valid resource quantity\nstatus.allocatedResources[storage]: Invalid value: -1: must be a valid resource quantity"},
		{"status: resources are storage", "", "status: {allocatedResources: {cpu: 1, a b: 1}}", "status.allocatedResources: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\nstatus.allocatedResources: Unsupported value: \"cpu\": supported values: \"storage\""},
		{"status: a state is known", "", "status: {allocatedResourceStatuses: {storage: Any}}", `status.allocatedResourceStatuses: Unsupported value: "storage": supported values: "ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending"`},
	}, func(c, old *corev1.PersistentVolumeClaim) []string {
		return testkinds.Texts(storage.ValidateClaimStatus(c, old))
	})
	testkinds.Rules(t, storageClaim, []testkinds.Rule{
		{"warn: the annotation and parts of a byte", "metadata.annotations: {volume.beta.kubernetes.io/storage-class: a}\nspec.resources.requests.storage: 100m", "metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use \"storageClassName\" attribute instead\nspec.resources.requests[storage]: fractional byte value \"100m\" is invalid, must be an integer"},
	}, func(c *corev1.PersistentVolumeClaim) []string { return storage.ClaimWarnings(c, nil) })
}

func TestPersistentVolume(t *testing.T) {
	validate := func(v *corev1.PersistentVolume) []string {
		storage.DefaultVolume(v)
		return testkinds.Texts(storage.ValidateVolume(v))
	}
	testkinds.Rules(t, volume, testkinds.Below("spec", []testkinds.Rule{
		{"an access mode is required", "accessModes: []", "accessModes: Required value"},
		{"an access mode is known", "accessModes: [Any]", `accessModes: Unsupported value: "Any": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"`},
		{"a capacity is required", "capacity: {}", "capacity: Required value\ncapacity: Unsupported value: {}: supported values: \"storage\""},
		{"a capacity is storage alone", "capacity: {storage: 1, cpu: 1}", `capacity: Unsupported value: {"cpu":"1","storage":"1"}: supported values: "storage"`},
		{"a capacity is positive", "capacity: {storage: -1}", "capacity[storage]: Invalid value: -1: must be a valid resource quantity\ncapacity[storage]: Invalid value: \"-1\": must be greater than zero"},
		{"a reclaim policy is known", "persistentVolumeReclaimPolicy: Any", `persistentVolumeReclaimPolicy: Unsupported value: "Any": supported values: "Delete", "Recycle", "Retain"`},
		{"the root is not recycled", "persistentVolumeReclaimPolicy: Recycle\nhostPath.path: /", "persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'"},
		{"affinity is required affinity", "nodeAffinity: {}", "nodeAffinity.required: Required value: must specify required node constraints"},
		{"affinity has a term", "nodeAffinity: {required: {nodeSelectorTerms: []}}", "nodeAffinity.required.nodeSelectorTerms: Required value: must have at least one node selector term"},
		{"storageClassName is a name", "storageClassName: A", `storageClassName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"volumeMode is known", "volumeMode: Any", `volumeMode: Unsupported value: "Any": supported values: "Block", "Filesystem"`},
		{"attributes are not empty", "volumeAttributesClassName: ''", "volumeAttributesClassName: Required value: an empty string is disallowed\ncsi: Required value: has to be specified when using volumeAttributesClassName"},
		{"attributes are of a driver", "volumeAttributesClassName: A", "volumeAttributesClassName: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of...\ncsi: Required value: has to be specified when using volumeAttributesClassName"},
		{"mount options are for some", "metadata.annotations: {volume.beta.kubernetes.io/mount-options: a}", "metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: may not specify mount options for this volume type"},
		{"one source", "nfs: {server: a, path: /b}", "nfs: Forbidden: may not specify more than 1 volume type"},
		{"a source", "hostPath: null", ": Required value: must specify a volume type"},
		{"local needs affinity", "hostPath: null\nlocal: {path: /a/../b}", "local.path: Invalid value: \"/a/../b\": must not contain '..'\nnodeAffinity: Required value: Local volume requires node affinity"},
		{"csi: required", "hostPath: null\ncsi: {controllerPublishSecretRef: {}}", "csi.driver: Required value\ncsi.volumeHandle: Required value\ncsi.controllerPublishSecretRef.name: Required value\ncsi.controllerPublishSecretRef.namespace: Required value"},
		{"csi: names", "hostPath: null\ncsi: {driver: a_b, volumeHandle: v, nodePublishSecretRef: {name: A, namespace: A}}", "csi.driver: Invalid value: \"a_b\": a lowercase RFC 1123 subdomain must consist of...\ncsi.nodePublishSecretRef.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of...\ncsi.nodePublishSecretRef.namespace: Invalid value: \"A\": a lowercase RFC 1123 label must consist of..."},
		{"hostPath", "hostPath: {path: /a/.., type: Any}", "hostPath.path: Invalid value: \"/a/..\": must not contain '..'\nhostPath.type: Unsupported value: \"Any\": supported values: \"\", \"BlockDevice\", \"CharDevice\", \"Directory\", \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \"Socket\""},
		{"nfs", "hostPath: null\nnfs: {path: a}", "nfs.server: Required value\nnfs.path: Invalid value: \"a\": must be an absolute path"},
		{"iscsi", "hostPath: null\niscsi: {iqn: a, lun: 256, chapAuthSession: true, initiatorName: b}", "iscsi.targetPortal: Required value\niscsi.iqn: Invalid value: \"a\": must be valid format\niscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive\niscsi.secretRef: Required value\niscsi.initiatorname: Invalid value: \"b\": must be valid format"},
		{"iscsi: a secret", "hostPath: null\niscsi: {targetPortal: a, iqn: iqn.2001-04.com.example:a, secretRef: {}}", "iscsi.secretRef.name: Required value"},
		{"fc", "hostPath: null\nfc: {targetWWNs: [a], wwids: [b], lun: 256}", "fc.targetWWNs: Invalid value: [\"a\"]: targetWWNs and wwids can not be specified simultaneously\nfc.lun: Invalid value: 256: must be between 0 and 255, inclusive"},
		{"gcePersistentDisk", "hostPath: null\ngcePersistentDisk: {partition: 256}", "persistentDisk.pdName: Required value\npersistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive"},
		{"awsElasticBlockStore", "hostPath: null\nawsElasticBlockStore: {partition: 256}", "awsElasticBlockStore.volumeID: Required value\nawsElasticBlockStore.partition: Invalid value: 256: must be between 1 and 255, inclusive"},
		{"glusterfs", "hostPath: null\nglusterfs: {endpointsNamespace: A}", "glusterfs.endpoints: Required value\nglusterfs.path: Required value\nglusterfs.endpointsNamespace: Invalid value: \"A\": a lowercase RFC 1123 label must consist of..."},
		{"flocker", "hostPath: null\nflocker: {datasetName: a/b, datasetUUID: c}", "flocker: Invalid value: \"resource\": datasetName and datasetUUID can not be specified simultaneously\nflocker.datasetName: Invalid value: \"a/b\": must not contain '/'"},
		{"rbd", "hostPath: null\nrbd: {}", "rbd.monitors: Required value\nrbd.image: Required value"},
		{"quobyte", "hostPath: null\nquobyte: {registry: a}", "quobyte.registry: Invalid value: \"a\": must be a host:port pair or multiple pairs separated by commas\nquobyte.volume: Required value"},
		{"cephfs", "hostPath: null\ncephfs: {}", "cephfs.monitors: Required value"},
		{"cinder", "hostPath: null\ncinder: {secretRef: {}}", "cinder.volumeID: Required value\ncinder.secretRef.name: Required value\ncinder.secretRef.namespace: Required value"},
		{"flexVolume", "hostPath: null\nflexVolume: {options: {a.k8s.io/b: c}}", "flexVolume.driver: Required value\nflexVolume.options[a.k8s.io/b]: Invalid value: \"a.k8s.io/b\": kubernetes.io and k8s.io namespaces are reserved"},
		{"azureFile", "hostPath: null\nazureFile: {secretNamespace: ''}", "azureFile.secretName: Required value\nazureFile.shareName: Required value\nazureFile.secretNamespace: Required value"},
		{"azureDisk", "hostPath: null\nazureDisk: {cachingMode: a, kind: b}", "azureDisk.diskName: Required value\nazureDisk.diskURI: Required value\nazureDisk.cachingMode: Unsupported value: \"a\": supported values: \"None\", \"ReadOnly\", \"ReadWrite\"\nazureDisk.kind: Unsupported value: \"b\": supported values: \"Dedicated\", \"Managed\", \"Shared\"\nazureDisk.diskURI: Unsupported value: \"\": supported values: \"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd\""},
		{"azureDisk: a managed one", "hostPath: null\nazureDisk: {diskName: a, diskURI: b, kind: Managed}", `azureDisk.diskURI: Unsupported value: "b": supported values: "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"`},
		{"vsphereVolume", "hostPath: null\nvsphereVolume: {}", "vsphereVolume.volumePath: Required value"},
		{"photonPersistentDisk", "hostPath: null\nphotonPersistentDisk: {}", "photonPersistentDisk.pdID: Required value"},
		{"portworxVolume", "hostPath: null\nportworxVolume: {}", "portworxVolume.volumeID: Required value"},
		{"scaleIO", "hostPath: null\nscaleIO: {}", "scaleIO.gateway: Required value\nscaleIO.system: Required value\nscaleIO.volumeName: Required value"},
		{"storageos", "hostPath: null\nstorageos: {volumeNamespace: A, secretRef: {}}", "storageos.volumeName: Required value\nstorageos.volumeNamespace: Invalid value: \"A\": a lowercase RFC 1123 label must consist of...\nstorageos.secretRef.name: Required value\nstorageos.secretRef.namespace: Required value"},
	}), validate)
	testkinds.Rules(t, volume, testkinds.Below("spec", []testkinds.Rule{
		{"default: all", "hostPath: {path: /a}", "hostPath.type: \"\"\npersistentVolumeReclaimPolicy: Retain\nvolumeMode: Filesystem\nstatus.phase: Pending\nstatus: removed"},
		{"default: iscsi", "hostPath: null\niscsi: {targetPortal: a, iqn: b, lun: 1}", "iscsi.iscsiInterface: default\npersistentVolumeReclaimPolicy: Retain\nvolumeMode: Filesystem\nstatus.phase: Pending\nstatus: removed"},
		{"default: azureDisk", "hostPath: null\nazureDisk: {diskName: a, diskURI: b}", "azureDisk.cachingMode: ReadWrite\nazureDisk.fsType: ext4\nazureDisk.kind: Shared\nazureDisk.readOnly: false\npersistentVolumeReclaimPolicy: Retain\nvolumeMode: Filesystem\nstatus.phase: Pending\nstatus: removed"},
	}), func(v *corev1.PersistentVolume) []string { return testkinds.Changes(v, storage.DefaultVolume) })
	testkinds.Updates(t, volume, []testkinds.Update{
		{"a capacity changes", "", "spec.capacity.storage: 2Gi", ""},
		{"errors are there twice", "", "spec.accessModes: []", "spec.accessModes: Required value\nspec.accessModes: Required value"},
		{"the source stays", "", "spec.hostPath.path: /b", "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation..."},
		{"an expand secret comes", "spec.hostPath: null\nspec.csi: {driver: a, volumeHandle: v}", "spec.csi.controllerExpandSecretRef: {name: a, namespace: b}", ""},
		{"the mode stays", "", "spec.volumeMode: Block", `volumeMode: Invalid value: "Block": field is immutable`},
		{"affinity stays", "spec.nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}", "spec.nodeAffinity: null", "nodeAffinity: Invalid value: null: field is immutable, except for updating from beta label to GA"},
		{"affinity takes the new name of a label", "spec.nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: failure-domain.beta.kubernetes.io/zone, operator: Exists}]}]}}", "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key: topology.kubernetes.io/zone", ""},
		{"attributes do not go", "spec.hostPath: null\nspec.csi: {driver: a, volumeHandle: v}\nspec.volumeAttributesClassName: a", "spec.volumeAttributesClassName: null", "spec.volumeAttributesClassName: Forbidden: update from non-nil value to nil is forbidden"},
	}, func(v, old *corev1.PersistentVolume) []string {
		storage.DefaultVolume(v)
		storage.DefaultVolume(old)
		return testkinds.Texts(storage.ValidateVolumeUpdate(v, old))
	})
	testkinds.Rules(t, volume, []testkinds.Rule{
		{"warn: annotations", "metadata.annotations: {volume.beta.kubernetes.io/storage-class: a, volume.beta.kubernetes.io/mount-options: b}", "metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use \"storageClassName\" attribute instead\nmetadata.annotations[volume.beta.kubernetes.io/mount-options]: deprecated since v1.31; use \"mountOptions\" attribute instead"},
		{"warn: Recycle", "spec.persistentVolumeReclaimPolicy: Recycle", "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning."},
		{"warn: deprecated labels", "spec.nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: beta.kubernetes.io/os, operator: Exists}]}]}}", `spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead`},
		{"warn: drivers that are gone", "spec: {cephfs: {}, photonPersistentDisk: {}, scaleIO: {}, storageos: {}, glusterfs: {}, rbd: {}}", "spec.cephfs: deprecated in v1.28, non-functional in v1.31+\nspec.photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+\nspec.scaleIO: deprecated in v1.16, non-functional in v1.22+\nspec.storageOS: deprecated in v1.22, non-functional in v1.25+\nspec.glusterfs: deprecated in v1.25, non-functional in v1.26+\nspec.rbd: deprecated in v1.28, non-functional in v1.31+"},
	}, func(v *corev1.PersistentVolume) []string { return storage.VolumeWarnings(v, nil) })
}

func TestStorageClasses(t *testing.T) {
	const class = "{metadata: {name: c}, provisioner: a.b/c}"
	testkinds.Rules(t, class, []testkinds.Rule{
		{"valid", "allowedTopologies: [{matchLabelExpressions: [{key: a, values: [b]}]}]", ""},
		{"a provisioner is required", "provisioner: ''", "provisioner: Required value"},
		{"a provisioner is a name", "provisioner: a b", `provisioner: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"a parameter has a name", "parameters: {'': a}", `parameters: Invalid value: "": field can not be empty.`},
		{"parameters have 256 KiB", "parameters: {a: \"{b*262144}\"}", "parameters: Too long: may not be more than 262144 bytes"},
		{"reclaimPolicy is known", "reclaimPolicy: Recycle", `reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"`},
		{"volumeBindingMode is known", "volumeBindingMode: Any", `volumeBindingMode: Unsupported value: "Any": supported values: "Immediate", "WaitForFirstConsumer"`},
		{"a topology has values", "allowedTopologies: [{matchLabelExpressions: [{key: a}]}]", "allowedTopologies[0].matchLabelExpressions[0].values: Required value"},
		{"a topology has a label", "allowedTopologies: [{matchLabelExpressions: [{key: a b, values: [c]}]}]", `allowedTopologies[0].matchLabelExpressions[0].key: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"values of a topology are unique", "allowedTopologies: [{matchLabelExpressions: [{key: a, values: [b, b]}]}]", `allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "b"`},
		{"keys of a topology are unique", "allowedTopologies: [{matchLabelExpressions: [{key: a, values: [b]}, {key: a, values: [c]}]}]", `allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value: "a"`},
		{"topologies are unique", "allowedTopologies: [{matchLabelExpressions: [{key: a, values: [b]}]}, {matchLabelExpressions: [{key: a, values: [b]}]}]", `allowedTopologies[1].matchLabelExpressions: Duplicate value: ""`},
	}, func(c *storagev1.StorageClass) []string {
		storage.DefaultClass(c)
		return testkinds.Texts(storage.ValidateClass(c))
	})
	testkinds.Updates(t, class, []testkinds.Update{
		{"expansion changes", "", "allowVolumeExpansion: true", ""},
		{"the rest stays", "", "parameters: {a: b}\nprovisioner: x\nreclaimPolicy: Retain\nvolumeBindingMode: WaitForFirstConsumer", "parameters: Invalid value: {\"a\":\"b\"}: field is immutable\nprovisioner: Invalid value: \"x\": field is immutable\nreclaimPolicy: Invalid value: \"Retain\": field is immutable\nvolumeBindingMode: Invalid value: \"WaitForFirstConsumer\": field is immutable"},
	}, func(c, old *storagev1.StorageClass) []string {
		storage.DefaultClass(c)
		storage.DefaultClass(old)
		return testkinds.Texts(storage.ValidateClassUpdate(c, old))
	})
	testkinds.Rules(t, class, []testkinds.Rule{
		{"warn: deprecated labels", "allowedTopologies: [{matchLabelExpressions: [{key: beta.kubernetes.io/os, values: [b]}]}]", `allowedTopologies[0].matchLabelExpressions[0].key: deprecated since v1.14; use "kubernetes.io/os" instead`},
	}, func(c *storagev1.StorageClass) []string { return storage.ClassWarnings(c, nil) })
	const attributes = "{metadata: {name: c}, driverName: a, parameters: {b: c}}"
	testkinds.Rules(t, attributes, []testkinds.Rule{
		{"attributes: a driver is required", "driverName: ''", "driverName: Required value"},
		{"attributes: a parameter is required", "parameters: {}", "parameters: Required value: must contain at least one key/value pair"},
	}, func(c *storagev1.VolumeAttributesClass) []string {
		return testkinds.Texts(storage.ValidateAttributes(c))
	})
	testkinds.Updates(t, attributes, []testkinds.Update{
		{"attributes: nothing changes", "", "driverName: x\nparameters: {b: d}", "driverName: Forbidden: updates to driverName are forbidden.\nparameters: Forbidden: updates to parameters are forbidden."},
	}, func(c, old *storagev1.VolumeAttributesClass) []string {
		return testkinds.Texts(storage.ValidateAttributesUpdate(c, old))
	})
}

func TestCSIDriver(t *testing.T) {
	const driver = "{metadata: {name: d}}"
	testkinds.Rules(t, driver, testkinds.Below("spec", []testkinds.Rule{
		{"fsGroupPolicy is known", "fsGroupPolicy: Any", `fsGroupPolicy: Unsupported value: "Any": supported values: "File", "None", "ReadWriteOnceWithFSType"`},
		{"lifecycle modes are known", "volumeLifecycleModes: [Any]", `volumeLifecycleModes: Unsupported value: "Any": supported values: "Persistent", "Ephemeral"`},
		{"audiences are unique", "tokenRequests: [{audience: a}, {audience: a}]", `tokenRequests[1].audience: Duplicate value: "a"`},
		{"a token lives for 10 minutes", "tokenRequests: [{audience: a, expirationSeconds: 599}]", "tokenRequests[0].expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"},
		{"a token lives for 2^32 seconds at most", "tokenRequests: [{audience: a, expirationSeconds: 4294967297}]", "tokenRequests[0].expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds"},
		{"an update takes 10 seconds", "nodeAllocatableUpdatePeriodSeconds: 9", "nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds"},
		{"a secret is for tokens", "serviceAccountTokenInSecrets: true", "serviceAccountTokenInSecrets: Invalid value: true: serviceAccountTokenInSecrets is set but no tokenRequests are specified"},
	}), func(d *storagev1.CSIDriver) []string {
		storage.DefaultDriver(d)
		return testkinds.Texts(storage.ValidateDriver(d))
	})
	testkinds.Rules(t, driver, []testkinds.Rule{
		{"required", "spec: {}", "spec.attachedRequired: Required value\nspec.podInfoOnMount: Required value\nspec.storageCapacity: Required value\nspec.seLinuxMount: Required value"},
	}, func(d *storagev1.CSIDriver) []string { return testkinds.Texts(storage.ValidateDriver(d)) })
	testkinds.Rules(t, driver, []testkinds.Rule{
		{"default: all", "spec: {}", "spec.attachRequired: true\nspec.fsGroupPolicy: ReadWriteOnceWithFSType\nspec.podInfoOnMount: false\nspec.preventPodSchedulingIfMissing: false\nspec.requiresRepublish: false\nspec.seLinuxMount: false\nspec.storageCapacity: false\nspec.volumeLifecycleModes[0]: Persistent\nspec: removed"},
	}, func(d *storagev1.CSIDriver) []string { return testkinds.Changes(d, storage.DefaultDriver) })
	testkinds.Updates(t, driver, []testkinds.Update{
		{"attachRequired and modes stay", "", "spec: {attachRequired: false, volumeLifecycleModes: [Ephemeral]}", "spec.attachedRequired: Invalid value: false: field is immutable\nspec.volumeLifecycleModes: Invalid value: [\"Ephemeral\"]: field is immutable"},
	}, func(d, old *storagev1.CSIDriver) []string {
		storage.DefaultDriver(d)
		storage.DefaultDriver(old)
		return testkinds.Texts(storage.ValidateDriverUpdate(d, old))
	})
	testkinds.Updates(t, driver, []testkinds.Update{
		{"warn: tokens in attributes", "", "spec: {tokenRequests: [{audience: a}]}", "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"},
	}, storage.DriverWarnings)
}

func TestCSINode(t *testing.T) {
	const node = "{metadata: {name: a}, spec: {drivers: [{name: d, nodeID: e, topologyKeys: [f]}]}}"
	testkinds.Rules(t, node, testkinds.Below("spec.drivers[0]", []testkinds.Rule{
		{"a name is required", "name: ''", "name: Required value"},
		{"a node is required", "nodeID: ''", "nodeID: Required value"},
		{"a node has 256 characters", "nodeID: \"{a*257}\"", `nodeID: Invalid value: "{a*257}": must be 256 characters or less`},
		{"a count is not negative", "allocatable: {count: -1}", "allocatable.count: Invalid value: -1: must be greater than or equal to 0"},
		{"names are unique", "spec.drivers[1]: {name: d, nodeID: e, topologyKeys: []}", `spec.drivers[1].name: Duplicate value: "d"`},
		{"keys are names, and unique", "topologyKeys: ['', a b, f, f]", ": Required value\n: Invalid value: \"\": name part must be non-empty\n: Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\n: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\n: Duplicate value: \"f\""},
	}), func(n *storagev1.CSINode) []string { return testkinds.Texts(storage.ValidateNode(n)) })
	testkinds.Updates(t, node, []testkinds.Update{
		{"a count changes", "", "spec.drivers[0].allocatable: {count: 5}", ""},
		{"a driver goes", "", "spec.drivers: []", ""},
		{"a driver stays as it is", "", "spec.drivers[0].nodeID: x", `spec.drivers: Invalid value: {"Name":"d","NodeID":"x","TopologyKeys":["f"],"Allocatable":null}: field is immutable`},
	}, func(n, old *storagev1.CSINode) []string { return testkinds.Texts(storage.ValidateNodeUpdate(n, old)) })
}

func TestCSIStorageCapacity(t *testing.T) {
	const capacity = "{metadata: {name: c}, storageClassName: a, nodeTopology: {}}"
	testkinds.Rules(t, capacity, []testkinds.Rule{
		{"a selector is valid", "nodeTopology: {matchLabels: {a b: c}}", `nodeTopology.matchLabels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"a class is a name", "storageClassName: A", `storageClassName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"a capacity is not negative", "capacity: -1", `capacity: Invalid value: "-1": must be greater than or equal to 0`},
	}, func(c *storagev1.CSIStorageCapacity) []string { return testkinds.Texts(storage.ValidateCapacity(c)) })
	testkinds.Updates(t, capacity, []testkinds.Update{
		{"what it is of stays", "", "storageClassName: b\nnodeTopology: {matchLabels: {a: b}}", "nodeTopology: Invalid value: {\"matchLabels\":{\"a\":\"b\"}}: field is immutable\nstorageClassName: Invalid value: \"b\": field is immutable"},
	}, func(c, old *storagev1.CSIStorageCapacity) []string {
		return testkinds.Texts(storage.ValidateCapacityUpdate(c, old))
	})
}

func TestVolumeAttachment(t *testing.T) {
	const attachment = "{metadata: {name: a}, spec: {attacher: d, nodeName: e, source: {persistentVolumeName: v}}}"
	const inline = "accessModes: [ReadWriteOnce], csi: {driver: a, volumeHandle: v}"
	testkinds.Rules(t, attachment, testkinds.Below("spec", []testkinds.Rule{
		{"an attacher is required", "attacher: ''", "attacher: Required value"},
		{"a node is a name", "nodeName: A", `nodeName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"a source", "source: {}", "source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"},
		{"one source", "source.inlineVolumeSpec: {" + inline + "}", "source: Forbidden: must specify exactly one of inlineVolumeSpec and persistentVolumeName"},
		{"a volume has a name", "source.persistentVolumeName: ''", "source.persistentVolumeName: Required value: must specify non empty persistentVolumeName\nsource.persistentVolumeName: Invalid value: \"\": a lowercase RFC 1123 subdomain must consist of..."},
		{"inline: valid", "source: {inlineVolumeSpec: {" + inline + "}}", ""},
		{"inline: a driver is required", "source: {inlineVolumeSpec: {}}", "source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes\nsource.inlineVolumeSpec.accessModes: Required value\nsource.inlineVolumeSpec: Required value: must specify a volume type"},
		{"inline: only some members", "source: {inlineVolumeSpec: {" + inline + ", claimRef: {}, capacity: {storage: 1}, persistentVolumeReclaimPolicy: Delete, nodeAffinity: {}, storageClassName: a, volumeMode: Block}}", "source.inlineVolumeSpec.claimRef: Forbidden: may not be specified in the context of inline volumes\nsource.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes\nsource.inlineVolumeSpec.persistentVolumeReclaimPolicy: Forbidden: may only be Retain in the context of inline volumes\nsource.inlineVolumeSpec.nodeAffinity: Forbidden: may not be specified in the context of inline volumes\nsource.inlineVolumeSpec.storageClassName: Forbidden: may not be specified in the context of inline volumes\nsource.inlineVolumeSpec.volumeMode: Forbidden: may not specify volumeMode other than Filesystem in the context of inline volumes"},
		{"status: 256 KiB", "status: {attached: false, attachmentMetadata: {a: \"{b*262144}\"}}", "status.attachmentMetadata: Too long: may not be more than 262144 bytes"},
		{"status: an error is short", "status: {attached: false, attachError: {message: \"{a*1025}\", errorCode: -1}}", "status.attachError.message: Too long: may not be more than 1024 bytes\nstatus.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive"},
	}), func(a *storagev1.VolumeAttachment) []string { return testkinds.Texts(storage.ValidateAttachment(a)) })
	testkinds.Updates(t, attachment, []testkinds.Update{
		{"the spec stays", "", "spec.nodeName: x", `spec: Invalid value: {"Attacher":"d","Source":{"PersistentVolumeName":"v","InlineVolumeSpec":null},"NodeName":"x"}: field is immutable`},
	}, func(a, old *storagev1.VolumeAttachment) []string {
		return testkinds.Texts(storage.ValidateAttachmentUpdate(a, old))
	})
}
