package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/tracing"
	"github.com/tidemark-dev/tidemark/internal/uuid"
	remote "github.com/tidemark-dev/tidemark/internal/webhook"
)

// maxAttempts is the maximum number of calls of a webhook that responds with Retry-After.
const maxAttempts = 11

// callError is a failure of a webhook or of its call, which the failure policy may ignore. The code is
// that of the metrics.
type callError struct {
	webhook string
	reason  error
	code    int32
}

// Error implements error.
func (e *callError) Error() string {
	return fmt.Sprintf("failed calling webhook %q: %v", e.webhook, e.reason)
}

// Unwrap returns the reason.
func (e *callError) Unwrap() error { return e.reason }

// rejection is the error of a request that a webhook refuses.
type rejection struct{ *apierrors.StatusError }

// failed returns a callError. The code is that of the error, or else code.
func (h *hook) failed(code int32, format string, err error) *callError {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		code = status.ErrStatus.Code
	}
	return &callError{h.name, fmt.Errorf(format, err), code}
}

// checkDryRun returns an error if a webhook with side effects would be called for a dry-run.
func (h *hook) checkDryRun(a *registry.Attributes) error {
	if !a.DryRun {
		return nil
	}
	switch h.sideEffects {
	case admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun:
		return nil
	case "":
		//lint:ignore ST1005 the words of kube-apiserver
		return &callError{h.name, errors.New("Webhook SideEffects is nil"), http.StatusBadRequest}
	}
	return apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", h.name))
}

// call sends a review, and returns the checked response. It needs only the payload of the request, so
// several goroutines can call webhooks of one request.
func (d *dispatcher) call(ctx context.Context, h *hook, payload []byte) (reply *response, err error) {
	uid := uuid.New()
	if tracing.Recording(ctx) {
		var end func(error)
		ctx, end = d.trace(ctx, h, uid)
		defer func() { end(err) }()
	}
	if h.invalid != nil {
		return nil, &callError{h.name, h.invalid, http.StatusInternalServerError}
	}
	if h.version == "" {
		err := errors.New("webhook does not accept known AdmissionReview versions (v1, v1beta1)")
		return nil, h.failed(http.StatusBadRequest, "could not create admission objects: %w", err)
	}
	endpoint, err := d.connect(h)
	if err != nil {
		return nil, h.failed(http.StatusInternalServerError, "could not get REST client: %w", err)
	}
	var got *remote.Response
	err = endpoint.Call(ctx, h.timeout, func(ctx context.Context) (err error) {
		got, err = post(ctx, endpoint, reviewHead(h.version, uid), payload)
		return err
	})
	if errors.Is(err, remote.ErrBusy) {
		// Other requests are the reason. If the failure policy applied, they could disable the webhook.
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("admission webhook %q: %v", h.name, remote.ErrBusy), 1)
	}
	if err != nil {
		return nil, h.failed(http.StatusServiceUnavailable, "failed to call webhook: %w", err)
	}
	review, err := readResponse(got, h.version)
	if err != nil {
		return nil, h.failed(http.StatusServiceUnavailable, "failed to call webhook: %w", err)
	}
	reply, err = review.check(h.phase, h.version, uid)
	if err != nil {
		return nil, &callError{h.name, fmt.Errorf("received invalid webhook response: %w", err), http.StatusServiceUnavailable}
	}
	return reply, nil
}

// trace starts the span of a call, with the name and the attributes of kube-apiserver. The caller ends it with the
// error of the call.
func (d *dispatcher) trace(ctx context.Context, h *hook, uid string) (context.Context, func(error)) {
	name := "Call validating webhook"
	if h.phase == admit {
		name = "Call mutating webhook"
	}
	kind := d.a.Type
	ctx, span := tracing.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("configuration", h.configuration), attribute.String("webhook", h.name),
		attribute.String("resource", schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: kind.Resource}.String()), attribute.String("subresource", d.a.Subresource),
		attribute.String("operation", string(d.a.Operation)), attribute.String("UID", uid),
	))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// post sends a review. If the webhook responds with 429 or 5xx with Retry-After, post sends it again after that
// time, until the context is done.
func post(ctx context.Context, endpoint *remote.Endpoint, head, payload []byte) (*remote.Response, error) {
	for attempt := 1; ; attempt++ {
		got, err := endpoint.Post(ctx, maxResponseBytes, head, payload)
		if err != nil || attempt == maxAttempts || !got.Demands || got.Code != http.StatusTooManyRequests && got.Code < 500 {
			return got, err
		}
		select {
		case <-time.After(got.RetryAfter):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// publish adds the warnings and audit annotations of a response to the request.
func (d *dispatcher) publish(h *hook, reply *response) {
	if d.c.Audited {
		for key, value := range reply.annotations {
			if key = h.name + "/" + key; validKey(key) {
				d.a.Annotate(key, value)
			}
		}
	}
	for i, text := range reply.warnings {
		if i == maxWarnings {
			break
		}
		d.a.Warn(text[:min(len(text), maxWarningBytes+1)])
	}
}

// record counts a call and logs its failure. It reports whether the request continues despite the error,
// because the failure policy is Ignore.
func (d *dispatcher) record(h *hook, start time.Time, err error) (ignored bool) {
	var call *callError
	var refused *rejection
	seconds := since(start)
	switch {
	case err == nil:
		d.metrics.called(h, d.a, seconds, http.StatusOK, false)
		return false
	case errors.As(err, &call):
		canceled := errors.Is(err, context.Canceled)
		if !h.ignore && !canceled {
			d.metrics.rejected(h, d.a, "calling_webhook_error", call.code)
		}
		if h.ignore && !canceled {
			d.metrics.failedOpen(h)
		}
		d.metrics.called(h, d.a, seconds, call.code, !h.ignore)
		d.c.Log.Warn("an admission webhook failed", "webhook", h.name, "ignored", h.ignore, "err", call.reason)
		return h.ignore
	case errors.As(err, &refused):
		d.metrics.rejected(h, d.a, "no_error", refused.ErrStatus.Code)
		d.metrics.called(h, d.a, seconds, refused.ErrStatus.Code, true)
	default:
		d.metrics.rejected(h, d.a, "apiserver_internal_error", 0)
		d.metrics.called(h, d.a, seconds, 0, true)
	}
	return false
}

// final returns the error that the client gets.
func final(err error) error {
	var call *callError
	var refused *rejection
	switch {
	case errors.As(err, &call):
		return apierrors.NewInternalError(call)
	case errors.As(err, &refused):
		return refused.StatusError
	}
	return err
}
