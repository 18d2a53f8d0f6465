package crd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	fastjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/tracing"
	"github.com/tidemark-dev/tidemark/internal/uuid"
	remote "github.com/tidemark-dev/tidemark/internal/webhook"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Conversion by webhook: ConversionReview of apiextensions.k8s.io/v1, and of v1beta1, whose
// responses are checked less.

const (
	// webhookTimeout is how long a webhook may take.
	webhookTimeout = 30 * time.Second
	// webhookCalls is the limit of concurrent calls of one webhook; others wait. It bounds
	// the memory that a webhook that hangs can hold.
	webhookCalls = 32
	// webhookBytes is about the memory that a call needs, without its body.
	webhookBytes = 1 << 20
	// maxResponseBytes limits a response. Conversion may make an object larger.
	maxResponseBytes = 8 << 20
	// maxResponseValues limits the values of several objects in a response, which are decoded together: an empty
	// list of two bytes takes forty in memory.
	maxResponseValues = 1 << 19
)

// webhook converts objects by calling a webhook. It is safe for concurrent use.
type webhook struct {
	version  string // of the review: v1, v1beta1
	endpoint *remote.Endpoint
}

// newWebhook returns the webhook of a definition.
func newWebhook(c *apiextensionsv1.WebhookConversion, connections *remote.Connections) (*webhook, error) {
	if c == nil || c.ClientConfig == nil {
		return nil, errors.New("the definition names no webhook")
	}
	w := &webhook{}
	for _, version := range c.ConversionReviewVersions {
		if version == "v1" || version == "v1beta1" {
			w.version = version
			break
		}
	}
	if w.version == "" {
		return nil, errors.New("no supported conversion review versions")
	}
	target := remote.Target{CABundle: bytes.TrimSpace(c.ClientConfig.CABundle)}
	if c.ClientConfig.URL != nil {
		target.URL = *c.ClientConfig.URL
	} else if s := c.ClientConfig.Service; s != nil {
		target.Service = &remote.Service{Namespace: s.Namespace, Name: s.Name}
		if s.Port != nil {
			target.Service.Port = *s.Port
		}
		if s.Path != nil {
			target.Service.Path = *s.Path
		}
	}
	var err error
	w.endpoint, err = connections.Endpoint(target, webhookCalls)
	return w, err
}

// close closes idle connections.
func (w *webhook) close() { w.endpoint.CloseIdleConnections() }

// review is the JSON of a ConversionReview.
type review struct {
	metav1.TypeMeta `json:",inline"`
	Request         *reviewRequest  `json:"request,omitempty"`
	Response        *reviewResponse `json:"response,omitempty"`
}

type reviewRequest struct {
	UID               types.UID `json:"uid"`
	DesiredAPIVersion string    `json:"desiredAPIVersion"`
	Objects           []*Object `json:"objects"`
}

type reviewResponse struct {
	UID              types.UID     `json:"uid"`
	ConvertedObjects converted     `json:"convertedObjects"`
	Result           metav1.Status `json:"result"`
}

// maxConverted is how many objects one call of a webhook converts.
const maxConverted = 1000

// converted is a list that keeps only as many values as a call can request, and one more.
type converted struct {
	all []json.RawMessage
	n   int
}

// UnmarshalJSONFrom reads the list.
func (f *converted) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	begin, err := d.ReadToken()
	if err != nil {
		return err
	}
	if begin.Kind() == 'n' {
		return nil
	}
	if begin.Kind() != '[' {
		return errors.New("convertedObjects is not a list")
	}
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			return err
		}
		if f.n++; f.n <= maxConverted+1 {
			f.all = append(f.all, bytes.Clone(v))
		}
	}
	_, err = d.ReadToken()
	return err
}

// convert converts objects, at least one, to another version.
func (w *webhook) convert(ctx context.Context, all []*Object, to string) ([]*Object, error) {
	kind := all[0].GroupVersionKind()
	asked := &review{
		TypeMeta: metav1.TypeMeta{Kind: "ConversionReview", APIVersion: "apiextensions.k8s.io/" + w.version},
		Request:  &reviewRequest{UID: types.UID(uuid.New()), DesiredAPIVersion: to, Objects: all},
	}
	response, err := w.post(ctx, asked)
	switch {
	case err == nil:
		err = response.check(asked)
	case errors.Is(err, fairness.ErrFull):
		return nil, err
	case errors.Is(err, remote.ErrBusy):
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("conversion webhook for %v: %v", kind, remote.ErrBusy), 1)
	case ctx.Err() != nil: // the client left, or the time of its request is over
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, failedWebhook(fmt.Errorf("conversion webhook for %v failed: %w", kind, err))
	}
	list := &response.Response.ConvertedObjects
	if list.n != len(all) {
		return nil, failedWebhook(fmt.Errorf("conversion webhook for %v returned %d objects, expected %d", kind, list.n, len(all)))
	}
	values := 0
	for _, one := range list.all {
		values += bytes.Count(one, []byte(",")) + bytes.Count(one, []byte("[")) + bytes.Count(one, []byte("{"))
	}
	if len(all) > 1 && values > maxResponseValues {
		return nil, failedWebhook(fmt.Errorf("conversion webhook for %v returned more than %d values in %d objects", kind, maxResponseValues, len(all)))
	}
	made := make([]*Object, len(all))
	for i, in := range all {
		if made[i], err = readConverted(in, list.all[i], to, i); err != nil {
			return nil, failedWebhook(fmt.Errorf("conversion webhook for %v returned %w", in.GroupVersionKind(), err))
		}
	}
	return made, nil
}

// readConverted reads the converted form of an object, the i-th of a response.
func readConverted(in *Object, value []byte, to string, i int) (*Object, error) {
	out := new(Object)
	err := wire.CheckDepth(value)
	if err == nil {
		err = json.Unmarshal(value, out)
	}
	if err != nil {
		return nil, fmt.Errorf("invalid converted object at index %d: %w", i, err)
	}
	if out.APIVersion != to {
		return nil, fmt.Errorf("invalid object at index %d: invalid groupVersion (expected %s, received %s)", i, to, remote.Cut(out.APIVersion))
	}
	if out.Kind != in.Kind {
		return nil, fmt.Errorf("invalid object at index %d: invalid kind (expected %s, received %s)", i, in.Kind, remote.Cut(out.Kind))
	}
	if err := sameObject(in, out); err != nil {
		return nil, fmt.Errorf("invalid object: %w", err)
	}
	if err := restoreMetadata(in, out); err != nil {
		return nil, fmt.Errorf("invalid metadata: %w", err)
	}
	return out, nil
}

// failedWebhook returns the response to a request whose conversion failed.
func failedWebhook(err error) error { return &webhookError{err} }

// webhookError is a failure of a webhook. It is an apierrors.APIStatus.
type webhookError struct{ error }

// Error implements error. The text has 1 KiB at most.
func (e *webhookError) Error() string { return remote.Cut(e.error.Error()) }

// Status implements apierrors.APIStatus.
func (e *webhookError) Status() metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: e.Error()}
}

// Unwrap returns the cause.
func (e *webhookError) Unwrap() error { return e.error }

// responded reports whether the webhook has sent a response: another call may succeed.
func responded(err error) bool {
	var failed *webhookError
	var transport *url.Error
	return errors.As(err, &failed) && !errors.As(err, &transport)
}

// post sends a review, and returns the response. It waits for memory and for other calls.
func (w *webhook) post(ctx context.Context, asked *review) (*review, error) {
	body, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	response := &review{}
	if tracing.Recording(ctx) {
		var span trace.Span
		ctx, span = tracing.Start(ctx, "Call conversion webhook", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			attribute.String("desired-api-version", asked.Request.DesiredAPIVersion),
			attribute.Int("object-count", len(asked.Request.Objects)), attribute.String("UID", string(asked.Request.UID)),
		))
		defer span.End()
	}
	err = fairness.Wait(ctx, int64(len(body))+webhookBytes, func() error {
		return w.endpoint.Call(ctx, webhookTimeout, func(ctx context.Context) error { return w.call(ctx, body, response) })
	})
	return response, err
}

// call sends a request, and reads the response.
func (w *webhook) call(ctx context.Context, body []byte, response *review) error {
	got, err := w.endpoint.Post(ctx, maxResponseBytes, body)
	switch {
	case err != nil:
		return err
	case got.Code == http.StatusNotFound:
		return errors.New("the server could not find the requested resource")
	case got.Code != http.StatusOK && got.Code != http.StatusCreated:
		return remote.UnexpectedStatus(got.Code)
	}
	if err := fastjson.Unmarshal(got.Body, response, jsontext.AllowDuplicateNames(true)); err != nil {
		return errors.New("the response is not a ConversionReview in JSON")
	}
	return nil
}

// check returns an error unless r is a successful response to the review.
func (r *review) check(asked *review) error {
	v1 := asked.APIVersion == "apiextensions.k8s.io/v1"
	switch {
	case v1 && r.TypeMeta != asked.TypeMeta:
		return fmt.Errorf("expected webhook response of %v, got %v", asked.GroupVersionKind(), remote.Cut(r.GroupVersionKind().String()))
	case r.Response == nil:
		return errors.New("no response provided")
	case v1 && r.Response.UID != asked.Request.UID:
		return fmt.Errorf("expected response.uid=%q, got %q", asked.Request.UID, remote.Cut(r.Response.UID))
	case r.Response.Result.Status == metav1.StatusSuccess:
		return nil
	case r.Response.Result.Message != "":
		return errors.New(remote.Cut(r.Response.Result.Message))
	}
	return fmt.Errorf("response.result.status was '%s', not 'Success'", remote.Cut(r.Response.Result.Status))
}

// sameObject returns an error unless both objects have the same name, namespace and UID.
func sameObject(in, out *Object) error {
	for _, x := range []struct{ what, in, out string }{
		{"name", in.Name, out.Name}, {"namespace", in.Namespace, out.Namespace}, {"UID", string(in.UID), string(out.UID)},
	} {
		if x.in != x.out {
			return fmt.Errorf("must have the same %s: %s != %s", x.what, x.in, remote.Cut(x.out))
		}
	}
	return nil
}

// restoreMetadata restores all metadata but labels and annotations, which a webhook may
// change. If it did, they are validated.
func restoreMetadata(in, out *Object) error {
	labels, annotations := out.Labels, out.Annotations
	if !maps.Equal(labels, in.Labels) {
		if errs := metav1validation.ValidateLabels(labels, field.NewPath("metadata", "labels")); len(errs) > 0 {
			return firstOf(errs)
		}
	}
	if !maps.Equal(annotations, in.Annotations) {
		if errs := apivalidation.ValidateAnnotations(annotations, field.NewPath("metadata", "annotation")); len(errs) > 0 {
			return firstOf(errs)
		}
	}
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Labels, out.Annotations = labels, annotations
	return nil
}

// firstOf joins the first 100 errors. There may be as many as labels, and the time to join
// them grows with the square of their number.
func firstOf(errs field.ErrorList) error {
	const most = 100
	return errs[:min(len(errs), most)].ToAggregate()
}

// hasWebhook reports whether a webhook converts the objects of the definition.
func (d *definition) hasWebhook() bool {
	c := d.head.Spec.Conversion
	return c != nil && c.Strategy == apiextensionsv1.WebhookConverter
}

// convert converts an object to another version of the definition.
func (d *definition) convert(ctx context.Context, o *Object, to string) (*Object, error) {
	if !d.hasWebhook() {
		o.APIVersion = to
		return o, nil
	}
	made, err := d.convertAll(ctx, []*Object{o}, to)
	if err != nil {
		return nil, err
	}
	return made[0], nil
}

// errReplaced is the error of calls of a webhook whose definition was changed or deleted.
var errReplaced = errors.New("the definition was replaced while its conversion webhook was called")

// convertAll has the webhook convert objects, maxConverted at a time.
func (d *definition) convertAll(ctx context.Context, all []*Object, to string) ([]*Object, error) {
	hook, err := d.hook()
	if err != nil {
		return nil, failedWebhook(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)() // when the definition is replaced
	made := make([]*Object, 0, len(all))
	for some := range slices.Chunk(all, maxConverted) {
		next, err := hook.convert(ctx, some, to)
		if err != nil && d.ctx.Err() != nil {
			err = failedWebhook(errReplaced)
		}
		if err != nil {
			return nil, err
		}
		made = append(made, next...)
	}
	return made, nil
}
