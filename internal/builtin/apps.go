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
		},
		{
			Resource: "daemonsets", Kind: "DaemonSet", New: object[appsv1.DaemonSet],
			Namespaced: true, ShortNames: []string{"ds"}, Categories: inAll,
			UnconditionalUpdate: true, Generation: true,
			Subresources:  []resource.Subresource{status},
			Default:       defaults(apps.DefaultDaemonSet),
			PrepareCreate: defaults(apps.PrepareDaemonSet),
			PrepareUpdate: prepares(apps.PrepareDaemonSetUpdate),
		},
		{
			Resource: "deployments", Kind: "Deployment", New: object[appsv1.Deployment],
			Namespaced: true, ShortNames: []string{"deploy"}, Categories: inAll,
			UnconditionalUpdate: true, Generation: true,
			Subresources:     []resource.Subresource{scaleOf(deploymentScale), status},
			GenerationCounts: resource.Annotations, StatusKeeps: resource.Labels,
			Default: defaults(apps.DefaultDeployment),
		},
		{
			Resource: "replicasets", Kind: "ReplicaSet", New: object[appsv1.ReplicaSet],
			Namespaced: true, ShortNames: []string{"rs"}, Categories: inAll,
			UnconditionalUpdate: true, Generation: true,
			Subresources: []resource.Subresource{scaleOf(replicaSetScale), status},
			Default:      defaults(apps.DefaultReplicaSet),
		},
		{
			Resource: "statefulsets", Kind: "StatefulSet", New: object[appsv1.StatefulSet],
			Namespaced: true, ShortNames: []string{"sts"}, Categories: inAll,
			UnconditionalUpdate: true, Generation: true,
			Subresources: []resource.Subresource{scaleOf(statefulSetScale), status},
			Default:      defaults(apps.DefaultStatefulSet),
			ValidateName: validation.NameIsDNSLabel,
		},
	}})
}
