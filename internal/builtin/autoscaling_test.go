package builtin_test

import (
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"github.com/tidemark-dev/tidemark/internal/builtin/autoscaling"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

const autoscaler = "{metadata: {name: a}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}}"

func TestAutoscaler(t *testing.T) {
	validate := func(a *autoscalingv2.HorizontalPodAutoscaler) []string {
		autoscaling.Default(a)
		return testkinds.Texts(autoscaling.Rules{ScaleToZero: true}.Validate(a))
	}
	testkinds.Rules(t, autoscaler, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "behavior: {scaleUp: {policies: [{type: Pods, value: 1, periodSeconds: 1800}]}}", ""},
		{"minReplicas is 0 at least", "minReplicas: -1", "minReplicas: Invalid value: -1: must be greater than or equal to 0"},
		{"minReplicas 0 needs a metric beyond Pods", "minReplicas: 0", "metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas"},
		{"maxReplicas is required", "maxReplicas: 0", "maxReplicas: Required value: must be set and greater than 0\nmaxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`"},
		{"maxReplicas is positive", "maxReplicas: -1", "maxReplicas: Invalid value: -1: must be greater than or equal to 1\nmaxReplicas: Invalid value: -1: must be greater than or equal to `minReplicas`"},
		{"maxReplicas is at least minReplicas", "minReplicas: 4", "maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`"},
		{"target: a kind is required", "scaleTargetRef.kind: ''", "scaleTargetRef.kind: Required value"},
		{"target: a name is a segment", "scaleTargetRef.name: a/b", `scaleTargetRef.name: Invalid value: "a/b": may not contain '/'`},
		{"target: a version has a group", "scaleTargetRef.apiVersion: v1", `scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group`},
		{"target: a version is one", "scaleTargetRef.apiVersion: a/b/c", `scaleTargetRef.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c`},
		{"target: a ReplicationController has no group", "scaleTargetRef: {apiVersion: v1, kind: ReplicationController, name: r}", ""},
		{"behavior: a window is not negative", "behavior: {scaleUp: {stabilizationWindowSeconds: -1}}", "behavior.scaleUp.stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to zero"},
		{"behavior: a window is an hour at most", "behavior: {scaleDown: {stabilizationWindowSeconds: 3601}}", "behavior.scaleDown.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600"},
		{"behavior: selectPolicy is known", "behavior: {scaleUp: {selectPolicy: Any}}", `behavior.scaleUp.selectPolicy: Unsupported value: "Any": supported values: "Disabled", "Max", "Min"`},
		{"behavior: a type is known", "behavior: {scaleUp: {policies: [{type: Any, value: 1, periodSeconds: 1}]}}", `behavior.scaleUp.policies[0].type: Unsupported value: "Any": supported values: "Percent", "Pods"`},
		{"behavior: numbers are positive", "behavior: {scaleUp: {policies: [{type: Pods, value: 0, periodSeconds: 0}]}}", "behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero\nbehavior.scaleUp.policies[0].periodSeconds: Invalid value: 0: must be greater than zero"},
		{"behavior: a period is half an hour at most", "behavior: {scaleUp: {policies: [{type: Pods, value: 1, periodSeconds: 1801}]}}", "behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800"},
		{"behavior: a tolerance is not negative", "behavior: {scaleUp: {tolerance: -1}}", `behavior.scaleUp.tolerance: Invalid value: "-1": must be greater than or equal to 0`},
	}), validate)
	testkinds.Rules(t, autoscaler, testkinds.Below("spec.metrics[0]", []testkinds.Rule{
		{"metric: a type is required", ": {}", "type: Required value: must specify a metric source type\ntype: Unsupported value: \"\": supported values: \"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\"\ntype: Unsupported value: \"\": supported values: \"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\""},
		{"metric: a type is known", ": {type: Any}", "type: Unsupported value: \"Any\": supported values: \"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\"\ntype: Unsupported value: \"Any\": supported values: \"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\""},
		{"metric: a source is required", ": {type: Pods}", "pods: Required value: must populate information for the given metric source"},
		{"metric: one source", ": {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}, pods: {metric: {name: a}, target: {type: AverageValue, averageValue: 1}}}", "pods: Forbidden: must populate the given metric source only"},
		{"object: valid", ": {type: Object, object: {describedObject: {apiVersion: v1, kind: A, name: a}, metric: {name: a}, target: {type: Value, value: 1}}}", ""},
		{"object: required", ": {type: Object, object: {describedObject: {}, metric: {}, target: {}}}", "object.describedObject.kind: Required value\nobject.describedObject.name: Required value\nobject.metric.name: Required value: must specify a metric name\nobject.target.type: Required value: must specify a metric target type\nobject.target.type: Invalid value: \"\": must be either Utilization, Value, or AverageValue\nobject.target.averageValue: Required value: must set either a target value or averageValue"},
		{"external: required", ": {type: External, external: {metric: {}, target: {type: Value}}}", "external.metric.name: Required value: must specify a metric name\nexternal.target.averageValue: Required value: must set either a target value for metric or a per-pod target"},
		{"external: one of both", ": {type: External, external: {metric: {name: a}, target: {type: Value, value: 1, averageValue: 1}}}", "external.target.value: Forbidden: may not set both a target value for metric and a per-pod target"},
		{"pods: required", ": {type: Pods, pods: {metric: {name: a/b}, target: {type: AverageValue}}}", "pods.metric.name: Invalid value: \"a/b\": may not contain '/'\npods.target.averageValue: Required value: must specify a positive target averageValue"},
		{"resource: required", ": {type: Resource, resource: {target: {type: Utilization}}}", "resource.name: Required value: must specify a resource name\nresource.target.averageUtilization: Required value: must set either a target raw value or a target utilization"},
		{"resource: one of both", ": {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 1, averageValue: 1}}}", "resource.target.averageValue: Forbidden: may not set both a target raw value and a target utilization"},
		{"containerResource: required", ": {type: ContainerResource, containerResource: {target: {type: Utilization}}}", "containerResource.name: Required value: must specify a resource name\ncontainerResource.container: Required value: must specify a container\ncontainerResource.target.averageUtilization: Required value: must set either a target raw value or a target utilization"},
		{"containerResource: names are valid", ": {type: ContainerResource, containerResource: {name: disk, container: A, target: {type: Utilization, averageUtilization: 1}}}", "containerResource.name: Invalid value: \"disk\": must be a standard resource type or fully qualified\ncontainerResource.name: Invalid value: \"disk\": must be a standard resource for containers\ncontainerResource.container: Invalid value: \"A\": a lowercase RFC 1123 label must consist of..."},
		{"target of a metric is positive", ": {type: Resource, resource: {name: cpu, target: {type: Any, value: 0, averageUtilization: 0}}}", "resource.target.type: Invalid value: \"Any\": must be either Utilization, Value, or AverageValue\nresource.target.value: Invalid value: \"0\": must be positive\nresource.target.averageUtilization: Invalid value: 0: must be greater than 0"},
		{"target of a metric has a positive average", ": {type: Pods, pods: {metric: {name: a}, target: {type: AverageValue, averageValue: 0}}}", `pods.target.averageValue: Invalid value: "0": must be positive`},
	}), validate)
	testkinds.Updates(t, autoscaler, []testkinds.Update{
		{"zero replicas stay", "spec.minReplicas: 0", "metadata.labels: {a: b}", "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas"},
		{"zero replicas need a metric beyond Pods", "spec.minReplicas: 0\nspec.metrics: [{type: External, external: {metric: {name: a}, target: {type: Value, value: 1}}}]", "metadata.labels: {a: b}", ""},
		{"a wrong target stays", "spec.scaleTargetRef.apiVersion: a/b/c", "metadata.labels: {a: b}", ""},
		{"a wrong target does not come", "", "spec.scaleTargetRef.apiVersion: a/b/c", `spec.scaleTargetRef.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c`},
	}, func(a, old *autoscalingv2.HorizontalPodAutoscaler) []string {
		autoscaling.Default(a)
		return testkinds.Texts(autoscaling.Rules{ScaleToZero: true}.ValidateUpdate(a, old))
	})
	testkinds.Updates(t, autoscaler, []testkinds.Update{
		{"status: a generation is not negative", "", "status: {observedGeneration: -1, conditions: [{type: AbleToScale, observedGeneration: -2}]}", "status.conditions[0].observedGeneration: Invalid value: -2: must be greater than or equal to 0"},
		{"status: not negative", "", "status: {currentReplicas: -1, desiredReplicas: -1}", "status.currentReplicas: Invalid value: -1: must be greater than or equal to 0\nstatus.desiredReplicas: Invalid value: -1: must be greater than or equal to 0"},
	}, func(a, old *autoscalingv2.HorizontalPodAutoscaler) []string {
		return testkinds.Texts(autoscaling.ValidateAutoscalerStatus(a, old))
	})
	testkinds.Rules(t, autoscaler, []testkinds.Rule{
		{"default: all", "metadata.labels: {a: b}", "spec.metrics[0].resource.name: cpu\nspec.metrics[0].resource.target.averageUtilization: 80\nspec.metrics[0].resource.target.type: Utilization\nspec.metrics[0].type: Resource\nspec.minReplicas: 1"},
		{"default: a behavior", "spec.behavior: {scaleUp: {}, scaleDown: {}}", "spec.behavior.scaleDown.policies[0].periodSeconds: 15\nspec.behavior.scaleDown.policies[0].type: Percent\nspec.behavior.scaleDown.policies[0].value: 100\nspec.behavior.scaleDown.selectPolicy: Max\nspec.behavior.scaleDown: removed\nspec.behavior.scaleUp.policies[0].periodSeconds: 15\nspec.behavior.scaleUp.policies[0].type: Pods\nspec.behavior.scaleUp.policies[0].value: 4\nspec.behavior.scaleUp.policies[1].periodSeconds: 15\nspec.behavior.scaleUp.policies[1].type: Percent\nspec.behavior.scaleUp.policies[1].value: 100\nspec.behavior.scaleUp.selectPolicy: Max\nspec.behavior.scaleUp.stabilizationWindowSeconds: 0\nspec.behavior.scaleUp: removed\nspec.metrics[0].resource.name: cpu\nspec.metrics[0].resource.target.averageUtilization: 80\nspec.metrics[0].resource.target.type: Utilization\nspec.metrics[0].type: Resource\nspec.minReplicas: 1"},
	}, func(a *autoscalingv2.HorizontalPodAutoscaler) []string {
		return testkinds.Changes(a, autoscaling.Default)
	})
}
