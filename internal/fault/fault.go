// Package fault decides which requests of a world fail on purpose, and how. Tests use it: each fault
// is one that the Kubernetes API allows at any time, so a client that breaks on it is wrong.
//
// A Rule selects requests and names a Kind. A Set holds the rules of a world. Package httpapi calls
// Set.Pick once for each request for a resource, and makes the fault.
package fault

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Kind is the effect on a request.
type Kind = string

const (
	// Conflict responds to an update or a patch with 409, as if another client had written the object.
	Conflict Kind = "conflict"
	// Latency delays a request by Rule.DelayMilliseconds. Other faults can follow.
	Latency Kind = "latency"
	// Status responds with Rule.Code, and with Retry-After if Rule.RetryAfterSeconds is set.
	Status Kind = "status"
	// Gone responds with 410 for a continue token, an exact list, and a watch from a resource version.
	Gone Kind = "gone"
	// Drop breaks the connection before the request is executed. It breaks a watch after
	// Rule.Events events; with zero also those that are open when the rule is added.
	Drop Kind = "drop"
	// LostResponse executes a write, and breaks the connection instead of responding.
	LostResponse Kind = "lostResponse"
	// WebhookTimeout responds to a write as if the admission webhook Rule.Webhook, with the failure policy
	// Fail, had not responded in time.
	WebhookTimeout Kind = "webhookTimeout"
)

// kinds has the verbs that a fault can happen to; nil: all.
var kinds = map[Kind][]string{
	Conflict:       {"update", "patch"},
	Latency:        nil,
	Status:         nil,
	Gone:           {"list", "watch"},
	Drop:           nil,
	LostResponse:   writes,
	WebhookTimeout: writes,
}

var (
	writes   = []string{"create", "update", "patch", "delete", "deletecollection"}
	allVerbs = append([]string{"get", "list", "watch"}, writes...)
)

// Rule selects requests for resources, and the fault for them. An empty field selects all.
type Rule struct {
	Fault Kind `json:"fault"`

	// Verbs are those of RBAC: "get", "list", "watch", "create", "update", "patch", "delete",
	// "deletecollection".
	Verbs []string `json:"verbs,omitempty"`
	// Group is an API group; "core" is the one of pods.
	Group string `json:"group,omitempty"`
	// Resource is "pods", "pods/status", or "pods/*" for both and all other subresources.
	Resource  string `json:"resource,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Name is the name in the path of the request, or the one that a field selector selects. A create has none,
	// unless it is of a subresource.
	Name string `json:"name,omitempty"`
	// User is the name of the user who is authorized: the impersonated one.
	User string `json:"user,omitempty"`
	// UserAgent is the beginning of the header User-Agent.
	UserAgent string `json:"userAgent,omitempty"`

	// After is how many of the selected requests are spared first, Times how often the fault then
	// happens; zero: no limit.
	After uint64 `json:"after,omitempty"`
	Times uint64 `json:"times,omitempty"`
	// Probability is between 0 and 1; zero: 1. Seed makes the same choices for the same sequence of
	// requests.
	Probability float64 `json:"probability,omitempty"`
	Seed        uint64  `json:"seed,omitempty"`

	// DelayMilliseconds is for Latency.
	DelayMilliseconds int64 `json:"delayMilliseconds,omitempty"`
	// Code, 429, 500, 503 or 504, and RetryAfterSeconds are for Status.
	Code              int `json:"code,omitempty"`
	RetryAfterSeconds int `json:"retryAfterSeconds,omitempty"`
	// Events is for Drop of watches.
	Events uint64 `json:"events,omitempty"`
	// Webhook is for WebhookTimeout; empty: "webhook.tidemark.example".
	Webhook string `json:"webhook,omitempty"`
}

// Limits of a rule.
const (
	maxDelay      = 10 * time.Minute
	maxRetryAfter = 3600 // seconds
	maxText       = 1024 // bytes of a field
)

// ErrInvalid is wrapped by the errors of Add for a rule that is not valid.
var ErrInvalid = errors.New("the fault is not valid")

// check returns an error that wraps ErrInvalid unless the rule is valid.
func (r *Rule) check() error {
	legal, known := kinds[r.Fault]
	if !known {
		return fmt.Errorf("%w: there is no fault %q: want conflict, latency, status, gone, drop, lostResponse or webhookTimeout", ErrInvalid, r.Fault)
	}
	for _, v := range r.Verbs {
		if !slices.Contains(allVerbs, v) {
			return fmt.Errorf("%w: there is no verb %q: want some of %s", ErrInvalid, v, strings.Join(allVerbs, ", "))
		}
		if legal != nil && !slices.Contains(legal, v) {
			return fmt.Errorf("%w: %s cannot happen to %s: want some of %s", ErrInvalid, r.Fault, v, strings.Join(legal, ", "))
		}
	}
	if r.Name != "" && r.Resource != "" && !strings.Contains(r.Resource, "/") && len(r.Verbs) == 1 && r.Verbs[0] == "create" {
		return fmt.Errorf("%w: a create of %s has no name in its path", ErrInvalid, r.Resource)
	}
	for _, text := range []string{r.Group, r.Resource, r.Namespace, r.Name, r.User, r.UserAgent, r.Webhook} {
		if len(text) > maxText {
			return fmt.Errorf("%w: a field has more than %d bytes", ErrInvalid, maxText)
		}
	}
	if !(r.Probability >= 0 && r.Probability <= 1) { // also NaN
		return fmt.Errorf("%w: probability %v: want 0 to 1", ErrInvalid, r.Probability)
	}
	return r.checkParameters()
}

// checkParameters checks the fields that belong to some kinds only.
func (r *Rule) checkParameters() error {
	status, watches := r.Fault == Status, len(r.Verbs) == 1 && r.Verbs[0] == "watch"
	switch {
	case (r.Fault == Latency) != (r.DelayMilliseconds != 0):
		return fmt.Errorf("%w: want delayMilliseconds for latency, and for it alone", ErrInvalid)
	case r.DelayMilliseconds < 0 || r.DelayMilliseconds > maxDelay.Milliseconds():
		return fmt.Errorf("%w: delayMilliseconds %d: want 1 to %d", ErrInvalid, r.DelayMilliseconds, maxDelay.Milliseconds())
	case !status && (r.Code != 0 || r.RetryAfterSeconds != 0):
		return fmt.Errorf("%w: code and retryAfterSeconds are for status alone", ErrInvalid)
	case status && !slices.Contains([]int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, r.Code):
		return fmt.Errorf("%w: code %d: want 429, 500, 503 or 504", ErrInvalid, r.Code)
	case r.RetryAfterSeconds < 0 || r.RetryAfterSeconds > maxRetryAfter:
		return fmt.Errorf("%w: retryAfterSeconds %d: want 0 to %d", ErrInvalid, r.RetryAfterSeconds, maxRetryAfter)
	case r.Events != 0 && (r.Fault != Drop || !watches):
		return fmt.Errorf("%w: events is for drop of the verb watch alone", ErrInvalid)
	case r.Webhook != "" && r.Fault != WebhookTimeout:
		return fmt.Errorf("%w: webhook is for webhookTimeout alone", ErrInvalid)
	}
	return nil
}

// Request is a request for a resource, as authorization sees it.
type Request struct {
	Verb        string `json:"verb"`
	Group       string `json:"group,omitempty"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	User        string `json:"user"`
	UserAgent   string `json:"userAgent,omitempty"`
	// Old reports whether the request names a version that may be gone: Gone can happen to it.
	Old bool `json:"old,omitempty"`
}

// selects reports whether the rule selects the request, and its fault can happen to it.
func (r *Rule) selects(q *Request) bool {
	if legal := kinds[r.Fault]; legal != nil && !slices.Contains(legal, q.Verb) || r.Fault == Gone && !q.Old {
		return false
	}
	group := r.Group
	if group == "core" {
		group = ""
	}
	return (len(r.Verbs) == 0 || slices.Contains(r.Verbs, q.Verb)) &&
		(r.Group == "" || group == q.Group) &&
		r.selectsResource(q) &&
		(r.Namespace == "" || r.Namespace == q.Namespace) &&
		(r.Name == "" || r.Name == q.Name) &&
		(r.User == "" || r.User == q.User) &&
		strings.HasPrefix(q.UserAgent, r.UserAgent)
}

func (r *Rule) selectsResource(q *Request) bool {
	resource, sub, _ := strings.Cut(r.Resource, "/")
	return r.Resource == "" || resource == q.Resource && (sub == "*" || sub == q.Subresource)
}
