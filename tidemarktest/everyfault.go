package tidemarktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// faultDelay is the latency of a request.
	faultDelay = 200 * time.Millisecond
	// watchFaultQuiet is how long a run with a fault of a list or watch, or with Retry-After, must be quiet: client-go
	// waits about a second before it sends such a request again.
	watchFaultQuiet = 2 * time.Second
)

// EveryFault calls Search.EveryFault with the defaults.
func EveryFault(t TB, env *Env, run func(ctx context.Context, env *Env), checks ...Check) {
	t.Helper()
	Search{}.EveryFault(t, env, run, checks...)
}

// EveryFault runs a controller with faults that the Kubernetes API allows: for each request of the first run, and
// each fault that this table has for its verb, there is a run in which that fault happens once.
//
//	get                               500
//	list                              500, 410 for a continue token or an exact list
//	watch                             500, 410 for a resource version, a connection that breaks after an event, latency
//	create, delete, deletecollection  500, a response that is lost after the write, latency
//	update, patch                     409, 500, a response that is lost after the write, latency
//
// The first request with each verb for each resource also gets 429 with Retry-After once, as by a server
// that is overloaded. A client of client-go sends it again by itself, as it does after a 503 with Retry-After, so the
// controller sees latency; other clients see the error. In a world with World.Webhooks, writes also fail once because
// a webhook does not respond in time.
//
// A fault selects its request by verb, resource, namespace, name and User-Agent, and by the number of such requests
// before. If a run has no such request, because it sends other ones, the fault does not happen; the test log has
// the number of these runs. Requests for Events and Leases have no faults. Search describes run and checks.
func (s Search) EveryFault(t TB, env *Env, run func(ctx context.Context, env *Env), checks ...Check) {
	t.Helper()
	p := &search{Search: s, t: t, name: "EveryFault", run: run, checks: checks, records: true, missed: "those runs sent other requests"}
	p.do(env, p.faults)
}

// faults returns each fault of each request.
func (s *search) faults() []disturbance {
	type kind struct{ verb, collection, subresource string }
	var all []disturbance
	same := map[kind][]*request{} // up to the request
	for i := range s.recorded {
		q := &s.recorded[i]
		if transient(q.collection()) {
			continue
		}
		k := kind{q.Verb, q.collection(), q.Subresource}
		same[k] = append(same[k], q)
		kinds := faultsOf(q)
		if len(same[k]) == 1 {
			kinds = append(kinds, Fault{}.Status(429, time.Second))
		}
		if s.origin.webhook != nil && slices.Contains(faultWrites, q.Verb) {
			kinds = append(kinds, Fault{}.WebhookTimeout(""))
		}
		for _, f := range kinds {
			all = append(all, s.faultOf(same[k], f))
		}
	}
	return all
}

// collection returns the resource as Change.Collection has it.
func (q *request) collection() string {
	if q.Group == "" {
		return q.Resource
	}
	return q.Resource + "." + q.Group
}

// String describes the request: "update pods/status default/web".
func (q *request) String() string {
	words := []string{q.Verb, q.collection()}
	if q.Subresource != "" {
		words[1] += "/" + q.Subresource
	}
	switch {
	case q.Name != "" && q.Namespace != "":
		words = append(words, q.Namespace+"/"+q.Name)
	case q.Name != "":
		words = append(words, q.Name)
	case q.Namespace != "":
		words = append(words, "in", q.Namespace)
	}
	return strings.Join(words, " ")
}

// faultWrites are the verbs that call admission webhooks.
var faultWrites = []string{"create", "update", "patch", "delete", "deletecollection"}

// faultsOf returns the faults that can happen to each request.
func faultsOf(q *request) []Fault {
	var f Fault
	failed, lost, slow := f.Status(500, 0), f.LostResponse(), f.Latency(faultDelay)
	var all []Fault
	switch q.Verb {
	case "get":
		return []Fault{failed}
	case "list":
		all = []Fault{failed}
	case "watch":
		all = []Fault{failed, slow, f.DropAfter(1)}
	case "update", "patch":
		return []Fault{f.Conflict(), failed, lost, slow}
	default:
		return []Fault{failed, lost, slow}
	}
	if q.Old {
		all = append(all, f.Gone())
	}
	return all
}

// faultNames has the faults as messages name them.
var faultNames = map[string]string{
	"conflict": "a conflict", "status": "an error", "lostResponse": "a lost response", "latency": "latency", "drop": "a broken connection", "gone": "an error 410",
	"webhookTimeout": "a time-out of a webhook",
}

// faultOf returns a fault of the last of some requests with the same verb and resource.
func (s *search) faultOf(same []*request, f Fault) disturbance {
	q, r := same[len(same)-1], f.rule
	r.Verbs, r.Group, r.Resource, r.Namespace, r.Name, r.UserAgent = []string{q.Verb}, q.Group, q.Resource, q.Namespace, q.Name, q.UserAgent
	if r.Group == "" {
		r.Group = "core"
	}
	if q.Subresource != "" {
		r.Resource += "/" + q.Subresource
	}
	n := r.selected(same)
	r.After, r.Times = n-1, 1
	client, _, _ := strings.Cut(q.UserAgent, " ")
	name, dir := faultNames[r.Fault], r.Fault
	if r.Code != 0 {
		name, dir = fmt.Sprintf("%s %d", name, r.Code), fmt.Sprintf("%s-%d", dir, r.Code)
	}
	d := disturbance{
		name: fmt.Sprintf("%s for request %d %q by %s", name, n, q, client),
		dir:  fmt.Sprintf("%s-%s-%d", dir, q, n),
		from: moment{at: s.base()},
	}
	if r.RetryAfterSeconds > 0 || slices.Contains([]string{"list", "watch"}, q.Verb) {
		d.quiet = watchFaultQuiet
	}
	d.start = func(ctx context.Context, world *Env) (effect, error) {
		a, err := world.addFault(ctx, r)
		return effect{env: world, happened: func(ctx context.Context) (bool, error) {
			fired, err := a.fired(ctx)
			return fired > 0, err
		}}, err
	}
	return d
}

// selected returns how many requests the rule selects, of some that have its verb and resource. It counts as the
// server does: an empty namespace or name selects all, and the User-Agent is a prefix.
func (r *faultRule) selected(same []*request) (n uint64) {
	for _, q := range same {
		if (r.Namespace == "" || r.Namespace == q.Namespace) && (r.Name == "" || r.Name == q.Name) &&
			strings.HasPrefix(q.UserAgent, r.UserAgent) && (q.Old || r.Fault != "gone") {
			n++
		}
	}
	return n
}
