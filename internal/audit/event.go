package audit

import (
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/jsontext"
)

// Event is the record of a request. The fields are those of an Event of audit.k8s.io/v1. It must
// not change while the Auditor processes it.
type Event struct {
	Decision
	AuditID string
	// RequestURI is the path and the query.
	RequestURI, Verb string
	// User is nil if the request is not authenticated. Impersonated is nil if the request
	// impersonates no user. Constraint is the mode of a constrained impersonation.
	User, Impersonated *authn.User
	Constraint         string
	SourceIPs          []string
	UserAgent          string
	// Object is the resource of the request, nil for a non-resource request.
	Object *ObjectRef
	// Status is the status of the response; nil: there is no response yet. Only the fields Status,
	// Message, Reason, Details and Code count.
	Status *metav1.Status
	// RequestObject and ResponseObject are JSON; nil: there is none. Text that is no JSON
	// becomes a string.
	RequestObject, ResponseObject []byte
	// Received is when the server received the request.
	Received    time.Time
	Annotations Annotations
	// NoWait: the request does not wait for the back ends of blocking modes. They write the event later.
	NoWait bool
	// Done is closed when the client has left. This ends the wait for a webhook. Nil: the client never leaves.
	Done <-chan struct{}

	waited time.Duration // how long the request has waited for webhooks
}

// ObjectRef names the object of a request.
type ObjectRef struct {
	Resource, Namespace, Name, UID, APIGroup, APIVersion, ResourceVersion, Subresource string
}

// Annotations are the annotations of an event, sorted by key.
type Annotations []Annotation

// Annotation is an annotation of an event.
type Annotation struct{ Key, Value string }

// Set sets an annotation. A key keeps its first value.
func (a *Annotations) Set(key, value string) {
	at, ok := slices.BinarySearchFunc(*a, key, func(one Annotation, key string) int { return strings.Compare(one.Key, key) })
	if !ok {
		*a = slices.Insert(*a, at, Annotation{key, value})
	}
}

// eventHead begins each event. In a list, events have no kind.
const eventHead = `{"kind":"Event","apiVersion":"audit.k8s.io/v1",`

// append appends the event at a stage as a line of JSON. If cut is true, an annotation
// replaces the objects.
func (e *Event) append(to []byte, stage Stage, at time.Time, cut bool) []byte {
	to = append(append(append(to, eventHead...), `"level":"`...), levelNames[e.Level]...)
	to = jsontext.AppendString(append(to, `","auditID":`...), e.AuditID)
	to = append(append(append(to, `,"stage":"`...), stageNames[stage]...), '"')
	to = jsontext.AppendString(append(to, `,"requestURI":`...), e.RequestURI)
	to = jsontext.AppendString(append(to, `,"verb":`...), e.Verb)
	to = appendUser(append(to, `,"user":`...), e.User)
	if e.Impersonated != nil {
		to = appendUser(append(to, `,"impersonatedUser":`...), e.Impersonated)
	}
	if e.Constraint != "" {
		to = append(jsontext.AppendString(append(to, `,"authenticationMetadata":{"impersonationConstraint":`...), e.Constraint), '}')
	}
	if len(e.SourceIPs) > 0 {
		to = appendStrings(append(to, `,"sourceIPs":`...), e.SourceIPs)
	}
	to = appendMember(to, `"userAgent":`, e.UserAgent)
	if e.Object != nil {
		to = e.Object.append(append(to, `,"objectRef":`...))
	}
	if e.Status != nil {
		to = appendStatus(append(to, `,"responseStatus":`...), e.Status)
	}
	if !cut && e.RequestObject != nil {
		to = appendRaw(append(to, `,"requestObject":`...), e.RequestObject)
	}
	if !cut && e.ResponseObject != nil {
		to = appendRaw(append(to, `,"responseObject":`...), e.ResponseObject)
	}
	to = appendMicros(append(to, `,"requestReceivedTimestamp":`...), e.Received)
	to = appendMicros(append(to, `,"stageTimestamp":`...), at)
	annotations := e.Annotations
	if cut {
		annotations = slices.Clone(annotations)
		annotations.Set(truncatedKey, "true")
	}
	return append(annotations.append(to), '}', '\n')
}

// truncatedKey is the annotation of an event without its objects, which were too large.
const truncatedKey = "audit.k8s.io/truncated"

func (a Annotations) append(to []byte) []byte {
	if len(a) == 0 {
		return to
	}
	to = append(to, `,"annotations":{`...)
	for i, one := range a {
		if i > 0 {
			to = append(to, ',')
		}
		to = jsontext.AppendString(append(jsontext.AppendString(to, one.Key), ':'), one.Value)
	}
	return append(to, '}')
}

func appendUser(to []byte, u *authn.User) []byte {
	to = append(to, '{')
	if u != nil {
		to = appendMember(to, `"username":`, u.Name)
		to = appendMember(to, `"uid":`, u.UID)
		if len(u.Groups) > 0 {
			to = appendStrings(append(appendComma(to), `"groups":`...), u.Groups)
		}
		if len(u.Extra) > 0 {
			to = appendLists(append(appendComma(to), `"extra":`...), u.Extra)
		}
	}
	return append(to, '}')
}

func (o *ObjectRef) append(to []byte) []byte {
	to = append(to, '{')
	to = appendMember(to, `"resource":`, o.Resource)
	to = appendMember(to, `"namespace":`, o.Namespace)
	to = appendMember(to, `"name":`, o.Name)
	to = appendMember(to, `"uid":`, o.UID)
	to = appendMember(to, `"apiGroup":`, o.APIGroup)
	to = appendMember(to, `"apiVersion":`, o.APIVersion)
	to = appendMember(to, `"resourceVersion":`, o.ResourceVersion)
	to = appendMember(to, `"subresource":`, o.Subresource)
	return append(to, '}')
}

func appendStatus(to []byte, s *metav1.Status) []byte {
	to = append(to, `{"metadata":{}`...)
	to = appendMember(to, `"status":`, s.Status)
	to = appendMember(to, `"message":`, s.Message)
	to = appendMember(to, `"reason":`, string(s.Reason))
	if s.Details != nil {
		to = appendDetails(append(to, `,"details":`...), s.Details)
	}
	if s.Code != 0 {
		to = strconv.AppendInt(append(to, `,"code":`...), int64(s.Code), 10)
	}
	return append(to, '}')
}

func appendDetails(to []byte, d *metav1.StatusDetails) []byte {
	to = append(to, '{')
	to = appendMember(to, `"name":`, d.Name)
	to = appendMember(to, `"group":`, d.Group)
	to = appendMember(to, `"kind":`, d.Kind)
	to = appendMember(to, `"uid":`, string(d.UID))
	if len(d.Causes) > 0 {
		to = append(appendComma(to), `"causes":[`...)
		for i := range d.Causes {
			c := &d.Causes[i]
			to = append(appendComma(to), '{')
			to = appendMember(to, `"reason":`, string(c.Type))
			to = appendMember(to, `"message":`, c.Message)
			to = append(appendMember(to, `"field":`, c.Field), '}')
		}
		to = append(to, ']')
	}
	if d.RetryAfterSeconds != 0 {
		to = strconv.AppendInt(append(appendComma(to), `"retryAfterSeconds":`...), int64(d.RetryAfterSeconds), 10)
	}
	return append(to, '}')
}
