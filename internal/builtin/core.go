package builtin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/tidemark-dev/tidemark/internal/builtin/claimspec"
	"github.com/tidemark-dev/tidemark/internal/builtin/core"
	"github.com/tidemark-dev/tidemark/internal/builtin/storage"
	"github.com/tidemark-dev/tidemark/internal/features"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// coreGroup is the core group, whose name is empty.
func coreGroup(p *features.Profile) resource.Group {
	serviceName := validation.NameIsDNSLabel
	if !p.Enabled(features.RelaxedServiceNames) {
		serviceName = validation.NameIsDNS1035Label
	}
	pods := core.Pods{EarlyResources: !p.Enabled(features.PodResources)}
	return group("", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "bindings", Kind: "Binding"},
			New:   object[corev1.Binding], Namespaced: true, Verbs: onlyCreate,
		},
		{
			Names: resource.Names{Resource: "componentstatuses", Kind: "ComponentStatus", ShortNames: []string{"cs"}},
			New:   object[corev1.ComponentStatus], Verbs: getList,
			Deprecated: "v1 ComponentStatus is deprecated in v1.19+",
		},
		{
			Names: resource.Names{Resource: "configmaps", Kind: "ConfigMap", ShortNames: []string{"cm"}},
			New:   object[corev1.ConfigMap], Namespaced: true,
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true,
				Validate:                 validates(core.ValidateConfigMap),
				ValidateUpdate:           updates(core.ValidateConfigMapUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "endpoints", Kind: "Endpoints", ShortNames: []string{"ep"}},
			New:   object[corev1.Endpoints], Namespaced: true, //lint:ignore SA1019 it is still served
			Deprecated: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
			Strategy: resource.Strategy{
				AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true,
				Default:        defaults(core.DefaultEndpoints),
				Validate:       validates(core.ValidateEndpoints),
				ValidateUpdate: updates(core.ValidateEndpointsUpdate),
				Warnings:       warns(core.EndpointsWarnings),
			},
		},
		{
			Names: resource.Names{Resource: "events", Kind: "Event", ShortNames: []string{"ev"}},
			New:   object[corev1.Event], Namespaced: true,
			Display: resource.Display{Fields: eventFields, FieldError: notSupported},
			Strategy: resource.Strategy{
				AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true,
				Metadata:       resource.MetadataRules{ValidateName: pathSegment, AnyFinalizer: true, Recheck: resource.RecheckNothing},
				Deletion:       resource.Deletion{Dependents: resource.NoDependents},
				Validate:       validates(core.ValidateEvent),
				ValidateUpdate: updates(core.ValidateEventUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "limitranges", Kind: "LimitRange", ShortNames: []string{"limits"}},
			New:   object[corev1.LimitRange], Namespaced: true,
			Strategy: resource.Strategy{
				AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true, Metadata: recheckNew,
				Default:        defaults(core.DefaultLimitRange),
				Validate:       validates(core.ValidateLimitRange),
				ValidateUpdate: updates(core.ValidateLimitRangeUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "namespaces", Kind: "Namespace", ShortNames: []string{"ns"}},
			New:   object[corev1.Namespace], Verbs: notDeleteCollection, Collection: "namespaces",
			Subresources: []resource.Subresource{
				{Name: "finalize", Verbs: onlyUpdate, Set: finalizeNamespace, Validate: updates(core.ValidateFinalize)},
				statusWith(updates(core.ValidateNamespaceStatus)),
			},
			Display: resource.Display{Fields: fields("status.phase"), FieldError: notSupported},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: resource.MetadataRules{ValidateName: validation.NameIsDNSLabel},
				Status:         resource.StatusRules{New: newNamespace},
				Deletion:       resource.Deletion{ReturnsObject: true, Blocked: holdsContent, Prepare: terminate, Policy: namespacePolicy},
				Default:        defaultNamespace,
				PrepareCreate:  prepareNamespace,
				PrepareUpdate:  prepares(keepNamespace),
				Validate:       validates(core.ValidateNamespace),
				ValidateUpdate: updates(core.ValidateNamespaceUpdate),
			},
		},
		{
			Names:        resource.Names{Resource: "nodes", Kind: "Node", ShortNames: []string{"no"}},
			New:          object[corev1.Node],
			Subresources: []resource.Subresource{proxy[corev1.NodeProxyOptions](proxyNode), {Name: "status", Verbs: getPatchUpdate, Set: setNodeStatus, Validate: updates(core.ValidateNodeStatus)}},
			Display:      resource.Display{Fields: []resource.Field{{Name: "spec.unschedulable", Default: "false"}}, FieldError: notSupported},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Status: resource.StatusRules{KeepOnCreate: true},
				Default:        defaults(core.DefaultNode),
				PrepareCreate:  defaults(core.PrepareNode),
				PrepareUpdate:  prepares(core.PrepareNodeUpdate),
				Validate:       validates(core.ValidateNode),
				ValidateUpdate: updates(core.ValidateNodeUpdate),
				Warnings:       warns(core.NodeWarnings),
			},
		},
		{
			Names: resource.Names{Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", ShortNames: []string{"pvc"}},
			New:   object[corev1.PersistentVolumeClaim], Namespaced: true,
			Subresources: []resource.Subresource{statusWith(updates(storage.ValidateClaimStatus))},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Status: resource.StatusRules{New: defaults(storage.NewClaimStatus)},
				Deletion:       returnsObject,
				Default:        defaults(claimspec.DefaultClaim),
				PrepareCreate:  defaults(storage.PrepareClaim),
				PrepareUpdate:  prepares(storage.PrepareClaimUpdate),
				Validate:       validates(storage.ValidateClaim),
				ValidateUpdate: updates(storage.ValidateClaimUpdate),
				Warnings:       warns(storage.ClaimWarnings),
			},
		},
		{
			Names:        resource.Names{Resource: "persistentvolumes", Kind: "PersistentVolume", ShortNames: []string{"pv"}},
			New:          object[corev1.PersistentVolume],
			Subresources: []resource.Subresource{{Name: "status", Verbs: getPatchUpdate, Set: setVolumeStatus}},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: resource.MetadataRules{Recheck: resource.RecheckNewTwice}, Status: resource.StatusRules{New: defaults(storage.NewVolumeStatus)},
				Deletion:       returnsObject,
				Default:        defaults(storage.DefaultVolume),
				Validate:       validates(storage.ValidateVolume),
				ValidateUpdate: updates(storage.ValidateVolumeUpdate),
				Warnings:       warns(storage.VolumeWarnings),
			},
		},
		{
			Names: resource.Names{Resource: "pods", Kind: "Pod", ShortNames: []string{"po"}, Categories: inAll},
			New:   object[corev1.Pod], Namespaced: true,
			Subresources: []resource.Subresource{
				connection[corev1.PodAttachOptions]("attach", createGet, connectContainer),
				{Name: "binding", Verbs: onlyCreate, Exchange: &bindingType},
				{Name: "ephemeralcontainers", Verbs: getPatchUpdate, Set: sets(core.SetEphemeral), Validate: updates(core.ValidateEphemeral)},
				{Name: "eviction", Verbs: onlyCreate, Exchange: &evictionType},
				connection[corev1.PodExecOptions]("exec", createGet, connectContainer),
				{Name: "log", Verbs: onlyGet, Connect: connectLog},
				connection[corev1.PodPortForwardOptions]("portforward", createGet, connectPod),
				proxy[corev1.PodProxyOptions](proxyPod),
				{Name: "resize", Verbs: getPatchUpdate, Set: sets(pods.Resize), Validate: updates(core.ValidateResize)},
				{Name: "status", Verbs: getPatchUpdate, Set: sets(core.SetPodStatus), Validate: updates(core.ValidatePodStatus), Warnings: warns(core.PodStatusWarnings)},
			},
			Display: resource.Display{Fields: podFields, FieldError: notSupported},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Status: resource.StatusRules{Fixed: resource.OwnerReferences}, Generation: counted,
				Deletion:       resource.Deletion{ReturnsObject: true, GracePeriod: podGracePeriod},
				Default:        defaults(pods.Default),
				PrepareCreate:  defaults(pods.Prepare),
				PrepareUpdate:  prepares(pods.PrepareUpdate),
				Validate:       validates(core.ValidatePod),
				ValidateUpdate: updates(core.ValidatePodUpdate),
				Warnings:       warns(core.PodWarnings),
			},
		},
		{
			Names: resource.Names{Resource: "podtemplates", Kind: "PodTemplate"},
			New:   object[corev1.PodTemplate], Namespaced: true,
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: recheckUpdate, Generation: counted, Deletion: returnsObject,
				Default:        defaults(core.DefaultPodTemplate),
				Validate:       validates(core.ValidatePodTemplate),
				ValidateUpdate: updates(core.ValidatePodTemplateUpdate),
				Warnings:       warns(core.PodTemplateWarnings),
			},
		},
		{
			Names: resource.Names{Resource: "replicationcontrollers", Kind: "ReplicationController", ShortNames: []string{"rc"}, Categories: inAll},
			New:   object[corev1.ReplicationController], Namespaced: true,
			Subresources: []resource.Subresource{scaleOf(replicationControllerScale), statusBy(setControllerStatus, updates(core.ValidateReplicationControllerStatus))},
			Display:      resource.Display{Fields: []resource.Field{{Name: "status.replicas", Default: "0"}}, FieldError: notSupported},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: resource.MetadataRules{ValidateName: longName, Recheck: resource.RecheckUpdate}, Generation: counted,
				Deletion:       resource.Deletion{Dependents: resource.OrphanDependents},
				Default:        defaults(core.DefaultReplicationController),
				Validate:       validates(core.ValidateReplicationController),
				ValidateUpdate: updates(core.ValidateReplicationControllerUpdate),
				Warnings:       warns(core.ReplicationControllerWarnings),
			},
		},
		{
			Names: resource.Names{Resource: "resourcequotas", Kind: "ResourceQuota", ShortNames: []string{"quota"}},
			New:   object[corev1.ResourceQuota], Namespaced: true,
			Subresources: []resource.Subresource{statusWith(updates(core.ValidateResourceQuotaStatus))},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: recheckUpdate, Deletion: returnsObject,
				Default:        defaults(core.DefaultResourceQuota),
				Validate:       validates(core.ValidateResourceQuota),
				ValidateUpdate: updates(core.ValidateResourceQuotaUpdate),
				Warnings:       warns(core.ResourceQuotaWarnings),
			},
		},
		{
			Names: resource.Names{Resource: "secrets", Kind: "Secret"},
			New:   object[corev1.Secret], Namespaced: true,
			Display: resource.Display{Fields: fields("type"), FieldError: notSupported},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true,
				Default:                  defaults(core.DefaultSecret),
				Validate:                 validates(core.ValidateSecret),
				ValidateUpdate:           updates(core.ValidateSecretUpdate),
				Warnings:                 warns(core.SecretWarnings),
			},
		},
		{
			Names: resource.Names{Resource: "serviceaccounts", Kind: "ServiceAccount", ShortNames: []string{"sa"}},
			New:   object[corev1.ServiceAccount], Namespaced: true,
			Subresources: []resource.Subresource{
				{Name: "token", Verbs: onlyCreate, Exchange: &tokenRequest},
			},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Deletion: returnsObject,
				PrepareCreate: defaults(core.PrepareServiceAccount),
				PrepareUpdate: prepares(core.PrepareServiceAccountUpdate),
				Warnings:      warns(core.ServiceAccountWarnings),
			},
		},
		{
			Names: resource.Names{Resource: "services", Kind: "Service", ShortNames: []string{"svc"}, Categories: inAll},
			New:   object[corev1.Service], Namespaced: true,
			Subresources: []resource.Subresource{proxy[corev1.ServiceProxyOptions](proxyService), {Name: "status", Verbs: getPatchUpdate, Set: setServiceStatus, Validate: validateServiceStatus}},
			Display:      resource.Display{Fields: serviceFields, FieldError: notSupported},
			Strategy: resource.Strategy{
				AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true,
				Metadata:       resource.MetadataRules{ValidateName: serviceName, Recheck: resource.RecheckUpdate},
				Deletion:       returnsObject,
				Default:        defaults(core.DefaultService),
				PrepareUpdate:  prepares(core.PrepareServiceUpdate),
				Validate:       validates(core.ValidateService),
				ValidateUpdate: updates(core.ValidateServiceUpdate),
				Warnings:       warns(core.ServiceWarnings),
			},
		},
	}})
}
