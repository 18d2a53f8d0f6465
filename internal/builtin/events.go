package builtin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// eventsGroup serves the Events of the core group as events.k8s.io/v1.
func eventsGroup(stored *resource.Type) resource.Group {
	return group("events.k8s.io", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "events", Kind: "Event", ShortNames: []string{"ev"}},
			New:   object[eventsv1.Event], Namespaced: true, Collection: stored.Collection,
			Conversion: &resource.Conversion{Stored: stored, ToStored: alone(eventToCore), FromStored: alone(eventFromCore)},
			Display:    resource.Display{Fields: regardingFields, FieldError: notSupported},
			Strategy: resource.Strategy{
				AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true,
				Metadata:       resource.MetadataRules{AnyFinalizer: true},
				Validate:       validates(core.ValidateNewEvent),
				ValidateUpdate: updates(core.ValidateNewEventUpdate),
			},
		},
	}})
}

// The selectable fields of Events in the two versions, and their paths in the stored version.
var (
	eventFields = []resource.Field{
		{Name: "involvedObject.apiVersion"},
		{Name: "involvedObject.fieldPath"},
		{Name: "involvedObject.kind"},
		{Name: "involvedObject.name"},
		{Name: "involvedObject.namespace"},
		{Name: "involvedObject.resourceVersion"},
		{Name: "involvedObject.uid"},
		{Name: "reason"},
		{Name: "reportingComponent"},
		{Name: "source", Paths: [][]string{{"source", "component"}, {"reportingComponent"}}},
		{Name: "type"},
	}
	regardingFields = []resource.Field{
		{Name: "reason"},
		{Name: "regarding.apiVersion", Paths: [][]string{{"involvedObject", "apiVersion"}}},
		{Name: "regarding.fieldPath", Paths: [][]string{{"involvedObject", "fieldPath"}}},
		{Name: "regarding.kind", Paths: [][]string{{"involvedObject", "kind"}}},
		{Name: "regarding.name", Paths: [][]string{{"involvedObject", "name"}}},
		{Name: "regarding.namespace", Paths: [][]string{{"involvedObject", "namespace"}}},
		{Name: "regarding.resourceVersion", Paths: [][]string{{"involvedObject", "resourceVersion"}}},
		{Name: "regarding.uid", Paths: [][]string{{"involvedObject", "uid"}}},
		{Name: "reportingController", Paths: [][]string{{"reportingComponent"}}},
		{Name: "type"},
	}
)

// alone adapts a conversion that needs no context.
func alone(convert func(runtime.Object) (runtime.Object, error)) func(context.Context, runtime.Object) (runtime.Object, error) {
	return func(_ context.Context, o runtime.Object) (runtime.Object, error) { return convert(o) }
}

// eventToCore and eventFromCore lose nothing: each version has a counterpart of each field of the
// other one.
func eventToCore(o runtime.Object) (runtime.Object, error) {
	in, ok := o.(*eventsv1.Event)
	if !ok {
		return nil, unexpected(o, "events.k8s.io/v1 Event")
	}
	return &corev1.Event{
		ObjectMeta:          in.ObjectMeta,
		InvolvedObject:      in.Regarding,
		Reason:              in.Reason,
		Message:             in.Note,
		Source:              in.DeprecatedSource,
		FirstTimestamp:      in.DeprecatedFirstTimestamp,
		LastTimestamp:       in.DeprecatedLastTimestamp,
		Count:               in.DeprecatedCount,
		Type:                in.Type,
		EventTime:           in.EventTime,
		Series:              (*corev1.EventSeries)(in.Series),
		Action:              in.Action,
		Related:             in.Related,
		ReportingController: in.ReportingController,
		ReportingInstance:   in.ReportingInstance,
	}, nil
}

func eventFromCore(o runtime.Object) (runtime.Object, error) {
	in, ok := o.(*corev1.Event)
	if !ok {
		return nil, unexpected(o, "v1 Event")
	}
	return &eventsv1.Event{
		ObjectMeta:               in.ObjectMeta,
		EventTime:                in.EventTime,
		Series:                   (*eventsv1.EventSeries)(in.Series),
		ReportingController:      in.ReportingController,
		ReportingInstance:        in.ReportingInstance,
		Action:                   in.Action,
		Reason:                   in.Reason,
		Regarding:                in.InvolvedObject,
		Related:                  in.Related,
		Note:                     in.Message,
		Type:                     in.Type,
		DeprecatedSource:         in.Source,
		DeprecatedFirstTimestamp: in.FirstTimestamp,
		DeprecatedLastTimestamp:  in.LastTimestamp,
		DeprecatedCount:          in.Count,
	}, nil
}
