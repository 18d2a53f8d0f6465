package builtin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// coreGroup is the group whose name is empty, below /api.
func coreGroup() resource.Group {
	return group("", version{"v1", []resource.Type{
		{
			Resource: "bindings", Kind: "Binding", New: object[corev1.Binding],
			Namespaced: true, Verbs: onlyCreate,
		},
		{
			Resource: "componentstatuses", Kind: "ComponentStatus", New: object[corev1.ComponentStatus],
			ShortNames: []string{"cs"}, Verbs: getList,
			Deprecated: "v1 ComponentStatus is deprecated in v1.19+",
		},
		{
			Resource: "configmaps", Kind: "ConfigMap", New: object[corev1.ConfigMap],
			Namespaced: true, ShortNames: []string{"cm"},
			UnconditionalUpdate: true,
		},
		{
			Resource: "endpoints", Kind: "Endpoints", New: object[corev1.Endpoints], //lint:ignore SA1019 it is still served
			Namespaced: true, ShortNames: []string{"ep"},
			CreateOnUpdate: true, UnconditionalUpdate: true,
			Deprecated: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
		},
		{
			Resource: "events", Kind: "Event", New: object[corev1.Event],
			Namespaced: true, ShortNames: []string{"ev"},
			CreateOnUpdate: true, UnconditionalUpdate: true,
			Fields:       eventFields,
			FieldError:   notSupported,
			NoDependents: true,
			ValidateName: pathSegment,
		},
		{
			Resource: "limitranges", Kind: "LimitRange", New: object[corev1.LimitRange],
			Namespaced: true, ShortNames: []string{"limits"},
			CreateOnUpdate: true, UnconditionalUpdate: true,
		},
		{
			Resource: "namespaces", Kind: "Namespace", New: object[corev1.Namespace],
			ShortNames: []string{"ns"}, Verbs: notDeleteCollection, Collection: "namespaces",
			UnconditionalUpdate: true, DeleteReturnsObject: true,
			Subresources:  []resource.Subresource{{Name: "finalize", Verbs: onlyUpdate, Set: finalizeNamespace}, status},
			Fields:        fields("status.phase"),
			FieldError:    notSupported,
			ValidateName:  validation.NameIsDNSLabel,
			Default:       defaultNamespace,
			NewStatus:     newNamespace,
			PrepareCreate: prepareNamespace,
			PrepareUpdate: keepNamespace,
			Held:          holdsContent,
			PrepareDelete: terminate,
		},
		{
			Resource: "nodes", Kind: "Node", New: object[corev1.Node],
			ShortNames:          []string{"no"},
			UnconditionalUpdate: true,
			Subresources:        []resource.Subresource{proxy("NodeProxyOptions", proxyName), status},
			StatusOnCreate:      true,
			PrepareCreate:       prepareNode,
			Fields:              []resource.Field{{Name: "spec.unschedulable", Default: "false"}},
			FieldError:          notSupported,
		},
		{
			Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", New: object[corev1.PersistentVolumeClaim],
			Namespaced: true, ShortNames: []string{"pvc"},
			UnconditionalUpdate: true, DeleteReturnsObject: true,
			Subresources:  []resource.Subresource{status},
			NewStatus:     newClaim,
			PrepareCreate: protect("kubernetes.io/pvc-protection"),
		},
		{
			Resource: "persistentvolumes", Kind: "PersistentVolume", New: object[corev1.PersistentVolume],
			ShortNames:          []string{"pv"},
			UnconditionalUpdate: true, DeleteReturnsObject: true,
			Subresources:  []resource.Subresource{status},
			NewStatus:     newVolume,
			PrepareCreate: protect("kubernetes.io/pv-protection"),
		},
		{
			Resource: "pods", Kind: "Pod", New: object[corev1.Pod],
			Namespaced: true, ShortNames: []string{"po"}, Categories: inAll,
			UnconditionalUpdate: true, DeleteReturnsObject: true, Generation: true,
			Subresources: []resource.Subresource{
				connection("attach", "PodAttachOptions", createGet, connectContainer),
				{Name: "binding", Verbs: onlyCreate, Exchange: &bindingType},
				{Name: "ephemeralcontainers", Verbs: getPatchUpdate, Set: addEphemeral},
				{Name: "eviction", Verbs: onlyCreate, Exchange: &evictionType},
				connection("exec", "PodExecOptions", createGet, connectContainer),
				{Name: "log", Verbs: onlyGet, Connect: connectLog},
				connection("portforward", "PodPortForwardOptions", createGet, connectPod),
				proxy("PodProxyOptions", proxyPod),
				{Name: "resize", Verbs: getPatchUpdate, Set: resizePod},
				status,
			},
			StatusKeeps: resource.OwnerReferences,
			Fields:      podFields,
			FieldError:  notSupported,
			NewStatus:   newPod,
			GracePeriod: podGracePeriod,
		},
		{
			Resource: "podtemplates", Kind: "PodTemplate", New: object[corev1.PodTemplate],
			Namespaced:          true,
			UnconditionalUpdate: true, DeleteReturnsObject: true, Generation: true,
		},
		{
			Resource: "replicationcontrollers", Kind: "ReplicationController", New: object[corev1.ReplicationController],
			Namespaced: true, ShortNames: []string{"rc"}, Categories: inAll,
			UnconditionalUpdate: true, Generation: true,
			Orphans:      true,
			Subresources: []resource.Subresource{scaleOf(replicationControllerScale), status},
			Fields:       []resource.Field{{Name: "status.replicas", Default: "0"}},
			FieldError:   notSupported,
		},
		{
			Resource: "resourcequotas", Kind: "ResourceQuota", New: object[corev1.ResourceQuota],
			Namespaced: true, ShortNames: []string{"quota"},
			UnconditionalUpdate: true, DeleteReturnsObject: true,
			Subresources: []resource.Subresource{status},
		},
		{
			Resource: "secrets", Kind: "Secret", New: object[corev1.Secret],
			Namespaced:          true,
			UnconditionalUpdate: true,
			Fields:              fields("type"),
			FieldError:          notSupported,
			Default:             defaultSecret,
		},
		{
			Resource: "serviceaccounts", Kind: "ServiceAccount", New: object[corev1.ServiceAccount],
			Namespaced: true, ShortNames: []string{"sa"},
			UnconditionalUpdate: true, DeleteReturnsObject: true,
			Subresources: []resource.Subresource{
				{Name: "token", Verbs: onlyCreate, Exchange: &tokenRequest},
			},
		},
		{
			Resource: "services", Kind: "Service", New: object[corev1.Service],
			Namespaced: true, ShortNames: []string{"svc"}, Categories: inAll,
			CreateOnUpdate: true, UnconditionalUpdate: true, DeleteReturnsObject: true,
			Subresources: []resource.Subresource{proxy("ServiceProxyOptions", proxyName), {Name: "status", Verbs: getPatchUpdate, Set: setServiceStatus}},
			Fields:       serviceFields,
			FieldError:   notSupported,
			ValidateName: validation.NameIsDNSLabel,
		},
	}})
}
