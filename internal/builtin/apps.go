package builtin

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/tidemark-dev/tidemark/internal/builtin/apps"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// appsGroup is the controllers that keep Pods running.
func appsGroup() resource.Group {
	return group("apps", version{"v1", []resource.Type{
		{
			Resource: "controllerrevisions", Kind: "ControllerRevision", New: object[appsv1.ControllerRevision],
			Namespaced:          true,
			UnconditionalUpdate: true,
			Default:             defaults(apps.DefaultControllerRevision),
			Validate:            validates(apps.ValidateControllerRevision),
			ValidateUpdate:      updates(apps.ValidateControllerRevisionUpdate),
		},
		{
			Resource: "daemonsets", Kind: "DaemonSet", New: object[appsv1.DaemonSet],
			Namespaced: true, ShortNames: []string{"ds"}, Categories: inAll,
			UnconditionalUpdate: true, Generation: true,
			Subresources:   []resource.Subresource{statusWith(updates(apps.ValidateDaemonSetStatus))},
			Default:        defaults(apps.DefaultDaemonSet),
			PrepareCreate:  defaults(apps.PrepareDaemonSet),
			PrepareUpdate:  prepares(apps.PrepareDaemonSetUpdate),
			Validate:       validates(apps.ValidateDaemonSet),
			ValidateUpdate: updates(apps.ValidateDaemonSetUpdate),
			Warnings:       warns(apps.DaemonSetWarnings),
			MetadataOnce:   true,
		},
		{
			Resource: "deployments", Kind: "Deployment", New: object[appsv1.Deployment],
			Namespaced: true, ShortNames: []string{"deploy"}, Categories: inAll,
			UnconditionalUpdate: true, Generation: true,
			Subresources:     []resource.Subresource{scaleOf(deploymentScale), statusWith(updates(apps.ValidateDeploymentStatus))},
			GenerationCounts: resource.Annotations, StatusKeeps: resource.Labels,
			Default:        defaults(apps.DefaultDeployment),
			Validate:       validates(apps.ValidateDeployment),
			ValidateUpdate: updates(apps.ValidateDeploymentUpdate),
			Warnings:       warns(apps.DeploymentWarnings),
			MetadataOnce:   true,
		},
		{
			Resource: "replicasets", Kind: "ReplicaSet", New: object[appsv1.ReplicaSet],
			Namespaced: true, ShortNames: []string{"rs"}, Categories: inAll,
			UnconditionalUpdate: true, Generation: true,
			Subresources:   []resource.Subresource{scaleOf(replicaSetScale), statusWith(updates(apps.ValidateReplicaSetStatus))},
			Default:        defaults(apps.DefaultReplicaSet),
			Validate:       validates(apps.ValidateReplicaSet),
			ValidateUpdate: updates(apps.ValidateReplicaSetUpdate),
			Warnings:       warns(apps.ReplicaSetWarnings),
			MetadataOnce:   true,
		},
		{
			Resource: "statefulsets", Kind: "StatefulSet", New: object[appsv1.StatefulSet],
			Namespaced: true, ShortNames: []string{"sts"}, Categories: inAll,
			UnconditionalUpdate: true, Generation: true,
			Subresources:   []resource.Subresource{scaleOf(statefulSetScale), statusWith(updates(apps.ValidateStatefulSetStatus))},
			Default:        defaults(apps.DefaultStatefulSet),
			Validate:       validates(apps.ValidateStatefulSet),
			ValidateUpdate: updates(apps.ValidateStatefulSetUpdate),
			Warnings:       warns(apps.StatefulSetWarnings),
			MetadataOnce:   true,
			ValidateName:   validation.NameIsDNSLabel,
		},
	}})
}
