package builtin

import (
	"encoding/json"
	"fmt"
	"reflect"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/builtin/autoscaling"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Version 1 of HorizontalPodAutoscaler knows one metric, the use of the CPU. All
// else that version 2 holds travels in annotations of version 1, so that a client
// of version 1 that reads an object and writes it back loses nothing. Version 2
// never has these annotations.
const (
	annotationMetrics        = "autoscaling.alpha.kubernetes.io/metrics"
	annotationCurrentMetrics = "autoscaling.alpha.kubernetes.io/current-metrics"
	annotationConditions     = "autoscaling.alpha.kubernetes.io/conditions"
	annotationBehavior       = "autoscaling.alpha.kubernetes.io/behavior"
	annotationToleranceDown  = "autoscaling.alpha.kubernetes.io/scale-down-tolerance"
	annotationToleranceUp    = "autoscaling.alpha.kubernetes.io/scale-up-tolerance"
)

// behavior is HorizontalPodAutoscalerBehavior as the annotation encodes it: with the Go names of
// the fields, and no field left out.
type behavior struct {
	ScaleUp   *behaviorRules
	ScaleDown *behaviorRules
}

type behaviorRules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []behaviorPolicy
	Tolerance                  *resource.Quantity
}

type behaviorPolicy struct {
	Type          autoscalingv2.HPAScalingPolicyType
	Value         int32
	PeriodSeconds int32
}

// unexpected is the error of a conversion whose caller passed an object of another kind.
func unexpected(o runtime.Object, want string) error {
	return fmt.Errorf("cannot convert %T: it is not a %s", o, want)
}

// defaultAutoscaler drops the annotations of version 1, and sets the defaults.
func defaultAutoscaler(o runtime.Object) {
	a := o.(*autoscalingv2.HorizontalPodAutoscaler)
	dropAnnotations(a.Annotations)
	autoscaling.Default(a)
}

func dropAnnotations(a map[string]string) {
	for _, k := range []string{
		annotationMetrics, annotationCurrentMetrics, annotationConditions,
		annotationBehavior, annotationToleranceDown, annotationToleranceUp,
	} {
		delete(a, k)
	}
}

// storedAutoscaler converts version 1 to the stored version, with the default behavior.
func storedAutoscaler(o runtime.Object) (runtime.Object, error) {
	out, err := autoscalerToV2(o)
	if err == nil {
		autoscaling.DefaultBehavior(out.(*autoscalingv2.HorizontalPodAutoscaler).Spec.Behavior)
	}
	return out, err
}

// autoscalerToV2 converts version 1 to version 2. It drops an annotation that cannot be read.
func autoscalerToV2(o runtime.Object) (runtime.Object, error) {
	in, ok := o.(*autoscalingv1.HorizontalPodAutoscaler)
	if !ok {
		return nil, unexpected(o, "autoscaling/v1 HorizontalPodAutoscaler")
	}
	out := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas,
			MaxReplicas:    in.Spec.MaxReplicas,
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration,
			LastScaleTime:      in.Status.LastScaleTime,
			CurrentReplicas:    in.Status.CurrentReplicas,
			DesiredReplicas:    in.Status.DesiredReplicas,
		},
	}
	out.Spec.Metrics = metricsToV2(in.Annotations, in.Spec.TargetCPUUtilizationPercentage)
	out.Spec.Behavior = behaviorToV2(in.Annotations)
	if p := in.Status.CurrentCPUUtilizationPercentage; p != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{
				Name:    corev1.ResourceCPU,
				Current: autoscalingv2.MetricValueStatus{AverageUtilization: p},
			},
		}}
	}
	// The annotation has all metrics; the status of version 1 has the CPU alone.
	if current, ok := readAnnotation[[]autoscalingv1.MetricStatus](in.Annotations, annotationCurrentMetrics); ok {
		out.Status.CurrentMetrics = make([]autoscalingv2.MetricStatus, len(current))
		for i := range current {
			out.Status.CurrentMetrics[i] = metricStatusToV2(&current[i])
		}
	}
	if conditions, ok := readAnnotation[[]autoscalingv1.HorizontalPodAutoscalerCondition](in.Annotations, annotationConditions); ok {
		out.Status.Conditions = conditionsToV2(conditions)
	}
	dropAnnotations(out.Annotations)
	return out, nil
}

// metricsToV2 returns the metrics of the annotation, followed by that of the CPU. An autoscaler
// without metrics gets the default.
func metricsToV2(annotations map[string]string, utilization *int32) []autoscalingv2.MetricSpec {
	others, _ := readAnnotation[[]autoscalingv1.MetricSpec](annotations, annotationMetrics)
	out := make([]autoscalingv2.MetricSpec, 0, len(others)+1)
	for i := range others {
		out = append(out, metricSpecToV2(&others[i]))
	}
	if utilization == nil && len(out) == 0 {
		utilization = new(int32(autoscaling.DefaultUtilization))
	}
	if utilization != nil {
		out = append(out, autoscalingv2.MetricSpec{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{
					Type:               autoscalingv2.UtilizationMetricType,
					AverageUtilization: utilization,
				},
			},
		})
	}
	return out
}

// autoscalerFromV2 converts version 2 to version 1.
func autoscalerFromV2(o runtime.Object) (runtime.Object, error) {
	in, ok := o.(*autoscalingv2.HorizontalPodAutoscaler)
	if !ok {
		return nil, unexpected(o, "autoscaling/v2 HorizontalPodAutoscaler")
	}
	out := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas,
			MaxReplicas:    in.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration,
			LastScaleTime:      in.Status.LastScaleTime,
			CurrentReplicas:    in.Status.CurrentReplicas,
			DesiredReplicas:    in.Status.DesiredReplicas,
		},
	}
	dropAnnotations(out.Annotations)

	var others []autoscalingv1.MetricSpec
	for i := range in.Spec.Metrics {
		m := &in.Spec.Metrics[i]
		switch {
		case !isUtilizationOfCPU(m):
			others = append(others, metricSpecFromV2(m))
		case out.Spec.TargetCPUUtilizationPercentage == nil:
			out.Spec.TargetCPUUtilizationPercentage = m.Resource.Target.AverageUtilization
		}
	}
	current := make([]autoscalingv1.MetricStatus, len(in.Status.CurrentMetrics))
	for i := range in.Status.CurrentMetrics {
		m := &in.Status.CurrentMetrics[i]
		current[i] = metricStatusFromV2(m)
		if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil &&
			m.Resource.Name == corev1.ResourceCPU && m.Resource.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
	}
	for _, a := range []struct {
		key   string
		set   bool
		value any
	}{
		{annotationMetrics, len(others) > 0, others},
		{annotationCurrentMetrics, len(current) > 0, current},
		{annotationBehavior, in.Spec.Behavior != nil, behaviorFromV2(in.Spec.Behavior)},
		{annotationConditions, len(in.Status.Conditions) > 0, conditionsFromV2(in.Status.Conditions)},
	} {
		if !a.set {
			continue
		}
		b, err := json.Marshal(a.value)
		if err != nil {
			return nil, fmt.Errorf("writing annotation %s: %w", a.key, err)
		}
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[a.key] = string(b)
	}
	return out, nil
}

// isUtilizationOfCPU reports whether version 1 has a field for the metric.
func isUtilizationOfCPU(m *autoscalingv2.MetricSpec) bool {
	return m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil &&
		m.Resource.Name == corev1.ResourceCPU && m.Resource.Target.AverageUtilization != nil
}

// readAnnotation decodes an annotation. It returns false if the annotation is missing, is not JSON
// of type T, or has a quantity that takes too long to decode.
func readAnnotation[T any](annotations map[string]string, key string) (T, bool) {
	var v, none T
	s, ok := annotations[key]
	if !ok || wire.CheckQuantities([]byte(s), reflect.TypeFor[T]()) != nil || json.Unmarshal([]byte(s), &v) != nil {
		return none, false
	}
	return v, true
}

func conditionsToV2(in []autoscalingv1.HorizontalPodAutoscalerCondition) []autoscalingv2.HorizontalPodAutoscalerCondition {
	out := make([]autoscalingv2.HorizontalPodAutoscalerCondition, len(in))
	for i, c := range in {
		out[i] = autoscalingv2.HorizontalPodAutoscalerCondition{
			Type:               autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type),
			Status:             c.Status,
			LastTransitionTime: c.LastTransitionTime,
			Reason:             c.Reason,
			Message:            c.Message,
			ObservedGeneration: c.ObservedGeneration,
		}
	}
	return out
}

func conditionsFromV2(in []autoscalingv2.HorizontalPodAutoscalerCondition) []autoscalingv1.HorizontalPodAutoscalerCondition {
	out := make([]autoscalingv1.HorizontalPodAutoscalerCondition, len(in))
	for i, c := range in {
		out[i] = autoscalingv1.HorizontalPodAutoscalerCondition{
			Type:               autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type),
			Status:             c.Status,
			LastTransitionTime: c.LastTransitionTime,
			Reason:             c.Reason,
			Message:            c.Message,
			ObservedGeneration: c.ObservedGeneration,
		}
	}
	return out
}

func behaviorToV2(annotations map[string]string) *autoscalingv2.HorizontalPodAutoscalerBehavior {
	b, ok := readAnnotation[behavior](annotations, annotationBehavior)
	if !ok || b == (behavior{}) {
		return nil
	}
	rules := func(r *behaviorRules) *autoscalingv2.HPAScalingRules {
		if r == nil {
			return nil
		}
		out := &autoscalingv2.HPAScalingRules{
			StabilizationWindowSeconds: r.StabilizationWindowSeconds,
			SelectPolicy:               r.SelectPolicy,
			Tolerance:                  r.Tolerance,
		}
		for _, p := range r.Policies {
			out.Policies = append(out.Policies, autoscalingv2.HPAScalingPolicy(p))
		}
		return out
	}
	return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(b.ScaleUp), ScaleDown: rules(b.ScaleDown)}
}

func behaviorFromV2(b *autoscalingv2.HorizontalPodAutoscalerBehavior) behavior {
	if b == nil {
		return behavior{}
	}
	rules := func(r *autoscalingv2.HPAScalingRules) *behaviorRules {
		if r == nil {
			return nil
		}
		out := &behaviorRules{
			StabilizationWindowSeconds: r.StabilizationWindowSeconds,
			SelectPolicy:               r.SelectPolicy,
			Tolerance:                  r.Tolerance,
		}
		for _, p := range r.Policies {
			out.Policies = append(out.Policies, behaviorPolicy(p))
		}
		return out
	}
	return behavior{ScaleUp: rules(b.ScaleUp), ScaleDown: rules(b.ScaleDown)}
}
