// Package webhook calls the webhooks of MutatingWebhookConfigurations and
// ValidatingWebhookConfigurations.
//
// A request goes through three steps for each webhook:
//
//	applies   rules, selectors and match conditions decide in which version it sees the request
//	call      an AdmissionReview is sent, and the response is checked
//	effect    a patch, a refusal, warnings, audit annotations
//
// Mutating webhooks take turns: each sees the changes of those before. Validating webhooks are
// called at once. While a request waits for webhooks it has no seat, and its memory counts against
// the budget of waiting requests. So a webhook that hangs holds up nothing but the requests that it
// applies to.
package webhook

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/admission/manifest"
	"github.com/tidemark-dev/tidemark/internal/admission/match"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	remote "github.com/tidemark-dev/tidemark/internal/webhook"
)

// Config has the dependencies of the plugins.
type Config struct {
	// Mutating and Validating are the connections to webhooks. They may be the same.
	Mutating, Validating *remote.Connections
	// MutatingFiles and ValidatingFiles have the configurations of files; nil: there are none.
	MutatingFiles, ValidatingFiles *manifest.Directory
	// Authz decides for the variable authorizer of match conditions; nil: conditions that use it
	// fail.
	Authz authz.Authorizer
	// Conditions count match conditions; nil: nothing does.
	Conditions *match.Metrics
	// Reviews: webhooks see reviews of tokens and access, too.
	Reviews bool
	// Audited: requests have audit events, for which there are annotations.
	Audited bool
	// Log gets the failures of webhooks; nil: it is discarded.
	Log *slog.Logger
}

// Webhooks are both plugins. The methods are safe for concurrent use.
type Webhooks struct {
	c                    Config
	metrics              *metrics
	mutating, validating *configurations
}

// New returns the plugins.
func New(c Config) *Webhooks {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	w := &Webhooks{c: c, metrics: newMetrics()}
	w.mutating = w.configurations(admit, c.MutatingFiles)
	w.validating = w.configurations(validating, c.ValidatingFiles)
	return w
}

// Collectors collect the metrics.
func (w *Webhooks) Collectors() []prometheus.Collector { return w.metrics.collectors() }

// Close closes the connections to webhooks.
func (w *Webhooks) Close() {
	w.c.Mutating.Close()
	w.c.Validating.Close()
}

// Mutating returns the plugin MutatingAdmissionWebhook.
func (w *Webhooks) Mutating() registry.Plugin {
	return registry.Plugin{Handles: w.mutating.handle, Mutate: w.mutate}
}

// Validating returns the plugin ValidatingAdmissionWebhook.
func (w *Webhooks) Validating() registry.Plugin {
	return registry.Plugin{Handles: w.validating.handle, Validate: w.validate}
}

// handle reports whether a webhook may apply to an operation on a target.
func (c *configurations) handle(s *store.State, t registry.Target, o registry.Operation) bool {
	if !c.reviews && match.IsReview(t) {
		return false
	}
	may := func(h *hook) bool { return h.criteria != nil && h.criteria.MayMatch(t, o) }
	return slices.ContainsFunc(c.inFiles(), may) || !match.Exempt(t) && slices.ContainsFunc(c.value.At(s).all, may)
}

// dispatcher calls the webhooks of one request, in one run of a plugin. Only one goroutine uses it.
type dispatcher struct {
	*Webhooks
	a *registry.Attributes
	// form, seen and input are those of the last webhook with match conditions.
	form  registry.Form
	seen  *registry.Versioned
	input *match.Input
	// payloads are the reviews of the request, by the form; they are forgotten when the object changes.
	payloads map[registry.Form][]byte
}

// applies reports whether a webhook is called, and in which form it sees the request.
func (d *dispatcher) applies(ctx context.Context, h *hook) (registry.Form, bool, error) {
	if h.criteria == nil {
		return registry.Form{}, false, nil
	}
	form, ok, err := h.criteria.Match(ctx, d.a)
	if !ok || err != nil || h.conditions == nil {
		return form, ok, err
	}
	v, err := d.a.In(ctx, form)
	if err != nil {
		return form, false, internalError(err)
	}
	if d.input == nil || d.seen != v || d.form != form {
		d.form, d.seen, d.input = form, v, match.NewInput(ctx, d.a, v, d.c.Authz)
	}
	ok, err = h.conditions.Match(ctx, d.a, d.input)
	if undecided := d.input.Undecided(err != nil); undecided != nil {
		return form, false, undecided
	}
	if err != nil {
		return form, false, apierrors.NewForbidden(d.a.RequestedResource().GroupResource(), d.a.ShownName(), err)
	}
	return form, ok, nil
}

// changed discards the values made from the object.
func (d *dispatcher) changed() {
	d.input = nil
	clear(d.payloads)
}

// internalError returns the error of a conversion that failed. That of a webhook which converts is one
// already; so is that of the budget of waiting requests.
func internalError(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) || errors.Is(err, fairness.ErrFull) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return apierrors.NewInternalError(err)
}

// timeLeft returns an error if the time of the request is over.
func timeLeft(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
}

// since returns the seconds since a time.
func since(start time.Time) float64 { return time.Since(start).Seconds() }
