package columns

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

func autoscalerColumns() []column {
	spec := autoscalingv2.HorizontalPodAutoscalerSpec{}
	return nameAndAge(str("Reference", doc(spec, "scaleTargetRef")), str("Targets", doc(spec, "metrics")), str("MinPods", doc(spec, "minReplicas")),
		str("MaxPods", doc(spec, "maxReplicas")), str("Replicas", doc(autoscalingv2.HorizontalPodAutoscalerStatus{}, "currentReplicas")))
}

func autoscaler(o *autoscalingv2.HorizontalPodAutoscaler, r *resource.Row) {
	r.String(o.Name)
	r.String(o.Spec.ScaleTargetRef.Kind + "/" + o.Spec.ScaleTargetRef.Name)
	r.String(targets(o))
	if o.Spec.MinReplicas != nil {
		r.String(itoa(*o.Spec.MinReplicas))
	} else {
		r.String("<unset>")
	}
	replicas(r, o.Spec.MaxReplicas, o.Status.CurrentReplicas)
	since(r, o)
}

// targets formats the current and target values of the first metrics.
func targets(o *autoscalingv2.HorizontalPodAutoscaler) string {
	if len(o.Spec.Metrics) == 0 {
		return "<none>"
	}
	all := make([]string, len(o.Spec.Metrics))
	for i := range o.Spec.Metrics {
		current := &autoscalingv2.MetricStatus{}
		if i < len(o.Status.CurrentMetrics) {
			current = &o.Status.CurrentMetrics[i]
		}
		all[i] = target(&o.Spec.Metrics[i], current)
	}
	return few(all, 2, ", ")
}

// target formats one metric. If the status is of another type, the current value is unknown.
func target(m *autoscalingv2.MetricSpec, s *autoscalingv2.MetricStatus) string {
	switch {
	case m.Type == autoscalingv2.ExternalMetricSourceType && m.External != nil:
		var now *autoscalingv2.MetricValueStatus
		if s.External != nil {
			now = &s.External.Current
		}
		return valueOf(&m.External.Target, now)
	case m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil:
		var now *autoscalingv2.MetricValueStatus
		if s.Object != nil {
			now = &s.Object.Current
		}
		return valueOf(&m.Object.Target, now)
	case m.Type == autoscalingv2.PodsMetricSourceType && m.Pods != nil:
		now := "<unknown>"
		if s.Pods != nil {
			now = quantity(s.Pods.Current.AverageValue)
		}
		return now + "/" + quantity(m.Pods.Target.AverageValue)
	case m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil:
		var now *autoscalingv2.MetricValueStatus
		if s.Resource != nil {
			now = &s.Resource.Current
		}
		return string(m.Resource.Name) + ": " + usage(&m.Resource.Target, now)
	case m.Type == autoscalingv2.ContainerResourceMetricSourceType && m.ContainerResource != nil:
		var now *autoscalingv2.MetricValueStatus
		if s.ContainerResource != nil {
			now = &s.ContainerResource.Current
		}
		return string(m.ContainerResource.Name) + ": " + usage(&m.ContainerResource.Target, now)
	}
	return "<unknown type>"
}

// valueOf formats a metric whose target is a value or an average.
func valueOf(want *autoscalingv2.MetricTarget, now *autoscalingv2.MetricValueStatus) string {
	current := "<unknown>"
	if want.AverageValue != nil {
		if now != nil && now.AverageValue != nil {
			current = now.AverageValue.String()
		}
		return current + "/" + want.AverageValue.String() + " (avg)"
	}
	if now != nil {
		current = quantity(now.Value)
	}
	return current + "/" + quantity(want.Value)
}

// usage formats a metric of resource usage, whose target is a value or a percentage of the
// requests.
func usage(want *autoscalingv2.MetricTarget, now *autoscalingv2.MetricValueStatus) string {
	current, target := "<unknown>", "<auto>"
	if want.AverageValue != nil {
		if now != nil {
			current = quantity(now.AverageValue)
		}
		return current + "/" + want.AverageValue.String()
	}
	if now != nil && now.AverageUtilization != nil {
		current = itoa(*now.AverageUtilization) + "%"
	}
	if want.AverageUtilization != nil {
		target = itoa(*want.AverageUtilization) + "%"
	}
	return current + "/" + target
}

// quantity formats a quantity, which may be nil.
func quantity(q *apiresource.Quantity) string {
	if q == nil {
		return "<nil>"
	}
	return q.String()
}
