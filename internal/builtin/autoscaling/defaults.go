package autoscaling

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

// DefaultUtilization is the target of an autoscaler without metrics, in percent of the requested
// CPU.
const DefaultUtilization = 80

// behaviorPeriod is the period of the default policies, in seconds.
const behaviorPeriod = 15

// DefaultOld sets the defaults of version 1. The default metric is added by the conversion.
func DefaultOld(a *autoscalingv1.HorizontalPodAutoscaler) {
	if a.Spec.MinReplicas == nil {
		a.Spec.MinReplicas = one()
	}
}

func one() *int32 { n := int32(1); return &n }

// Default sets the defaults of version 2: minReplicas 1, the CPU as the metric, and the rules of a
// behavior.
func Default(a *autoscalingv2.HorizontalPodAutoscaler) {
	if a.Spec.MinReplicas == nil {
		a.Spec.MinReplicas = one()
	}
	if len(a.Spec.Metrics) == 0 {
		percent := int32(DefaultUtilization)
		a.Spec.Metrics = []autoscalingv2.MetricSpec{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{
				Name:   corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
			},
		}}
	}
	DefaultBehavior(a.Spec.Behavior)
}

// DefaultBehavior sets the defaults of a behavior; nil has none.
func DefaultBehavior(b *autoscalingv2.HorizontalPodAutoscalerBehavior) {
	if b == nil {
		return
	}
	b.ScaleUp = withDefaults(b.ScaleUp, []autoscalingv2.HPAScalingPolicy{
		{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: behaviorPeriod},
		{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: behaviorPeriod},
	})
	if b.ScaleUp.StabilizationWindowSeconds == nil { // for scaling down, the controller chooses it
		b.ScaleUp.StabilizationWindowSeconds = new(int32)
	}
	b.ScaleDown = withDefaults(b.ScaleDown, []autoscalingv2.HPAScalingPolicy{
		{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: behaviorPeriod},
	})
}

func withDefaults(r *autoscalingv2.HPAScalingRules, policies []autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
	if r == nil {
		r = &autoscalingv2.HPAScalingRules{}
	}
	if r.SelectPolicy == nil {
		most := autoscalingv2.MaxChangePolicySelect
		r.SelectPolicy = &most
	}
	if r.Policies == nil {
		r.Policies = policies
	}
	return r
}
