package core

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// The maximum lengths of the texts of an Event with an eventTime, in bytes.
const (
	maxReportingInstance = 128
	maxAction            = 128
	maxReason            = 128
	maxNote              = 1024
)

// ValidateEvent checks an Event that was sent as v1, which has few rules.
func ValidateEvent(e *corev1.Event) field.ErrorList { return validateEvent(e, "reportingComponent") }

// ValidateEventUpdate checks an Event that was sent as v1. All fields are mutable.
func ValidateEventUpdate(e, _ *corev1.Event) field.ErrorList { return ValidateEvent(e) }

// ValidateNewEvent checks an Event that was sent as events.k8s.io/v1. It takes the stored version.
func ValidateNewEvent(e *corev1.Event) field.ErrorList {
	errs := validateEvent(e, "reportingController")
	errs = append(errs, validation.ValidateObjectMeta(&e.ObjectMeta, true, validation.NameIsDNSSubdomain, field.NewPath("metadata"))...)
	errs = append(errs, validateFinalizers(e)...)
	errs = append(errs, validateSeries(e)...)
	if e.EventTime == (metav1.MicroTime{}) {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", "has invalid value: "+e.Type))
	}
	for _, old := range []struct {
		name string
		set  bool
	}{
		{"firstTimestamp", e.FirstTimestamp != metav1.Time{}}, // a zero time that the client sent counts as set
		{"lastTimestamp", e.LastTimestamp != metav1.Time{}},
		{"count", e.Count != 0},
		{"source", e.Source != corev1.EventSource{}},
	} {
		if old.set {
			errs = append(errs, field.Invalid(field.NewPath(old.name), "", "needs to be unset"))
		}
	}
	return errs
}

// ValidateNewEventUpdate checks an Event that was sent as events.k8s.io/v1. Only metadata and the
// series are mutable.
func ValidateNewEventUpdate(e, old *corev1.Event) field.ErrorList {
	errs := validateEvent(e, "reportingController")
	errs = append(errs, validation.ValidateObjectMetaUpdate(&e.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))...)
	errs = append(errs, validateFinalizers(e)...)
	if !reflect.DeepEqual(e.Series, old.Series) {
		errs = append(errs, validateSeries(e)...)
	}
	same := func(now, before any, name string) {
		errs = append(errs, immutable(now, before, name)...)
	}
	same(e.InvolvedObject, old.InvolvedObject, "involvedObject")
	same(e.Reason, old.Reason, "reason")
	same(e.Message, old.Message, "message")
	same(e.Source, old.Source, "source")
	same(e.FirstTimestamp, old.FirstTimestamp, "firstTimestamp")
	same(e.LastTimestamp, old.LastTimestamp, "lastTimestamp")
	same(e.Count, old.Count, "count")
	same(e.Reason, old.Reason, "reason")
	same(e.Type, old.Type, "type")
	if !sameMicrosecond(e.EventTime, old.EventTime) {
		same(e.EventTime, old.EventTime, "eventTime")
	}
	same(e.Action, old.Action, "action")
	same(e.Related, old.Related, "related")
	same(e.ReportingController, old.ReportingController, "reportingController")
	same(e.ReportingInstance, old.ReportingInstance, "reportingInstance")
	return errs
}

// validateFinalizers checks that each finalizer has a domain or is a standard one.
func validateFinalizers(e *corev1.Event) (errs field.ErrorList) {
	for i, name := range e.Finalizers {
		errs = append(errs, validateDomain(name, field.NewPath("metadata", "finalizers").Index(i))...)
	}
	return errs
}

func immutable(now, before any, name string) field.ErrorList {
	var errs check.Errors
	errs.Immutable(nil, name, now, before)
	return errs.List()
}

func sameMicrosecond(a, b metav1.MicroTime) bool {
	return a.UnixMicro() == b.UnixMicro()
}

func validateSeries(e *corev1.Event) (errs field.ErrorList) {
	if e.Series == nil {
		return nil
	}
	if e.Series.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series.count"), "", "should be at least 2"))
	}
	if e.Series.LastObservedTime == (metav1.MicroTime{}) {
		errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), ""))
	}
	return errs
}

// validateEvent checks the rules of both versions. Controller is the name of the field for the
// reporting controller in the version.
func validateEvent(e *corev1.Event, controller string) (errs field.ErrorList) {
	of, in := e.InvolvedObject.Namespace, e.Namespace
	if e.EventTime == (metav1.MicroTime{}) {
		elsewhere := in != of
		if of == "" { // things without a namespace have their Events in "default"
			elsewhere = in != "" && in != metav1.NamespaceDefault
		}
		if elsewhere {
			errs = append(errs, otherNamespace(of))
		}
	} else {
		if of == "" && in != metav1.NamespaceDefault && in != metav1.NamespaceSystem {
			errs = append(errs, otherNamespace(of))
		}
		errs = append(errs, validateReport(e, controller)...)
	}
	for _, fault := range utilvalidation.IsDNS1123Subdomain(in) {
		errs = append(errs, field.Invalid(field.NewPath("namespace"), in, fault))
	}
	return errs
}

func otherNamespace(of string) *field.Error {
	return field.Invalid(field.NewPath("involvedObject", "namespace"), of, "does not match event.namespace")
}

// validateReport checks the required fields of an Event with an eventTime.
func validateReport(e *corev1.Event, controller string) (errs field.ErrorList) {
	if e.ReportingController == "" {
		errs = append(errs, field.Required(field.NewPath(controller), ""))
	}
	errs = append(errs, check.QualifiedName(e.ReportingController, field.NewPath(controller))...)
	for _, text := range []struct {
		name, value string
		most        int
		optional    bool
	}{
		{"reportingInstance", e.ReportingInstance, maxReportingInstance, false},
		{"action", e.Action, maxAction, false},
		{"reason", e.Reason, maxReason, false},
		{"message", e.Message, maxNote, true},
	} {
		if text.value == "" && !text.optional {
			errs = append(errs, field.Required(field.NewPath(text.name), ""))
		}
		if len(text.value) > text.most {
			errs = append(errs, field.Invalid(field.NewPath(text.name), "", fmt.Sprintf("can have at most %d characters", text.most)))
		}
	}
	return errs
}
