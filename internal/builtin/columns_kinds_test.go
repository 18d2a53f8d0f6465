package builtin_test

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

const columnsObject = "{" + columnsMeta + "}"

func TestCoreColumns(t *testing.T) {
	prints[corev1.LimitRange](t, "Name | Created At", columnsObject, []testkinds.Rule{{"a kind without columns of its own", "", "x | 2020-01-01T00:00:00Z"}})
	prints[corev1.ConfigMap](t, "Name | Data | Age", columnsObject, []testkinds.Rule{{"config map: text and bytes", "data: {a: b, c: d}\nbinaryData: {e: eA==}", "x | 3 | 5m"}})
	prints[corev1.Secret](t, "Name | Type | Data | Age", columnsObject, []testkinds.Rule{{"secret", "type: Opaque\ndata: {a: eA==}", "x | Opaque | 1 | 5m"}})
	prints[corev1.Namespace](t, "Name | Status | Age", columnsObject, []testkinds.Rule{{"namespace", "status.phase: Active", "x | Active | 5m"}})
	prints[corev1.Event](t, "Last Seen | Type | Reason | Object | +Subobject | +Source | Message | +First Seen | +Count | +Name", "{"+columnsMeta+", type: Normal, reason: r, message: ' m ', involvedObject: {kind: Pod, name: p, fieldPath: f}}", []testkinds.Rule{
		{"event: no time", "", "<unknown> | Normal | r | pod/p | f |  | m | <unknown> | 1 | x"},
		{"event: a time", "eventTime: 2020-01-01T00:01:00.000000Z\nreportingComponent: c\nreportingInstance: i", "4m | Normal | r | pod/p | f | c, i | m | 4m | 1 | x"},
		{"event: first and last", "firstTimestamp: 2020-01-01T00:01:00Z\nlastTimestamp: 2020-01-01T00:02:00Z\ncount: 3\nsource: {component: c, host: h}", "3m | Normal | r | pod/p | f | c, h | m | 4m | 3 | x"},
		{"event: a series", "firstTimestamp: 2020-01-01T00:01:00Z\nseries: {count: 4, lastObservedTime: 2020-01-01T00:03:00.000000Z}", "2m | Normal | r | pod/p | f |  | m | 4m | 4 | x"},
	})
	prints[corev1.Node](t, "Name | Status | Roles | Age | Version | +Internal-IP | +External-IP | +OS-Image | +Kernel-Version | +Container-Runtime", columnsObject, []testkinds.Rule{
		{"node: nothing known", "", "x | Unknown | <none> | 5m |  | <none> | <none> | <unknown> | <unknown> | <unknown>"},
		{"node: ready", "metadata.labels: {node-role.kubernetes.io/b: '', kubernetes.io/role: a, node-role.kubernetes.io/a: ''}\nstatus: {conditions: [{type: Ready, status: \"True\"}], nodeInfo: {kubeletVersion: v1, osImage: o, kernelVersion: k, architecture: arm64, containerRuntimeVersion: c}, addresses: [{type: InternalIP, address: 10.0.0.1}, {type: ExternalIP, address: 1.2.3.4}]}", "x | Ready | a,b | 5m | v1 | 10.0.0.1 | 1.2.3.4 | o | k (arm64) | c"},
		{"node: not ready", "spec.unschedulable: true\nstatus.conditions: [{type: Ready, status: Unknown}]", "x | NotReady,SchedulingDisabled | <none> | 5m |  | <none> | <none> | <unknown> | <unknown> | <unknown>"},
	})
	prints[corev1.ResourceQuota](t, "Name | Request | Limit | Age", columnsObject, []testkinds.Rule{{"quota", "status: {hard: {pods: 3, cpu: 2, limits.cpu: 4}, used: {pods: 1}}", "x | cpu: 0/2, pods: 1/3 | limits.cpu: 0/4 | 5m"}})
	prints[corev1.ComponentStatus](t, "Name | Status | Message | Error", columnsObject, []testkinds.Rule{
		{"component: unknown", "", "x | Unknown |  | "},
		{"component: healthy", "conditions: [{type: Healthy, status: \"True\", message: m}]", "x | Healthy | m | "},
		{"component: unhealthy", "conditions: [{type: Healthy, status: \"False\", error: e}]", "x | Unhealthy |  | e"},
	})
}

func TestNetworkColumns(t *testing.T) {
	prints[corev1.Service](t, "Name | Type | Cluster-IP | External-IP | Port(s) | Age | +Selector", "{"+columnsMeta+", spec: {type: ClusterIP}}", []testkinds.Rule{
		{"service: no address", "", "x | ClusterIP | <none> | <none> | <none> | 5m | <none>"},
		{"service: ports", "spec: {type: NodePort, clusterIPs: [10.0.0.1], ports: [{port: 80, protocol: TCP, nodePort: 30000}, {port: 53, protocol: UDP}], selector: {l: m}, externalIPs: [1.2.3.4, 1.2.3.5]}", "x | NodePort | 10.0.0.1 | 1.2.3.4,1.2.3.5 | 80:30000/TCP,53/UDP | 5m | l=m"},
		{"service: an external name", "spec: {type: ExternalName, externalName: a.b}", "x | ExternalName | <none> | a.b | <none> | 5m | <none>"},
		{"service: a load balancer to come", "spec.type: LoadBalancer", "x | LoadBalancer | <none> | <pending> | <none> | 5m | <none>"},
		{"service: a load balancer", "spec: {type: LoadBalancer, externalIPs: [1.2.3.6]}\nstatus.loadBalancer.ingress: [{ip: 1.2.3.5}, {hostname: a.b}, {ip: 1.2.3.4}, {ip: 1.2.3.5}]", "x | LoadBalancer | <none> | 1.2.3.4,1.2.3.5,a.b,1.2.3.6 | <none> | 5m | <none>"},
	})
	prints[corev1.Endpoints](t, "Name | Endpoints | Age", columnsObject, []testkinds.Rule{ //lint:ignore SA1019 it is still served
		{"endpoints: none", "", "x | <none> | 5m"},
		{"endpoints: no ports", "subsets: [{addresses: [{ip: 10.0.0.1}]}]", "x | 10.0.0.1 | 5m"},
		{"endpoints: more than three", "subsets: [{addresses: [{ip: 10.0.0.1}, {ip: \"::1\"}], ports: [{port: 80}, {port: 81}]}]", "x | 10.0.0.1:80,[::1]:80,10.0.0.1:81 + 1 more... | 5m"},
	})
	prints[discoveryv1.EndpointSlice](t, "Name | AddressType | Ports | Endpoints | Age", "{"+columnsMeta+", addressType: IPv4}", []testkinds.Rule{
		{"endpoint slice: none", "", "x | IPv4 | <unset> | <unset> | 5m"},
		{"endpoint slice", "ports: [{port: 80}, {name: a}, {}]\nendpoints: [{addresses: [10.0.0.1, 10.0.0.2]}, {addresses: [10.0.0.3, 10.0.0.4]}]", "x | IPv4 | 80,a,* | 10.0.0.1,10.0.0.2,10.0.0.3 + 1 more... | 5m"},
	})
	prints[networkingv1.Ingress](t, "Name | Class | Hosts | Address | Ports | Age", columnsObject, []testkinds.Rule{
		{"ingress: all hosts", "", "x | <none> | * |  | 80 | 5m"},
		{"ingress", "spec: {ingressClassName: c, rules: [{host: a}, {}, {host: b}], tls: [{}]}\nstatus.loadBalancer.ingress: [{hostname: h}, {ip: 1.2.3.4}]", "x | c | a,b | 1.2.3.4,h | 80, 443 | 5m"},
		{"ingress: more than three hosts", "spec.rules: [{host: a}, {host: b}, {host: c}, {host: d}, {}]", "x | <none> | a,b,c + 2 more... |  | 80 | 5m"},
	})
	prints[networkingv1.IngressClass](t, "Name | Controller | Parameters | Age", "{"+columnsMeta+", spec: {controller: c}}", []testkinds.Rule{
		{"ingress class", "", "x | c | <none> | 5m"},
		{"ingress class: the default", "metadata.annotations: {ingressclass.kubernetes.io/is-default-class: \"true\"}\nspec.parameters: {apiGroup: g, kind: K, name: p}", "x (default) | c | K.g/p | 5m"},
	})
	prints[networkingv1.NetworkPolicy](t, "Name | Pod-Selector | Age", columnsObject, []testkinds.Rule{
		{"network policy: all Pods", "", "x | <none> | 5m"},
		{"network policy", "spec.podSelector: {matchExpressions: [{key: a, operator: In, values: [b, c]}]}", "x | a in (b,c) | 5m"},
	})
	prints[networkingv1.ServiceCIDR](t, "Name | CIDRs | Age", columnsObject, []testkinds.Rule{{"service CIDR", "spec.cidrs: [10.0.0.0/16, \"fd00::/108\"]", "x | 10.0.0.0/16,fd00::/108 | 5m"}})
	prints[networkingv1.IPAddress](t, "Name | ParentRef", columnsObject, []testkinds.Rule{
		{"address: no parent", "", "x | <none> | 5m"},
		{"address: a Service, and an age without a column", "spec.parentRef: {resource: services, namespace: a, name: s}", "x | services/a/s | 5m"},
	})
}

func TestStorageColumns(t *testing.T) {
	prints[corev1.PersistentVolume](t, "Name | Capacity | Access Modes | Reclaim Policy | Status | Claim | StorageClass | VolumeAttributesClass | Reason | Age | +VolumeMode", "{"+columnsMeta+", spec: {capacity: {storage: 1Gi}, accessModes: [ReadOnlyMany, ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, storageClassName: c}, status: {phase: Available}}", []testkinds.Rule{
		{"volume", "", "x | 1Gi | RWO,ROX | Retain | Available |  | c | <unset> |  | 5m | <unset>"},
		{"volume: claimed", "metadata.annotations: {volume.beta.kubernetes.io/storage-class: older}\nspec.claimRef: {namespace: ns, name: z}\nspec.volumeMode: Block\nspec.volumeAttributesClassName: a\nstatus.reason: r", "x | 1Gi | RWO,ROX | Retain | Available | ns/z | older | a | r | 5m | Block"},
		{"volume: deleted", "metadata.deletionTimestamp: 2020-01-01T00:00:00Z", "x | 1Gi | RWO,ROX | Retain | Terminating |  | c | <unset> |  | 5m | <unset>"},
	})
	prints[corev1.PersistentVolumeClaim](t, "Name | Status | Volume | Capacity | Access Modes | StorageClass | VolumeAttributesClass | Age | +VolumeMode", "{"+columnsMeta+", spec: {storageClassName: c}, status: {phase: Pending, capacity: {storage: 1Gi}, accessModes: [ReadWriteMany, ReadWriteOncePod]}}", []testkinds.Rule{
		{"claim: of no volume yet", "", "x | Pending |  |  |  | c | <unset> | 5m | <unset>"},
		{"claim: bound", "spec.volumeName: v\nstatus.phase: Bound", "x | Bound | v | 1Gi | RWX,RWOP | c | <unset> | 5m | <unset>"},
		{"claim: deleted", "metadata.deletionTimestamp: 2020-01-01T00:00:00Z", "x | Terminating |  |  |  | c | <unset> | 5m | <unset>"},
	})
	prints[storagev1.StorageClass](t, "Name | Provisioner | ReclaimPolicy | VolumeBindingMode | AllowVolumeExpansion | Age", "{"+columnsMeta+", provisioner: p}", []testkinds.Rule{
		{"class", "", "x | p | Delete | Immediate | false | 5m"},
		{"class: a default outside a list", "metadata.annotations: {storageclass.kubernetes.io/is-default-class: \"true\"}\nreclaimPolicy: Retain\nvolumeBindingMode: WaitForFirstConsumer\nallowVolumeExpansion: true", "x | p | Retain | WaitForFirstConsumer | true | 5m"},
	})
	prints[storagev1.VolumeAttributesClass](t, "Name | DriverName | Age", columnsObject, []testkinds.Rule{{"attributes class", "driverName: d", "x | d | 5m"}})
	prints[storagev1.VolumeAttachment](t, "Name | Attacher | PV | Node | Attached | Age", columnsObject, []testkinds.Rule{{"attachment", "spec: {attacher: a, nodeName: k, source: {persistentVolumeName: v}}\nstatus.attached: true", "x | a | v | k | true | 5m"}})
	prints[storagev1.CSINode](t, "Name | Drivers | Age", columnsObject, []testkinds.Rule{{"CSI node", "spec.drivers: [{name: a, nodeID: b, topologyKeys: []}]", "x | 1 | 5m"}})
	prints[storagev1.CSIDriver](t, "Name | AttachRequired | PodInfoOnMount | StorageCapacity | TokenRequests | RequiresRepublish | Modes | Age", columnsObject, []testkinds.Rule{
		{"CSI driver: defaults", "", "x | true | false | false | <unset> | false | <none> | 5m"},
		{"CSI driver", "spec: {attachRequired: false, podInfoOnMount: true, storageCapacity: true, tokenRequests: [{audience: a}, {audience: b}], requiresRepublish: true, volumeLifecycleModes: [Persistent, Ephemeral]}", "x | false | true | true | a,b | true | Persistent,Ephemeral | 5m"},
	})
}

func TestPolicyColumns(t *testing.T) {
	prints[policyv1.PodDisruptionBudget](t, "Name | Min Available | Max Unavailable | Allowed Disruptions | Age", columnsObject, []testkinds.Rule{{"budget", "spec.minAvailable: 50%\nstatus.disruptionsAllowed: 1", "x | 50% | N/A | 1 | 5m"}})
	const binding = "{" + columnsMeta + ", roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}, subjects: [{kind: User, name: u}, {kind: User, name: v}, {kind: Group, name: g}, {kind: ServiceAccount, namespace: m, name: s}]}"
	prints[rbacv1.RoleBinding](t, "Name | Role | Age | +Users | +Groups | +ServiceAccounts", binding, []testkinds.Rule{{"role binding", "", "x | ClusterRole/r | 5m | u, v | g | m/s"}})
	prints[rbacv1.ClusterRoleBinding](t, "Name | Role | Age | +Users | +Groups | +ServiceAccounts", binding, []testkinds.Rule{{"cluster role binding", "subjects: []", "x | ClusterRole/r | 5m |  |  | "}})
	prints[admissionv1.MutatingWebhookConfiguration](t, "Name | Webhooks | Age", columnsObject, []testkinds.Rule{{"mutating webhooks", "webhooks: [{name: a}]", "x | 1 | 5m"}})
	prints[admissionv1.ValidatingWebhookConfiguration](t, "Name | Webhooks | Age", columnsObject, []testkinds.Rule{{"validating webhooks", "webhooks: [{name: a}, {name: b}]", "x | 2 | 5m"}})
	prints[admissionv1.ValidatingAdmissionPolicy](t, "Name | Validations | ParamKind | Age", columnsObject, []testkinds.Rule{
		{"validating policy: no parameters", "", "x | 0 | <unset> | 5m"},
		{"validating policy", "spec: {validations: [{expression: 'true'}], paramKind: {apiVersion: v1, kind: ConfigMap}}", "x | 1 | v1/ConfigMap | 5m"},
	})
	prints[admissionv1.ValidatingAdmissionPolicyBinding](t, "Name | PolicyName | ParamRef | Age", "{"+columnsMeta+", spec: {policyName: p}}", []testkinds.Rule{
		{"policy binding: no parameters", "", "x | p | <unset> | 5m"},
		{"policy binding: a name", "spec.paramRef: {name: a}", "x | p | */a | 5m"},
		{"policy binding: a name in a namespace", "spec.paramRef: {name: a, namespace: b}", "x | p | b/a | 5m"},
		{"policy binding: a selector", "spec.paramRef: {selector: {matchLabels: {a: b}}}", "x | p | &LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},} | 5m"},
	})
	prints[flowcontrolv1.FlowSchema](t, "Name | PriorityLevel | MatchingPrecedence | DistinguisherMethod | Age | MissingPL", "{"+columnsMeta+", spec: {priorityLevelConfiguration: {name: p}, matchingPrecedence: 7}}", []testkinds.Rule{
		{"flow schema", "", "x | p | 7 | <none> | 5m | ?"},
		{"flow schema: no priority level", "spec.distinguisherMethod: {type: ByUser}\nstatus.conditions: [{type: Dangling, status: \"True\"}]", "x | p | 7 | ByUser | 5m | True"},
	})
	prints[flowcontrolv1.PriorityLevelConfiguration](t, "Name | Type | NominalConcurrencyShares | Queues | HandSize | QueueLengthLimit | Age", columnsObject, []testkinds.Rule{
		{"priority level: exempt", "spec.type: Exempt", "x | Exempt | <none> | <none> | <none> | <none> | 5m"},
		{"priority level: no queues", "spec: {type: Limited, limited: {limitResponse: {type: Reject}}}", "x | Limited | 30 | <none> | <none> | <none> | 5m"},
		{"priority level: queues", "spec: {type: Limited, limited: {nominalConcurrencyShares: 1, limitResponse: {type: Queue, queuing: {queues: 2, handSize: 3, queueLengthLimit: 4}}}}", "x | Limited | 1 | 2 | 3 | 4 | 5m"},
	})
}

func TestOtherColumns(t *testing.T) {
	prints[coordinationv1.Lease](t, "Name | Holder | Age", columnsObject, []testkinds.Rule{{"lease", "spec.holderIdentity: h", "x | h | 5m"}})
	prints[schedulingv1.PriorityClass](t, "Name | Value | Global-Default | Age | PreemptionPolicy", columnsObject, []testkinds.Rule{{"priority class", "value: 5\nglobalDefault: true\npreemptionPolicy: Never", "x | 5 | true | 5m | Never"}})
	prints[certificatesv1.CertificateSigningRequest](t, "Name | Age | SignerName | Requestor | RequestedDuration | Condition", "{"+columnsMeta+", spec: {request: '', signerName: a/b, username: u}}", []testkinds.Rule{
		{"request: pending", "", "x | 5m | a/b | u | <none> | Pending"},
		{"request: issued", "spec.expirationSeconds: 3600\nstatus: {certificate: eA==, conditions: [{type: Approved, status: \"True\"}]}", "x | 5m | a/b | u | 60m | Approved,Issued"},
		{"request: denied and failed", "status.conditions: [{type: Denied, status: \"True\"}, {type: Failed, status: \"True\"}]", "x | 5m | a/b | u | <none> | Denied,Failed"},
	})
	prints[apiregistrationv1.APIService](t, "Name | Service | Available | Age", columnsObject, []testkinds.Rule{
		{"API service: local", "", "x | Local | Unknown | 5m"},
		{"API service: not available", "spec.service: {namespace: a, name: s}\nstatus.conditions: [{type: Available, status: \"False\", reason: r}]", "x | a/s | False (r) | 5m"},
	})
	prints[resourcev1.ResourceClaim](t, "Name | State | Age", columnsObject, []testkinds.Rule{
		{"resource claim: pending", "", "x | pending | 5m"},
		{"resource claim: deleted", "metadata.deletionTimestamp: 2020-01-01T00:00:00Z", "x | deleted | 5m"},
		{"resource claim: reserved", "status: {allocation: {}, reservedFor: [{resource: pods, name: p, uid: u}]}", "x | allocated,reserved | 5m"},
	})
	prints[resourcev1.ResourceSlice](t, "Name | Node | Driver | Pool | Age", columnsObject, []testkinds.Rule{{"resource slice", "spec: {nodeName: k, driver: d, pool: {name: p, resourceSliceCount: 1}}", "x | k | d | p | 5m"}})
}
