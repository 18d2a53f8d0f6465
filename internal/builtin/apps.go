package builtin

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/tidemark-dev/tidemark/internal/builtin/apps"
	"github.com/tidemark-dev/tidemark/internal/features"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// appsGroup has the workloads that keep Pods running.
func appsGroup(p *features.Profile) resource.Group {
	defaultStatefulSet := apps.DefaultStatefulSet
	if !p.Enabled(features.MaxUnavailable) {
		defaultStatefulSet = apps.DefaultStatefulSetOneByOne
	}
	return group("apps", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "controllerrevisions", Kind: "ControllerRevision"},
			New:   object[appsv1.ControllerRevision], Namespaced: true,
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true,
				Default:                  defaults(apps.DefaultControllerRevision),
				Validate:                 validates(apps.ValidateControllerRevision),
				ValidateUpdate:           updates(apps.ValidateControllerRevisionUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "daemonsets", Kind: "DaemonSet", ShortNames: []string{"ds"}, Categories: inAll},
			New:   object[appsv1.DaemonSet], Namespaced: true,
			Subresources: []resource.Subresource{statusBy(setDaemonSetStatus, updates(apps.ValidateDaemonSetStatus))},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: recheckUpdate, Generation: counted,
				Default:        defaults(apps.DefaultDaemonSet),
				PrepareCreate:  defaults(apps.PrepareDaemonSet),
				PrepareUpdate:  prepares(apps.PrepareDaemonSetUpdate),
				Validate:       validates(apps.ValidateDaemonSet),
				ValidateUpdate: updates(apps.ValidateDaemonSetUpdate),
				Warnings:       warns(apps.DaemonSetWarnings),
			},
		},
		{
			Names: resource.Names{Resource: "deployments", Kind: "Deployment", ShortNames: []string{"deploy"}, Categories: inAll},
			New:   object[appsv1.Deployment], Namespaced: true,
			Subresources: []resource.Subresource{scaleOf(deploymentScale), statusWith(updates(apps.ValidateDeploymentStatus))},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: recheckUpdate, Status: resource.StatusRules{Fixed: resource.Labels},
				Generation:     resource.Generation{Initial: 1, CountChanges: true, CountMetadata: resource.Annotations},
				Default:        defaults(apps.DefaultDeployment),
				Validate:       validates(apps.ValidateDeployment),
				ValidateUpdate: updates(apps.ValidateDeploymentUpdate),
				Warnings:       warns(apps.DeploymentWarnings),
			},
		},
		{
			Names: resource.Names{Resource: "replicasets", Kind: "ReplicaSet", ShortNames: []string{"rs"}, Categories: inAll},
			New:   object[appsv1.ReplicaSet], Namespaced: true,
			Subresources: []resource.Subresource{scaleOf(replicaSetScale), statusWith(updates(apps.ValidateReplicaSetStatus))},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: recheckUpdate, Generation: counted,
				Default:        defaults(apps.DefaultReplicaSet),
				Validate:       validates(apps.ValidateReplicaSet),
				ValidateUpdate: updates(apps.ValidateReplicaSetUpdate),
				Warnings:       warns(apps.ReplicaSetWarnings),
			},
		},
		{
			Names: resource.Names{Resource: "statefulsets", Kind: "StatefulSet", ShortNames: []string{"sts"}, Categories: inAll},
			New:   object[appsv1.StatefulSet], Namespaced: true,
			Subresources: []resource.Subresource{scaleOf(statefulSetScale), statusWith(updates(apps.ValidateStatefulSetStatus))},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true,
				Metadata:                 resource.MetadataRules{ValidateName: validation.NameIsDNSLabel, Recheck: resource.RecheckUpdate},
				Generation:               counted,
				Default:                  defaults(defaultStatefulSet),
				Validate:                 validates(apps.ValidateStatefulSet),
				ValidateUpdate:           updates(apps.ValidateStatefulSetUpdate),
				Warnings:                 warns(apps.StatefulSetWarnings),
			},
		},
	}})
}
