package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/patch"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// mutate calls the mutating webhooks of a request, one after the other. In the second run it calls only
// those that must see the changes of others (reinvocation).
func (w *Webhooks) mutate(ctx context.Context, a *registry.Attributes) error {
	d := &dispatcher{Webhooks: w, a: a}
	state := a.Local(reinvocationKey{}, func() any { return &reinvocation{} }).(*reinvocation)
	if a.Reinvoking {
		if err := state.begin(ctx, a); err != nil {
			return err
		}
	}
	for i, h := range w.mutating.of(a) {
		form, ok, err := d.applies(ctx, h)
		if err != nil {
			return err
		}
		if !ok || a.Reinvoking && !state.again[h.id] {
			continue
		}
		start := time.Now()
		changed, err := d.mutateBy(ctx, h, form, i)
		if changed {
			state.require()
			a.Reinvoke()
		}
		if h.reinvoke {
			state.called(h.id)
		}
		if !d.record(h, start, err) {
			if err != nil {
				return final(err)
			}
			continue
		}
		if !errors.Is(err, context.Canceled) {
			d.annotateFailure(h, i)
		}
		if err := timeLeft(ctx); err != nil {
			return err
		}
	}
	return state.end(ctx, a)
}

// mutateBy calls one webhook, and applies its patch. It reports whether that counts as a change.
func (d *dispatcher) mutateBy(ctx context.Context, h *hook, f registry.Form, index int) (changed bool, err error) {
	defer func() { d.annotateCall(h, index, changed) }()
	if err := h.checkDryRun(d.a); err != nil {
		return false, err
	}
	payload, err := d.payload(ctx, f)
	if err != nil {
		return false, err
	}
	var reply *response
	if full := d.wait(ctx, 1, func() { reply, err = d.call(ctx, h, payload) }); full != nil {
		return false, full
	}
	if err != nil {
		return false, err
	}
	d.publish(h, reply)
	if !reply.allowed {
		return false, &rejection{refusal(h.name, reply.result)}
	}
	if len(reply.patch) == 0 {
		return false, nil
	}
	operations, err := patch.Decode(reply.patch)
	if err != nil {
		return false, h.failed(http.StatusServiceUnavailable, "received undecodable patch in webhook response: %w", err)
	}
	if operations.Len() == 0 {
		return false, nil
	}
	return d.apply(ctx, h, f, reply, operations, index)
}

// apply applies the patch of a webhook to the form of the request that the webhook has seen.
func (d *dispatcher) apply(ctx context.Context, h *hook, f registry.Form, reply *response, operations patch.Operations, index int) (changed bool, err error) {
	v, err := d.a.In(ctx, f)
	if err != nil {
		return false, internalError(err)
	}
	before := v.Object
	if before == nil {
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", h.name))
	}
	if reply.patchType != admissionv1.PatchTypeJSONPatch {
		return false, h.failed(http.StatusInternalServerError, "%w", fmt.Errorf("unsupported patch type %q", reply.patchType))
	}
	document, _, err := v.JSON()
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	next, err := operations.Apply(document)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	changed, err = differs(before, next)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if !changed {
		// A patch gives the object times without fractions of a second, which is a change there.
		if changed, err = d.a.Stamped(ctx); err != nil {
			return false, internalError(err)
		}
	}
	if err := d.a.Replace(ctx, f, next); err != nil {
		return false, internalError(err)
	}
	d.changed()
	d.annotatePatch(h, index, operations)
	return changed, nil
}

// differs reports whether a JSON text is another object, before it has defaults. Members that the type
// does not have are no difference.
func differs(before runtime.Object, next []byte) (bool, error) {
	after := reflect.New(reflect.TypeOf(before).Elem()).Interface().(runtime.Object)
	if err := wire.CheckQuantities(next, reflect.TypeOf(after)); err != nil {
		return false, err
	}
	if err := json.Unmarshal(next, after); err != nil {
		return false, err
	}
	return !apiequality.Semantic.DeepEqual(before, after), nil
}

// reinvocation decides which webhooks are called again when the mutating plugins run for the second time.
//
// A webhook with the reinvocationPolicy IfNeeded is called again if another webhook or a plugin has
// changed the object after its call. The second run calls no webhook for the first time.
type reinvocation struct {
	// since are the webhooks that want to be called again and that were called after the last
	// change; again are those that have to be called.
	since, again map[string]bool
	// last is the object after the last webhook of the first run, without managed fields; nil:
	// no webhook wants to be called again.
	last runtime.Object
}

type reinvocationKey struct{}

// called records the call of a webhook that wants to be called again.
func (r *reinvocation) called(id string) {
	if r.since == nil {
		r.since = map[string]bool{}
	}
	r.since[id] = true
}

// require records a change of the object: the webhooks called so far have to be called again.
func (r *reinvocation) require() {
	if r.again == nil {
		r.again = map[string]bool{}
	}
	for id := range r.since {
		r.again[id] = true
	}
	clear(r.since)
}

// begin begins the second run.
func (r *reinvocation) begin(ctx context.Context, a *registry.Attributes) error {
	if len(r.since) == 0 {
		return nil
	}
	now, err := bare(ctx, a)
	if err == nil && !apiequality.Semantic.DeepEqual(r.last, now) {
		r.require()
	}
	return err
}

// end ends the first run.
func (r *reinvocation) end(ctx context.Context, a *registry.Attributes) (err error) {
	if !a.Reinvoking && len(r.since) > 0 {
		r.last, err = bare(ctx, a)
	}
	return err
}

// bare returns a copy of the object of a request, without managed fields.
func bare(ctx context.Context, a *registry.Attributes) (runtime.Object, error) {
	v, err := a.In(ctx, a.Forms()[0])
	if err != nil || v.Object == nil {
		return nil, internalErrorOrNil(err)
	}
	o := v.Object.DeepCopyObject()
	if meta, ok := o.(metav1.Object); ok {
		meta.SetManagedFields(nil)
	}
	return o, nil
}

func internalErrorOrNil(err error) error {
	if err == nil {
		return nil
	}
	return internalError(err)
}
