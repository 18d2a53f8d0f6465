package builtin

import (
	nodev1 "k8s.io/api/node/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/node"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// nodeGroup has RuntimeClasses.
func nodeGroup() resource.Group {
	return group("node.k8s.io", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "runtimeclasses", Kind: "RuntimeClass"},
			New:   object[nodev1.RuntimeClass],
			Strategy: resource.Strategy{
				AllowCreateOnUpdate: true, Metadata: resource.MetadataRules{AnyFinalizer: true},
				Validate:       validates(node.ValidateRuntimeClass),
				ValidateUpdate: updates(node.ValidateRuntimeClassUpdate),
			},
		},
	}})
}
