package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/net"

	"github.com/tidemark-dev/tidemark/internal/audit"
	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// This file fills the audit event of a request. A request without one has none of this: audited
// is nil, and its methods do nothing. Events begin after authentication, which gives them their
// user, and before impersonation and authorization, whose outcome they tell.

// errNotStored is the reason of a request that is refused with the mode blocking-strict.
var errNotStored = errors.New("failed to store audit event")

// audited is the audit event of a request. Only the request's goroutine uses it.
type audited struct {
	audit.Event
	auditor *audit.Auditor
	object  audit.ObjectRef
	status  metav1.Status
	sources [4]string // room for Event.SourceIPs

	long     bool // the headers of the response have an event of their own
	refused  bool // the request was not authenticated: the headers have the only event
	complete bool // the last event was processed
	hidden   bool // the event has nothing of the response but its code
	bare     bool // the event has no object of the response
	// deprecated: the request reached a deprecated resource.
	deprecated bool
}

const (
	userAgentBytes = 1024 // of a user agent; the rest is cut off
	// strangerBytes bounds the URI and each part of it in the event of a request without a user or
	// of an anonymous one. A blocking log writes one event after the other: otherwise
	// unauthenticated requests of 1 MB delay those of all users.
	strangerBytes = 1024
	cutOff        = "...TRUNCATED"
	// maxSourceIPs bounds the addresses that a client can write into an event.
	maxSourceIPs = 100
	// auditObjectBytes bounds the list that an event contains. Other objects have the limits
	// of bodies.
	auditObjectBytes = 8 << 20

	deprecatedAnnotation = "k8s.io/deprecated"
	truncatedAnnotation  = "audit.k8s.io/truncated"
	decisionAnnotation   = "authorization.k8s.io/decision"
	reasonAnnotation     = "authorization.k8s.io/reason"
	latencyAnnotation    = "apiserver.latency.k8s.io/"
	// patchAnnotations begins the annotations that have parts of the object. Only events with the
	// body of the request have them.
	patchAnnotations = "patch.webhook.admission.k8s.io/"
)

// beginAudit begins the event of a request, if the policy wants one.
func (q *request) beginAudit() error {
	if q.h.c.Audit == nil {
		return nil
	}
	a := q.newAudited()
	if a == nil {
		return nil
	}
	if !a.auditor.Process(&a.Event, audit.RequestReceived, q.start) {
		a.auditor.Reject()
		q.audited = nil
		return errUndecided(q.r, errNotStored)
	}
	return nil
}

// auditRefused begins the event of a request that is not authenticated.
func (q *request) auditRefused() {
	if q.h.c.Audit == nil {
		return
	}
	if a := q.newAudited(); a != nil {
		a.refused, a.long = true, true
	}
}

// newAudited makes the event of a request; nil if the policy wants none.
func (q *request) newAudited() *audited {
	d := q.h.c.Audit.Decide(&q.info.Attributes)
	if d.Level == audit.None {
		return nil
	}
	a := q.h.audits.Get().(*audited)
	*a = audited{auditor: q.h.c.Audit, Event: audit.Event{
		Decision: d, AuditID: q.auditID[0], RequestURI: q.uri(), Verb: q.info.Verb, User: q.info.User,
		UserAgent: userAgent(q.r), Received: q.start, Annotations: a.Annotations[:0],
		NoWait: isHealth(q.r.URL.Path), Done: q.r.Context().Done(),
	}}
	a.SourceIPs = sourceIPs(a.sources[:0], q.r)
	if i := &q.info; i.IsResource {
		a.object = audit.ObjectRef{
			Resource: i.Resource, Namespace: i.Namespace, Name: i.Name, APIGroup: i.Group, APIVersion: i.Version, Subresource: i.Subresource,
		}
		a.Object = &a.object
	}
	if u := q.info.User; u == nil || u.IsAnonymous() {
		o := &a.object
		for _, text := range []*string{&a.RequestURI, &o.Resource, &o.Namespace, &o.Name, &o.APIGroup, &o.APIVersion, &o.Subresource} {
			*text = cut(*text, strangerBytes)
		}
	}
	a.long = q.longRunning()
	q.audited = a
	return a
}

// uri returns the path and the query as the client sent them.
func (q *request) uri() string { return q.h.c.Prefix + q.prefix + q.r.URL.RequestURI() }

// path returns the path as the client sent it.
func (q *request) path() string { return q.h.c.Prefix + q.prefix + q.r.URL.EscapedPath() }

// longRunning reports whether the headers of a response have an event of their own.
func (q *request) longRunning() bool {
	if q.info.Verb == verbWatch {
		return true
	}
	switch q.info.Subresource {
	case "attach", "exec", "proxy", "log", "portforward":
		return true
	}
	return false
}

func userAgent(r *http.Request) string { return cut(r.UserAgent(), userAgentBytes) }

// cut returns a text, or that many bytes of it and a mark.
func cut(text string, to int) string {
	if len(text) > to {
		return text[:to] + cutOff
	}
	return text
}

// sourceIPs appends where a request comes from: the addresses that proxies have written into
// its headers, then the address of the connection.
func sourceIPs(to []string, r *http.Request) []string {
	if r.Header["X-Forwarded-For"] == nil && r.Header["X-Real-Ip"] == nil {
		if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
			return append(to, at.Addr().Unmap().WithZone("").String())
		}
	}
	all := net.SourceIPs(r)
	if over := len(all) - maxSourceIPs; over > 0 {
		all = all[over:] // the last ones are from the proxies next to the server
	}
	for _, ip := range all {
		to = append(to, ip.String())
	}
	return to
}

// auditHeaders is called when the headers of the response are sent.
func (q *request) auditHeaders(code int) {
	a := q.audited
	if a == nil || a.complete {
		return
	}
	a.status.Code = int32(code)
	a.Status = &a.status
	if a.long {
		a.auditor.Process(&a.Event, audit.ResponseStarted, time.Now())
	}
}

// auditComplete is called when the response is complete, and before the last part of a short one is
// sent: a client of a server with a blocking log has no response whose event is not written.
func (q *request) auditComplete() {
	a := q.audited
	if a == nil || a.complete {
		return
	}
	a.complete = true
	if a.refused {
		return
	}
	if a.Status == nil { // nothing was sent
		a.status = metav1.Status{Code: http.StatusOK, Status: metav1.StatusSuccess, Message: "Connection closed early"}
		if a.Status = &a.status; a.long {
			a.auditor.Process(&a.Event, audit.ResponseStarted, time.Now())
		}
	}
	if a.deprecated {
		a.Annotations.Set(deprecatedAnnotation, "true")
	}
	at := time.Now()
	a.noteLatency(&q.parts, at.Sub(q.start))
	a.auditor.Process(&a.Event, audit.ResponseComplete, at)
}

// auditPanic is called after a panic.
func (q *request) auditPanic(v any) {
	a := q.audited
	if a == nil || a.complete || a.refused {
		return
	}
	a.complete = true
	a.status = metav1.Status{Code: http.StatusInternalServerError, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: "APIServer panic'd: " + panicText(v)}
	a.Status = &a.status
	a.auditor.Process(&a.Event, audit.Panic, time.Now())
}

func panicText(v any) string {
	switch v := v.(type) {
	case error:
		return v.Error()
	case string:
		return v
	}
	return "a value that is no text"
}

// noteLatency says where the time of a slow request was spent.
func (a *audited) noteLatency(p *latency, total time.Duration) {
	if total <= slowRequest {
		return
	}
	for _, one := range [...]struct {
		key string
		d   time.Duration
	}{{"authentication", p.authentication}, {"impersonation", p.impersonation}, {"authorization", p.authorization}, {"apf-queue-wait", p.queue}, {"total", total}} {
		if one.d > 0 {
			a.Annotations.Set(latencyAnnotation+one.key, one.d.String())
		}
	}
}

// endAudit gives the event back.
func (q *request) endAudit() {
	if a := q.audited; a != nil {
		a.Event = audit.Event{Annotations: a.Annotations[:0]}
		a.object, a.status = audit.ObjectRef{}, metav1.Status{}
		q.audited = nil
		q.h.audits.Put(a)
	}
}

// impersonated notes the impersonated user. constraint is the mode of a constrained
// impersonation, or empty.
func (a *audited) impersonated(as *authn.User, constraint string) {
	if a != nil {
		a.Impersonated, a.Constraint = as, constraint
	}
}

// decided notes the decision of the authorizer.
func (a *audited) decided(d authz.Decision, reason string, err error) {
	if a == nil {
		return
	}
	switch {
	case d == authz.Allow:
		a.Annotations.Set(decisionAnnotation, "allow")
	case err != nil:
		reason = "internal error"
	default:
		a.Annotations.Set(decisionAnnotation, "forbid")
	}
	a.Annotations.Set(reasonAnnotation, reason)
}

// annotate adds the annotations of admission.
func (a *audited) annotate(all map[string]string) {
	if a == nil {
		return
	}
	for key, value := range all {
		if a.Level < audit.Request && strings.HasPrefix(key, patchAnnotations) {
			continue
		}
		a.Annotations.Set(key, value)
	}
}

// responds notes a Status that is the response.
func (a *audited) responds(s *metav1.Status) {
	if a != nil && !a.complete && !a.hidden {
		a.status = metav1.Status{Status: s.Status, Message: s.Message, Reason: s.Reason, Details: s.Details, Code: s.Code}
		a.Status = &a.status
	}
}

// hides leaves the response out of the event, but for its code: kube-apiserver does so with errors
// that no medium of the client can express.
func (a *audited) hides() {
	if a != nil {
		a.hidden = true
	}
}

// wants reports whether the event contains objects of a level.
func (a *audited) wants(l audit.Level) bool {
	return a != nil && a.Level >= l && !a.complete && !(a.bare && l == audit.RequestResponse)
}

// bares leaves the objects of the response out of the event: they are parts of objects of other resources, such as Secrets,
// for which the policy may have a lower level.
func (a *audited) bares() {
	if a != nil {
		a.bare = true
	}
}

// sends notes the object that is the response, as JSON.
func (a *audited) sends(value []byte) {
	if a.wants(audit.RequestResponse) && !a.hidden {
		a.ResponseObject = a.shown(value)
	}
}

// shown returns an object as the event contains it.
func (a *audited) shown(value []byte) []byte {
	if !a.OmitManagedFields {
		return value
	}
	return audit.WithoutManagedFields(value)
}

// patches notes the body of a patch.
func (a *audited) patches(body []byte, media wire.MediaType) {
	if !a.wants(audit.Request) {
		return
	}
	a.RequestObject = body
	if media == wire.YAML || media == wire.CBOR {
		if made, _, err := wire.Configuration(media, body); err == nil {
			a.RequestObject = made
		}
	}
}

// deletes notes the options that are the body of a deletion.
func (a *audited) deletes(o *metav1.DeleteOptions) {
	if !a.wants(audit.Request) {
		return
	}
	shown := *o
	shown.TypeMeta = metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}
	if b, err := json.Marshal(&shown); err == nil {
		a.RequestObject = b
	}
}

// observe has the registry pass the body of a write to the event.
func (q *request) observe(o *registry.WriteOptions) {
	if a := q.audited; a != nil {
		o.SentWhole = a.Level >= audit.Request && !a.OmitManagedFields
		o.Sent = q.auditSent
	}
}

// auditSent notes the body of a create or an update.
func (q *request) auditSent(o runtime.Object) {
	a := q.audited
	if meta, ok := o.(metav1.Object); ok && a.Object != nil {
		fill := func(to *string, value string) {
			if *to == "" {
				*to = value
			}
		}
		fill(&a.object.Namespace, meta.GetNamespace())
		fill(&a.object.Name, meta.GetName())
		fill(&a.object.UID, string(meta.GetUID()))
		fill(&a.object.ResourceVersion, meta.GetResourceVersion())
	}
	if !a.wants(audit.Request) {
		return
	}
	t := q.target().Exchanged()
	shown := o.DeepCopyObject()
	if meta, ok := shown.(metav1.Object); ok && a.OmitManagedFields {
		meta.SetManagedFields(nil)
	}
	if t.Strategy.Default != nil {
		t.Strategy.Default(shown)
	}
	shown.GetObjectKind().SetGroupVersionKind(t.GroupVersionKind())
	if b, err := json.Marshal(shown); err == nil {
		a.RequestObject = b
	}
}

// auditBinary notes an object that is sent in a binary medium.
func (q *request) auditBinary(t *resource.Type, o *store.Object, out wire.Output) error {
	if !q.audited.wants(audit.RequestResponse) {
		return nil
	}
	out.Media = wire.JSON
	s, err := q.newShape(t, out)
	if err != nil {
		return err
	}
	value, err := s.object(nil, o)
	q.audited.sends(value)
	return err
}

// auditList notes the list that is the response.
func (q *request) auditList(l *registry.List, out wire.Output) error {
	if !q.audited.wants(audit.RequestResponse) {
		return nil
	}
	out.Media = wire.JSON
	h, err := q.newShape(q.typ, out)
	if err != nil {
		return err
	}
	h.listed = true
	f := h.frame(wire.ListMeta{Revision: uint64(l.Revision), Continue: l.Continue, Remaining: l.Remaining, Shard: l.Shard})
	value := f.AppendHead(nil)
	head := len(value)
	for object, err := range l.Items {
		if err != nil {
			return err
		}
		if len(value) > head {
			value = append(value, ',')
		}
		if value, err = h.item(value, object); err != nil {
			return err
		}
		if len(value) > auditObjectBytes {
			q.audited.Annotations.Set(truncatedAnnotation, "true")
			return nil
		}
	}
	if len(value) == head {
		value = f.AppendNone(nil)
	} else {
		value = append(value, wire.ListTail...)
	}
	q.audited.ResponseObject = q.audited.shown(value)
	return nil
}
