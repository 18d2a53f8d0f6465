package builtin

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"github.com/tidemark-dev/tidemark/internal/builtin/autoscaling"
	"github.com/tidemark-dev/tidemark/internal/features"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// autoscalingGroup serves one collection in two versions: v2 is stored, v1 is
// converted.
func autoscalingGroup(p *features.Profile) resource.Group {
	var generation resource.Generation
	if p.Enabled(features.AutoscalerGeneration) {
		generation = counted
	}
	rules := autoscaling.Rules{ScaleToZero: p.Enabled(features.ScaleToZero)}
	v2 := []resource.Type{{
		Names: resource.Names{Resource: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler", ShortNames: []string{"hpa"}, Categories: inAll},
		New:   object[autoscalingv2.HorizontalPodAutoscaler], Namespaced: true,
		Subresources: []resource.Subresource{statusWith(updates(autoscaling.ValidateAutoscalerStatus))},
		Strategy: resource.Strategy{
			AllowUnconditionalUpdate: true, Metadata: recheckUpdate, Generation: generation,
			Default:        defaultAutoscaler,
			Validate:       validates(rules.Validate),
			ValidateUpdate: updates(rules.ValidateUpdate),
		},
	}}
	v1 := []resource.Type{{
		Names: resource.Names{Resource: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler", ShortNames: []string{"hpa"}, Categories: inAll},
		New:   object[autoscalingv1.HorizontalPodAutoscaler], Namespaced: true,
		Conversion:   &resource.Conversion{Stored: &v2[0], ToStored: alone(storedAutoscaler), FromStored: alone(autoscalerFromV2)},
		Subresources: []resource.Subresource{statusWith(updates(autoscaling.ValidateAutoscalerStatus))},
		Strategy: resource.Strategy{
			AllowUnconditionalUpdate: true, Metadata: recheckUpdate, Generation: generation,
			Default: defaults(autoscaling.DefaultOld),
		},
	}}
	return group("autoscaling", version{"v2", v2}, version{"v1", v1})
}
