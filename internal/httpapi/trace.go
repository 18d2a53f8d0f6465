package httpapi

import (
	"cmp"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidemark-dev/tidemark/internal/tracing"
)

// A request has a span from its arrival to its end, with the attributes that kube-apiserver gives it, and children
// for its parts. As there, a client decides whether its request is sampled if it is privileged. The spans of other
// clients are roots, with a link to the client's.

// monitoring is the group of clients that monitor the server.
const monitoring = "system:monitoring"

// requestSpan is the span of a request.
type requestSpan struct {
	trace.Span
	recording bool
	// The response may be sent in parts. It has one span, from the first to the last.
	responseBegan, responseEnded time.Time
}

// beginSpan starts the span, unless it has begun. It is called when the user is known.
func (q *request) beginSpan() {
	if q.h.c.Tracer == nil || q.span != nil {
		return
	}
	ctx := tracing.Extract(q.r.Context(), q.r.Header)
	options := []trace.SpanStartOption{trace.WithTimestamp(q.start), trace.WithSpanKind(trace.SpanKindServer)}
	if !q.mayDecideSampling() {
		options = append(options, trace.WithNewRoot())
		if sent := trace.SpanContextFromContext(ctx); sent.IsRemote() {
			sent = sent.WithTraceState(trace.TraceState{}) // which may be long
			options = append(options, trace.WithLinks(trace.Link{SpanContext: sent}))
		}
	}
	ctx, span := q.h.c.Tracer.Start(ctx, q.spanName(), options...)
	q.span = &requestSpan{Span: span, recording: span.IsRecording()}
	q.r = q.r.WithContext(ctx)
}

// mayDecideSampling reports whether the request is sampled if the span of its client is.
func (q *request) mayDecideSampling() bool {
	u := q.info.User
	return u != nil && (slices.Contains(u.Groups, masters) || slices.Contains(u.Groups, monitoring))
}

// spanName returns the method, and the route of a resource: "GET /api/v1/namespaces/{:namespace}/pods/{:name}".
func (q *request) spanName() string {
	method := spanMethod(q.r.Method)
	if q.typ == nil {
		return method
	}
	a, route := &q.info.Attributes, "/api"
	if a.Group != "" {
		route = "/apis/" + a.Group
	}
	route += "/" + a.Version
	if a.Namespace != "" {
		route += "/namespaces/{:namespace}"
	}
	route += "/" + a.Resource
	if a.Name != "" {
		route += "/{:name}"
	}
	if a.Subresource != "" {
		route += "/" + a.Subresource
	}
	if len(route) > logURIBytes {
		route = route[:logURIBytes] + cutOff
	}
	return method + " " + route
}

// spanMethod returns a method, unless a client has invented it.
func spanMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return strings.Clone(method) // with HTTP/1.1 it is a part of the request line
	}
	return "_OTHER"
}

// station records the span of a part of the request.
func (q *request) station(part *time.Duration, began, ended time.Time) {
	if q.span == nil || !q.span.recording {
		return
	}
	name := ""
	switch part {
	case &q.parts.authentication:
		name = "authentication"
	case &q.parts.impersonation:
		name = "impersonation"
	case &q.parts.authorization:
		name = "authorization"
	case &q.parts.queue:
		name = "priorityandfairness"
	case &q.parts.body:
		name = "read body"
	case &q.parts.response:
		if q.span.responseBegan.IsZero() {
			q.span.responseBegan = began
		}
		q.span.responseEnded = ended
		return
	}
	tracing.Record(q.r.Context(), name, began, ended)
}

// endSpan ends the span. Requests that were refused before their user was known begin theirs here.
func (q *request) endSpan() {
	if q.h.c.Tracer == nil {
		return
	}
	q.beginSpan()
	if q.span.recording {
		if !q.span.responseBegan.IsZero() {
			tracing.Record(q.r.Context(), "write response", q.span.responseBegan, q.span.responseEnded)
		}
		q.span.SetAttributes(q.spanAttributes()...)
		if q.code >= http.StatusInternalServerError {
			q.span.SetStatus(codes.Error, "")
		}
	}
	q.span.End()
}

// spanText returns a text of a client, or its beginning, in memory of its own. Spans wait for the collector, and must not
// hold the headers or the request line that the text may be a part of.
func spanText(text string) string {
	if len(text) > logURIBytes {
		return text[:logURIBytes] + cutOff
	}
	return strings.Clone(text)
}

// spanAttributes returns the attributes of the span, with the names of OpenTelemetry's conventions that kube-apiserver
// uses. Like the log, they leave out paths that are not served and unknown parameters, which may be secret.
func (q *request) spanAttributes() []attribute.KeyValue {
	uri, peer := spanText(q.loggedURI()), q.r.RemoteAddr
	path, _, _ := strings.Cut(uri, "?")
	scheme := "https"
	if q.r.TLS == nil {
		scheme = "http"
	}
	server, _, err := net.SplitHostPort(q.r.Host)
	if err != nil {
		server = q.r.Host
	}
	all := make([]attribute.KeyValue, 0, 16)
	if host, port, err := net.SplitHostPort(peer); err == nil {
		peer = host
		if n, err := strconv.Atoi(port); err == nil {
			all = append(all, attribute.Int("network.peer.port", n))
		}
	}
	forwarded, _, _ := strings.Cut(q.r.Header.Get("X-Forwarded-For"), ",")
	all = append(all,
		attribute.String("server.address", spanText(server)), attribute.String("http.request.method", spanMethod(q.r.Method)),
		attribute.String("url.scheme", scheme), attribute.String("network.peer.address", peer),
		attribute.String("client.address", spanText(cmp.Or(forwarded, peer))), attribute.String("url.path", path),
		attribute.String("network.protocol.version", spanText(strings.TrimPrefix(q.r.Proto, "HTTP/"))),
		attribute.String("http.target", uri), attribute.String("audit-id", spanText(q.auditID[0])),
	)
	if agent := userAgent(q.r); agent != "" {
		all = append(all, attribute.String("user_agent.original", spanText(agent)))
	}
	if q.received > 0 {
		all = append(all, attribute.Int64("http.request.body.size", q.received))
	}
	if q.bytes > 0 {
		all = append(all, attribute.Int64("http.response.body.size", q.bytes))
	}
	if q.code > 0 {
		all = append(all, attribute.Int("http.response.status_code", q.code))
	}
	return all
}
