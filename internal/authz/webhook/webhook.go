// Package webhook authorizes with a remote service, which gets a SubjectAccessReview for each
// decision and completes it.
//
// A decision is cached under a hash of all fields of the review. Failures are not cached, and
// neither are decisions about very long names: a client could fill the cache with them. Equal
// requests within a second share one call. A call that fails for a temporary reason is repeated a
// few times. A slow service delays only the requests that call it. The number of waiting requests
// is limited, and more of them get 429.
package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/webhook"
)

const (
	// cachedDecisions limits the cached decisions of each sort. Members of a group without rights
	// cannot evict the decisions of others.
	cachedDecisions = 8192
	// cachedAttributeBytes bounds the attributes of a request whose decision is cached.
	cachedAttributeBytes = 10_000
	// cachedReasonBytes bounds the reason of a decision that is cached.
	cachedReasonBytes = 4 << 10
	// maxWaiting is the maximum number of requests that wait for the service. One user has half of them at most.
	maxWaiting = 1200
	// healthWait is how long a health check waits for the service. Load balancers do not wait for long.
	healthWait = 5 * time.Second
	// callLimit bounds all attempts of a decision together. It is the time that other requests
	// than watches have.
	callLimit = time.Minute
	// fresh is the time in which requests join a call: a right that was revoked since may still
	// count for them.
	fresh = time.Second
)

// Config configures a Webhook.
type Config struct {
	// Name is the name of the authorizer, for metrics.
	Name string
	// KubeconfigFile has the URL of the service and the credentials for it. Its cluster is the
	// service, its user this server.
	KubeconfigFile string
	// Version is the version of the SubjectAccessReview: "v1" or "v1beta1".
	Version string
	// Timeout is for one attempt; zero: 30 seconds.
	Timeout time.Duration
	// AuthorizedTTL and UnauthorizedTTL are how long a decision is cached; zero: it is not.
	AuthorizedTTL, UnauthorizedTTL time.Duration
	// OnError is the decision if the service, or a condition, fails: NoOpinion or Deny.
	OnError authz.Decision
	// Conditions select the requests that are sent to the service; nil: all.
	Conditions *Conditions
	// Metrics counts; nil: nothing is counted.
	Metrics *Metrics
	// Backoff is the pause before the second attempt, and grows by half with each; zero: 500 ms.
	Backoff time.Duration
	// Now is the clock of the caches; nil: time.Now.
	Now func() time.Time
}

// Webhook implements authz.Authorizer and authz.Ruler.
type Webhook struct {
	c       Config
	remote  *remote
	allowed *cache
	refused *cache
	flights webhook.Flights[decided]
	// probes are the flights of health checks without credentials. All clients without credentials are one user, so a flood
	// of other requests would use up the room of the health checks.
	probes webhook.Flights[decided]
	health time.Duration // healthWait
	// single makes the keys of decisions that are not cached. Their calls are not shared.
	single atomic.Uint64
}

// New makes a Webhook. It reads the kubeconfig, and connects later.
func New(c Config) (*Webhook, error) {
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.Backoff == 0 {
		c.Backoff = 500 * time.Millisecond
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	r, err := newRemote(c.KubeconfigFile, c.Version, c.Timeout)
	if err != nil {
		return nil, err
	}
	w := &Webhook{
		c: c, remote: r, allowed: newCache(cachedDecisions, c.Now), health: healthWait, refused: newCache(cachedDecisions, c.Now),
		flights: webhook.Flights[decided]{Most: maxWaiting, Limit: callLimit, Fresh: fresh},
	}
	w.flights.Keep = w.keep
	w.probes = webhook.Flights[decided]{Most: maxWaiting, Limit: callLimit, Fresh: fresh, Keep: w.keep}
	if w.shares() {
		w.probes.Most = math.MaxInt // they are a few calls
	}
	return w, nil
}

// Close closes the connections that no request uses.
func (w *Webhook) Close() { w.remote.close() }

var (
	errNoRules = errors.New("webhook authorizer does not support user rule resolution")
	errBoth    = errors.New("webhook subject access review returned both allow and deny response")
)

// Rules implements authz.Ruler.
func (w *Webhook) Rules(context.Context, *authn.User, string) authz.Rules {
	return authz.Rules{Incomplete: true, Err: errNoRules}
}

// Authorize implements authz.Authorizer.
func (w *Webhook) Authorize(ctx context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	spec := specOf(a)
	ask, err := w.c.Conditions.match(ctx, &spec, w.c.Name, w.c.Metrics)
	if errors.Is(err, errTooExpensive) {
		return authz.Deny, fmt.Sprintf("%s: %v", w.c.Name, errTooExpensive), nil
	}
	if err != nil && ctx.Err() != nil {
		return authz.Deny, "", err // the conditions have not failed: the request has ended
	}
	if err != nil {
		return w.c.OnError, "", err
	}
	if !ask {
		return authz.NoOpinion, "", nil
	}
	waiting := ctx
	if isHealth(a) {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, w.health)
		defer cancel()
	}
	s, err := w.decide(waiting, a, &spec)
	switch {
	case err != nil && (ctx.Err() != nil || errors.Is(err, authz.ErrBusy)):
		// The service has not failed: the request has ended, or other requests use the room. So the failure policy does
		// not apply.
		return authz.Deny, "", err
	case err != nil:
		return w.c.OnError, "", err
	case s.Denied && s.Allowed:
		return authz.Deny, s.Reason, errBoth
	case s.Denied:
		return authz.Deny, s.Reason, nil
	case s.Allowed:
		return authz.Allow, s.Reason, nil
	}
	return authz.NoOpinion, s.Reason, nil
}

type status = authorizationv1.SubjectAccessReviewStatus

// decided is the decision of a call.
type decided struct {
	status
	short bool // the question and the reason are short enough for a cache
}

// decide returns the decision of the service, perhaps a cached one. A call that others share may outlive the request, and so
// does not use a.
func (w *Webhook) decide(ctx context.Context, a *authz.Attributes, spec *authorizationv1.SubjectAccessReviewSpec) (status, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return status{}, err
	}
	k := webhook.Key(sha256.Sum256(text))
	if !w.shares() {
		k = webhook.Key{}
		binary.BigEndian.PutUint64(k[:], w.single.Add(1))
	}
	if s, ok := w.kept(k); ok {
		return s, nil
	}
	short := attributeBytes(a) < cachedAttributeBytes
	flights := &w.flights
	if a.User == authn.Anonymous && isHealth(a) && (a.Verb == "get" || a.Verb == "head") {
		flights = &w.probes
	}
	d, err := flights.Join(ctx, k, a.User.Name, len(text), func(ctx context.Context) (decided, error) {
		s, err := w.call(ctx, spec)
		s.EvaluationError = "" // no decision has it, and it may be long
		return decided{s, short && len(s.Reason) <= cachedReasonBytes}, err
	})
	if errors.Is(err, webhook.ErrBusy) {
		err = authz.ErrBusy
	}
	return d.status, err
}

// shares reports whether requests share calls.
func (w *Webhook) shares() bool { return w.c.AuthorizedTTL > 0 || w.c.UnauthorizedTTL > 0 }

// isHealth reports whether a request is a health check.
func isHealth(a *authz.Attributes) bool {
	return !a.IsResource && (a.Path == "/healthz" || a.Path == "/livez" || a.Path == "/readyz")
}

// kept returns a cached decision.
func (w *Webhook) kept(k webhook.Key) (status, bool) {
	if s, ok := w.allowed.get(k); ok {
		return s, true
	}
	return w.refused.get(k)
}

// keep caches a decision. One that cannot be cached removes that of an earlier call.
func (w *Webhook) keep(k webhook.Key, d decided) {
	w.allowed.remove(k)
	w.refused.remove(k)
	switch {
	case !d.short:
	case d.Allowed:
		w.allowed.put(k, d.status, w.c.AuthorizedTTL)
	default:
		w.refused.put(k, d.status, w.c.UnauthorizedTTL)
	}
}

// call calls the service, up to five times.
func (w *Webhook) call(ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (s status, err error) {
	var result string
	attempts := wait.Backoff{Duration: w.c.Backoff, Factor: 1.5, Jitter: 0.2, Steps: 5}
	ended := wait.ExponentialBackoffWithContext(ctx, attempts, func(ctx context.Context) (bool, error) {
		start := time.Now()
		var code int
		s, code, err = w.remote.review(ctx, spec)
		result = resultOf(ctx, code, err)
		w.c.Metrics.called(w.c.Name, result, time.Since(start))
		return !passing(err), nil
	})
	if err == nil {
		err = ended // the context ended before the first attempt
	}
	if err != nil && w.c.OnError == authz.NoOpinion && ctx.Err() == nil {
		w.c.Metrics.failOpen.WithLabelValues(w.c.Name, result).Inc()
	}
	return s, err
}

// passing reports whether an error may be gone at the next attempt.
func passing(err error) bool {
	if utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) {
		return true
	}
	_, later := apierrors.SuggestsClientDelay(err)
	return later
}

// resultOf is the label of an attempt in metrics.
func resultOf(ctx context.Context, code int, err error) string {
	switch {
	case err == nil:
		return "success"
	case ctx.Err() != nil:
		return "canceled"
	case utilnet.IsTimeout(err), errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), code == http.StatusGatewayTimeout:
		return "timeout"
	}
	return "error"
}

func attributeBytes(a *authz.Attributes) int {
	return len(a.Namespace) + len(a.Verb) + len(a.Group) + len(a.Version) + len(a.Resource) + len(a.Subresource) + len(a.Name) + len(a.Path)
}
