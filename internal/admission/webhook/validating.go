package webhook

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

const failedOpenValidating = "failed-open.validating.webhook.admission.k8s.io/round_0_index_"

// review is the call of a webhook and its result.
type review struct {
	hook     *hook
	payload  []byte
	start    time.Time
	response *response
	err      error
}

// validate calls the validating webhooks of a request, all at once. The error is that of the first of
// them, in their order, that refuses it.
func (w *Webhooks) validate(ctx context.Context, a *registry.Attributes) error {
	d := &dispatcher{Webhooks: w, a: a}
	var all []review
	for _, h := range w.validating.of(a) {
		form, ok, err := d.applies(ctx, h)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		payload, err := d.payload(ctx, form)
		if err != nil {
			return err
		}
		all = append(all, review{hook: h, payload: payload})
	}
	if len(all) == 0 {
		return nil
	}
	if err := timeLeft(ctx); err != nil {
		return err
	}
	if err := d.wait(ctx, len(all), func() { d.callAll(ctx, all) }); err != nil {
		return err
	}
	if err := d.finish(all); err != nil {
		return err
	}
	return timeLeft(ctx) // the failure policy does not apply to the deadline of the request itself
}

// callBytes is the estimated memory of a call without its review.
const callBytes = 24 << 10

// wait gives the seat of the request back while f calls webhooks. The reviews count as memory of a
// waiting request.
func (d *dispatcher) wait(ctx context.Context, calls int, f func()) error {
	bytes := int64(calls) * callBytes
	for _, t := range d.payloads {
		bytes += int64(len(t))
	}
	err := fairness.Wait(ctx, bytes, func() error {
		f()
		return nil
	})
	if err != nil && !errors.Is(err, fairness.ErrFull) { // the deadline passed before a seat was free
		return timeLeft(ctx)
	}
	return err
}

// callAll calls webhooks, all at once.
func (d *dispatcher) callAll(ctx context.Context, all []review) {
	var wg sync.WaitGroup
	for i := range all[1:] {
		wg.Go(func() { d.callOne(ctx, &all[i+1]) })
	}
	d.callOne(ctx, &all[0])
	wg.Wait()
}

// callOne calls a webhook. A panic is an error of this request alone.
func (d *dispatcher) callOne(ctx context.Context, r *review) {
	defer func() {
		if p := recover(); p != nil {
			r.err = apierrors.NewInternalError(fmt.Errorf("ValidatingAdmissionWebhook/%v has panicked: %v", r.hook.name, p))
		}
	}()
	r.start = time.Now()
	if r.err = r.hook.checkDryRun(d.a); r.err == nil {
		r.response, r.err = d.call(ctx, r.hook, r.payload)
	}
}

// finish publishes and counts the responses. It returns the first error that refuses the request, in the
// order of the webhooks.
func (d *dispatcher) finish(all []review) (first error) {
	for i := range all {
		r := &all[i]
		if r.response != nil {
			d.publish(r.hook, r.response)
			if !r.response.allowed {
				r.err = &rejection{refusal(r.hook.name, r.response.result)}
			}
		}
		ignored := d.record(r.hook, r.start, r.err)
		if ignored && d.c.Audited && !errors.Is(r.err, context.Canceled) {
			d.a.Annotate(failedOpenValidating+strconv.Itoa(i), r.hook.name)
		}
		if r.err != nil && !ignored && first == nil {
			first = final(r.err)
		}
	}
	return first
}
