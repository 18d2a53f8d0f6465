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

// review is a webhook that is called, and what came of it.
type review struct {
	hook  *hook
	tail  []byte
	start time.Time
	made  *answer
	err   error
}

// validate calls the validating webhooks of a request, all at once. The error is that of the first of
// them, in their order, that refuses it.
func (w *Webhooks) validate(ctx context.Context, a *registry.Attributes) error {
	d := &dispatch{Webhooks: w, a: a}
	var all []review
	for _, h := range w.validating.at(a.State) {
		form, ok, err := d.applies(ctx, h)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		tail, err := d.tail(ctx, form)
		if err != nil {
			return err
		}
		all = append(all, review{hook: h, tail: tail})
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
	return d.judge(all)
}

// callBytes is about the memory of a call without its review.
const callBytes = 24 << 10

// wait calls f, which calls webhooks, without the seat of the request. Its reviews count as memory of
// a waiting request.
func (d *dispatch) wait(ctx context.Context, calls int, f func()) error {
	bytes := int64(calls) * callBytes
	for _, t := range d.tails {
		bytes += int64(len(t))
	}
	err := fairness.Wait(ctx, bytes, func() error {
		f()
		return nil
	})
	if err != nil && !errors.Is(err, fairness.ErrFull) { // there was no seat to go on with
		return timeLeft(ctx)
	}
	return err
}

// callAll calls webhooks, all at once.
func (d *dispatch) callAll(ctx context.Context, all []review) {
	var wg sync.WaitGroup
	for i := range all[1:] {
		wg.Go(func() { d.callOne(ctx, &all[i+1]) })
	}
	d.callOne(ctx, &all[0])
	wg.Wait()
}

// callOne calls a webhook. A panic is an error of this request alone.
func (d *dispatch) callOne(ctx context.Context, r *review) {
	defer func() {
		if p := recover(); p != nil {
			r.err = apierrors.NewInternalError(fmt.Errorf("ValidatingAdmissionWebhook/%v has panicked: %v", r.hook.name, p))
		}
	}()
	r.start = time.Now()
	if r.err = r.hook.checkDryRun(d.a); r.err == nil {
		r.made, r.err = d.call(ctx, r.hook, r.tail)
	}
}

// judge takes the answers, and returns the first error.
func (d *dispatch) judge(all []review) (first error) {
	for i := range all {
		r := &all[i]
		if r.made != nil {
			d.note(r.hook, r.made)
			if !r.made.allowed {
				r.err = &rejection{refusal(r.hook.name, r.made.result)}
			}
		}
		ignored := d.outcome(r.hook, r.start, r.err)
		if ignored && d.c.Audited && !errors.Is(r.err, context.Canceled) {
			d.a.Annotate(failedOpenValidating+strconv.Itoa(i), r.hook.name)
		}
		if r.err != nil && !ignored && first == nil {
			first = final(r.err)
		}
	}
	return first
}
