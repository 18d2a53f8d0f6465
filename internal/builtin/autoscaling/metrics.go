package autoscaling

import (
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

var metricTypes = []autoscalingv2.MetricSourceType{
	autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType, autoscalingv2.ObjectMetricSourceType,
	autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType,
}

// validateMetric checks the first source of a metric, and that it is the only one and matches the
// type.
func (r rules) validateMetric(m *autoscalingv2.MetricSpec, path *field.Path) (errs field.ErrorList) {
	if m.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric source type"))
	}
	known := check.OneOf(m.Type, metricTypes, path.Child("type"))
	errs = append(errs, known...)
	sources := []struct {
		of       autoscalingv2.MetricSourceType
		name     string
		there    bool
		validate func(*field.Path) field.ErrorList
	}{
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil, func(p *field.Path) field.ErrorList { return r.object(m.Object, p) }},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil, func(p *field.Path) field.ErrorList { return external(m.External, p) }},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(p *field.Path) field.ErrorList { return pods(m.Pods, p) }},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil, func(p *field.Path) field.ErrorList { return resource(m.Resource, p) }},
		{autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil, func(p *field.Path) field.ErrorList { return containerResource(m.ContainerResource, p) }},
	}
	var there []string
	for _, s := range sources {
		if !s.there {
			continue
		}
		if len(there) == 0 {
			errs = append(errs, s.validate(path.Child(s.name))...)
		}
		there = append(there, s.name)
	}
	for _, s := range sources {
		if s.of == m.Type && !s.there {
			errs = append(errs, field.Required(path.Child(s.name), "must populate information for the given metric source"))
		}
		if s.of == m.Type && len(there) > 1 {
			there = slices.DeleteFunc(there, func(name string) bool { return name == s.name })
			there = append(there, "")
		}
	}
	errs = append(errs, known...) // kube-apiserver reports it twice
	if len(there) > 1 {
		slices.Sort(there)
		for _, name := range there {
			if name != "" {
				errs = append(errs, field.Forbidden(path.Child(name), "must populate the given metric source only"))
			}
		}
	}
	return errs
}

func (r rules) object(s *autoscalingv2.ObjectMetricSource, path *field.Path) field.ErrorList {
	errs := validateReference(s.DescribedObject, path.Child("describedObject"), version{core: true, any: r.anyObject})
	errs = append(errs, identifier(s.Metric, path.Child("metric"))...)
	errs = append(errs, target(s.Target, path.Child("target"))...)
	if s.Target.Value == nil && s.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must set either a target value or averageValue"))
	}
	return errs
}

func external(s *autoscalingv2.ExternalMetricSource, path *field.Path) field.ErrorList {
	errs := identifier(s.Metric, path.Child("metric"))
	errs = append(errs, target(s.Target, path.Child("target"))...)
	switch value, average := s.Target.Value != nil, s.Target.AverageValue != nil; {
	case !value && !average:
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must set either a target value for metric or a per-pod target"))
	case value && average:
		errs = append(errs, field.Forbidden(path.Child("target", "value"), "may not set both a target value for metric and a per-pod target"))
	}
	return errs
}

func pods(s *autoscalingv2.PodsMetricSource, path *field.Path) field.ErrorList {
	errs := identifier(s.Metric, path.Child("metric"))
	errs = append(errs, target(s.Target, path.Child("target"))...)
	if s.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must specify a positive target averageValue"))
	}
	return errs
}

func resource(s *autoscalingv2.ResourceMetricSource, path *field.Path) (errs field.ErrorList) {
	if s.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "must specify a resource name"))
	}
	return append(errs, utilization(s.Target, path.Child("target"))...)
}

func containerResource(s *autoscalingv2.ContainerResourceMetricSource, path *field.Path) (errs field.ErrorList) {
	if s.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "must specify a resource name"))
	} else {
		errs = append(errs, check.ContainerResourceName(s.Name, path.Child("name"))...)
	}
	if s.Container == "" {
		errs = append(errs, field.Required(path.Child("container"), "must specify a container"))
	} else {
		errs = append(errs, check.DNSLabel(s.Container, path.Child("container"))...)
	}
	return append(errs, utilization(s.Target, path.Child("target"))...)
}

// utilization checks a target of a resource: a value, or a percentage of the requests.
func utilization(t autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	errs := target(t, path)
	switch part, value := t.AverageUtilization != nil, t.AverageValue != nil; {
	case !part && !value:
		errs = append(errs, field.Required(path.Child("averageUtilization"), "must set either a target raw value or a target utilization"))
	case part && value:
		errs = append(errs, field.Forbidden(path.Child("averageValue"), "may not set both a target raw value and a target utilization"))
	}
	return errs
}

func target(t autoscalingv2.MetricTarget, path *field.Path) (errs field.ErrorList) {
	if t.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric target type"))
	}
	switch t.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	default:
		errs = append(errs, field.Invalid(path.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	if t.Value != nil && t.Value.Sign() <= 0 {
		errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be positive"))
	}
	if t.AverageValue != nil && t.AverageValue.Sign() <= 0 {
		errs = append(errs, field.Invalid(path.Child("averageValue"), t.AverageValue, "must be positive"))
	}
	if t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		errs = append(errs, field.Invalid(path.Child("averageUtilization"), t.AverageUtilization, "must be greater than 0"))
	}
	return errs
}

func identifier(id autoscalingv2.MetricIdentifier, path *field.Path) field.ErrorList {
	if id.Name == "" {
		return field.ErrorList{field.Required(path.Child("name"), "must specify a metric name")}
	}
	return check.Segment(id.Name, path.Child("name"))
}
