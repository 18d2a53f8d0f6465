// Package tracing records the spans of requests with the API of OpenTelemetry.
//
// The HTTP handler starts a span for a request and puts it into the context. All other parts of the server record
// children of the span in their context. If there is none, or if it is not sampled, nothing is recorded; that costs
// a look into the context and no memory.
package tracing

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name of the instrumentation in all spans.
const Scope = "github.com/tidemark-dev/tidemark"

// Recording reports whether spans that start with the context are recorded. Callers check it before they compute
// attributes.
func Recording(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// Start starts a child of the span in the context, and returns a context with it. The caller ends the span. Without
// a parent that is recorded, nothing starts, and ending the span has no effect.
func Start(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, trace.SpanFromContext(context.Background())
	}
	return parent.TracerProvider().Tracer(Scope).Start(ctx, name, o...)
}

// Record records a child that has ended.
func Record(ctx context.Context, name string, began, ended time.Time, attributes ...attribute.KeyValue) {
	_, span := Start(ctx, name, trace.WithTimestamp(began), trace.WithAttributes(attributes...))
	span.End(trace.WithTimestamp(ended))
}

// Extract returns a context with the span of a client, from the header traceparent of its request. If there is none,
// or if it is malformed, it returns ctx.
func Extract(ctx context.Context, h http.Header) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(h))
}

// Inject sets the headers traceparent and tracestate to the span in the context, if it has one. The span need not be
// sampled: the receiver follows the decision.
func Inject(ctx context.Context, h http.Header) {
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
}
