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
	// lastingFaultQuiet is how long a run whose fault has lasted must be quiet: a controller that waits twice as long before
	// each try comes back after about the time that the fault has lasted.
	lastingFaultQuiet = time.Second
	// lastingFaultTimes is how often such a fault happens at most. A controller with many objects gets fewer errors; one that
	// tries again without a pause keeps the time of a bubble from moving, and would do so forever.
	lastingFaultTimes = 1000
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
// In one more run for each get and each write, the request and all like it get 500 until the cluster has settled, for two
// seconds and a thousand requests at most. Then the fault ends, and the controller must come back by itself: nothing in the cluster wakes it up, as the
// next event does after a fault that happens once. A controller that gives up after a few tries fails such a run.
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
		if q.Verb != "list" && q.Verb != "watch" { // informers try again by themselves, and wait for seconds
			all = append(all, s.lastingFaultOf(same[k]))
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
	q, r := same[len(same)-1], f.ruleFor(same)
	r.Times = 1
	name, dir := faultNames[r.Fault], r.Fault
	if r.Code != 0 {
		name, dir = fmt.Sprintf("%s %d", name, r.Code), fmt.Sprintf("%s-%d", dir, r.Code)
	}
	d := disturbance{
		name: fmt.Sprintf("%s for request %d %q by %s", name, r.After+1, q, q.client()),
		dir:  fmt.Sprintf("%s-%s-%d", dir, q, r.After+1),
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

// lastingFaultOf returns an error for the last of some requests with the same verb and resource and for all like it, until the
// controller has settled.
func (s *search) lastingFaultOf(same []*request) disturbance {
	q, r := same[len(same)-1], Fault{}.Status(500, 0).ruleFor(same)
	r.Times = lastingFaultTimes
	return disturbance{
		name:  fmt.Sprintf("an error 500 for request %d %q by %s, and for each one like it until the cluster had settled", r.After+1, q, q.client()),
		dir:   fmt.Sprintf("status-500-until-settled-%s-%d", q, r.After+1),
		from:  moment{at: s.base()},
		quiet: lastingFaultQuiet,
		start: func(ctx context.Context, world *Env) (effect, error) {
			a, err := world.addFault(ctx, r)
			f := lastingFault{ActiveFault: a}
			return effect{env: world, end: f.end, happened: f.happened, met: settleQuiet}, err
		},
	}
}

// lastingFault is a fault that ends when the world has settled.
type lastingFault struct {
	*ActiveFault
	ended bool
	times uint64 // it has happened; after its end
}

// end ends the fault when the world has settled after it has happened, or after lagLimit. A controller that tries again and
// again, and changes nothing, has settled.
func (f *lastingFault) end(ctx context.Context) (err error) {
	limited, cancel := context.WithTimeout(ctx, lagLimit)
	_, _ = f.env.settle(limited, settleQuiet) // an error is the limit, or is repeated
	cancel()
	if f.times, err = f.fired(ctx); err != nil {
		return err
	}
	f.ended = true
	return f.remove(ctx)
}

func (f *lastingFault) happened(ctx context.Context) (bool, error) {
	if f.ended {
		return f.times > 0, nil
	}
	n, err := f.fired(ctx)
	return n > 0, err
}

// ruleFor returns the rule of the fault for the last of some requests with the same verb and resource, and for all like it.
func (f Fault) ruleFor(same []*request) faultRule {
	q, r := same[len(same)-1], f.rule
	r.Verbs, r.Group, r.Resource, r.Namespace, r.Name, r.UserAgent = []string{q.Verb}, q.Group, q.Resource, q.Namespace, q.Name, q.UserAgent
	if r.Group == "" {
		r.Group = "core"
	}
	if q.Subresource != "" {
		r.Resource += "/" + q.Subresource
	}
	r.After = r.selected(same) - 1
	return r
}

// client is the program that has sent the request.
func (q *request) client() string {
	name, _, _ := strings.Cut(q.UserAgent, " ")
	return name
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
