package tidemarktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Fault makes requests fail in a way that the Kubernetes API allows at any time, so a client that breaks is
// wrong. On selects the requests, and one of the methods Conflict, Latency, Status, Gone, Drop, DropAfter,
// LostResponse and WebhookTimeout sets the effect:
//
//	env.Fault(t, tidemarktest.On("update", "pods").Conflict().Times(3))
//
// The methods return a changed copy. docs/how-to/faults.md describes the faults.
type Fault struct {
	rule     faultRule
	conflict error // of methods that exclude each other, or of a wrong argument
}

// faultRule is a fault in the control API.
type faultRule struct {
	Fault             string   `json:"fault"`
	Verbs             []string `json:"verbs,omitempty"`
	Group             string   `json:"group,omitempty"`
	Resource          string   `json:"resource,omitempty"`
	Namespace         string   `json:"namespace,omitempty"`
	Name              string   `json:"name,omitempty"`
	User              string   `json:"user,omitempty"`
	UserAgent         string   `json:"userAgent,omitempty"`
	After             uint64   `json:"after,omitempty"`
	Times             uint64   `json:"times,omitempty"`
	Probability       float64  `json:"probability,omitempty"`
	Seed              uint64   `json:"seed,omitempty"`
	DelayMilliseconds int64    `json:"delayMilliseconds,omitempty"`
	Code              int      `json:"code,omitempty"`
	RetryAfterSeconds int      `json:"retryAfterSeconds,omitempty"`
	Events            uint64   `json:"events,omitempty"`
	Webhook           string   `json:"webhook,omitempty"`
}

// On selects the requests with a verb of RBAC, such as "update", for a resource, with its group or without:
// "pods", "pods/status", "deployments.apps". An empty string selects all.
func On(verb, resource string) Fault {
	var f Fault
	if verb != "" {
		f.rule.Verbs = []string{verb}
	}
	resource, subresource, isSub := strings.Cut(resource, "/")
	f.rule.Resource, f.rule.Group, _ = strings.Cut(resource, ".")
	if isSub {
		f.rule.Resource += "/" + subresource
	}
	return f
}

// Named selects the requests for one object: a name, or a namespace, a slash and a name. Creates have no
// name.
func (f Fault) Named(name string) Fault {
	namespace, rest, ok := strings.Cut(name, "/")
	if !ok {
		namespace, rest = "", name
	}
	if strings.Contains(rest, "/") && f.conflict == nil {
		f.conflict = fmt.Errorf("Named(%q): want a name, or a namespace, a slash and a name", name)
	}
	f.rule.Namespace, f.rule.Name = namespace, rest
	return f
}

// By selects the requests of clients whose User-Agent begins with a text.
func (f Fault) By(userAgent string) Fault { f.rule.UserAgent = userAgent; return f }

// kind sets the kind of the fault.
func (f Fault) kind(kind string) Fault {
	if former := f.rule.Fault; former != "" && former != kind && f.conflict == nil {
		f.conflict = fmt.Errorf("one fault is both %s and %s: call env.Fault once for each", former, kind)
	}
	f.rule.Fault = kind
	return f
}

// User selects the requests of a user.
func (f Fault) User(name string) Fault { f.rule.User = name; return f }

// After lets the first n of the selected requests pass.
func (f Fault) After(n uint64) Fault { f.rule.After = n; return f }

// Times ends the fault after it has happened n times; zero: it does not end.
func (f Fault) Times(n uint64) Fault { f.rule.Times = n; return f }

// Probability is the probability, from 0 to 1, that the fault happens to a selected request; zero: 1. In the same
// sequence of requests, the same seed selects the same ones.
func (f Fault) Probability(p float64, seed uint64) Fault {
	f.rule.Probability, f.rule.Seed = p, seed
	return f
}

// Conflict responds to updates and patches with 409, as if another client had written the object.
func (f Fault) Conflict() Fault { return f.kind("conflict") }

// Latency delays requests, by at least a millisecond.
func (f Fault) Latency(d time.Duration) Fault {
	f.rule.DelayMilliseconds = d.Milliseconds()
	return f.kind("latency")
}

// Status responds with the code 429, 500, 503 or 504, and with Retry-After if retryAfter, rounded up to seconds, is
// not zero. Then client-go sends the request again by itself, and the controller does not see the error.
func (f Fault) Status(code int, retryAfter time.Duration) Fault {
	f.rule.Code, f.rule.RetryAfterSeconds = code, int((retryAfter+time.Second-1)/time.Second)
	if retryAfter < 0 {
		f.rule.RetryAfterSeconds = -1
	}
	return f.kind("status")
}

// Gone responds to watches, continue tokens and exact lists with 410: their resource version is too old.
func (f Fault) Gone() Fault { return f.kind("gone") }

// Drop breaks connections before the requests are executed, also those of open watches.
func (f Fault) Drop() Fault { return f.kind("drop") }

// DropAfter breaks the connections of watches after a number of events, at least one.
func (f Fault) DropAfter(events uint64) Fault {
	if verbs := f.rule.Verbs; len(verbs) > 0 && verbs[0] != "watch" && f.conflict == nil {
		f.conflict = fmt.Errorf("DropAfter is for watches: want On(\"watch\", ...)")
	}
	if events == 0 && f.conflict == nil {
		f.conflict = errors.New("DropAfter wants at least one event: Drop breaks connections at once")
	}
	f.rule.Verbs, f.rule.Events = []string{"watch"}, events
	return f.kind("drop")
}

// LostResponse executes writes and breaks their connections instead of responding.
func (f Fault) LostResponse() Fault { return f.kind("lostResponse") }

// WebhookTimeout responds to writes as if a webhook with the failure policy Fail had not responded in time.
// With an empty name, the error names a webhook that does not exist.
func (f Fault) WebhookTimeout(name string) Fault {
	f.rule.Webhook = name
	return f.kind("webhookTimeout")
}

// selection describes the requests that the fault selects, in messages.
func (f Fault) selection() string {
	words := []string{"any request"}
	if len(f.rule.Verbs) > 0 {
		words[0] = f.rule.Verbs[0]
	}
	for _, word := range []string{f.rule.resource(), f.rule.Name} {
		if word != "" {
			words = append(words, word)
		}
	}
	if f.rule.User != "" {
		words = append(words, "by the user "+f.rule.User)
	}
	if f.rule.UserAgent != "" {
		words = append(words, "by the user agent "+f.rule.UserAgent)
	}
	return strings.Join(words, " ")
}

// resource returns the resource as On gets it.
func (r *faultRule) resource() string {
	name, subresource, isSub := strings.Cut(r.Resource, "/")
	if r.Group != "" {
		name += "." + r.Group
	}
	if isSub {
		name += "/" + subresource
	}
	return name
}

// hint says why the fault may not have happened, if that is known.
func (f Fault) hint() string {
	if f.rule.Fault != "gone" {
		return ""
	}
	return " with an old resource version. A streaming list, the default of client-go since v0.35, begins without one; its client sends one when it watches again, as after Drop"
}

// An ActiveFault is a fault of an Env.
type ActiveFault struct {
	env *Env
	id  string
}

// Fault makes requests to the Env fail until the fault is removed or the Env ends. It fails the test if the fault is
// not one that the API allows, and if the server does not have the resource or its subresource. If the fault never happens, the test log says so at the end. An Env has at most 100
// faults.
func (e *Env) Fault(t TB, f Fault) *ActiveFault {
	t.Helper()
	ctx, cancel := callContext()
	defer cancel()
	err := f.conflict
	if err == nil && f.rule.Fault == "" {
		err = errors.New("it has no effect: call Conflict, Latency, Status, Gone, Drop, DropAfter, LostResponse or WebhookTimeout")
	}
	if err == nil && f.rule.Fault == "latency" && f.rule.DelayMilliseconds <= 0 {
		err = errors.New("Latency wants at least a millisecond")
	}
	if err == nil && f.rule.RetryAfterSeconds < 0 {
		err = errors.New("Status wants a retryAfter that is not negative")
	}
	if err == nil {
		err = e.checkResource(ctx, f.rule.resource())
	}
	var a *ActiveFault
	if err == nil {
		a, err = e.addFault(ctx, f.rule)
	}
	if err != nil {
		t.Fatalf("tidemarktest: the fault %q for %s: %v", f.rule.Fault, f.selection(), err)
		return nil
	}
	t.Cleanup(func() {
		t.Helper()
		ctx, cancel := callContext()
		defer cancel()
		if n, err := a.fired(ctx); err == nil && n == 0 {
			t.Logf("tidemarktest: the fault %q for %s has not happened: there was no such request%s", f.rule.Fault, f.selection(), f.hint())
		}
	})
	return a
}

func (e *Env) addFault(ctx context.Context, r faultRule) (*ActiveFault, error) {
	var added struct{ ID string }
	err := e.session.control.call(ctx, "POST", worldPath(e.world.Name, "faults"), r, &added)
	return &ActiveFault{e, added.ID}, err
}

// Fired returns how often the fault has happened. It fails the test after Remove.
func (a *ActiveFault) Fired(t TB) uint64 {
	t.Helper()
	var n uint64
	call(t, func(ctx context.Context) (err error) {
		n, err = a.fired(ctx)
		return err
	})
	return n
}

func (a *ActiveFault) fired(ctx context.Context) (uint64, error) {
	var all struct {
		Faults []struct {
			ID    string
			Fired uint64
		}
	}
	if err := a.env.session.control.call(ctx, "GET", worldPath(a.env.world.Name, "faults"), nil, &all); err != nil {
		return 0, err
	}
	for _, f := range all.Faults {
		if f.ID == a.id {
			return f.Fired, nil
		}
	}
	return 0, errors.New("the fault was removed: call Fired before Remove")
}

// Remove ends the fault. It can be called twice.
func (a *ActiveFault) Remove(t TB) {
	t.Helper()
	call(t, a.remove)
}

func (a *ActiveFault) remove(ctx context.Context) error {
	err := a.env.session.control.call(ctx, "DELETE", worldPath(a.env.world.Name, "faults", a.id), nil, nil)
	if wrong, ok := err.(*StatusError); ok && wrong.Code == 404 {
		return nil
	}
	return err
}

// request is a request for a resource that a world has recorded.
type request struct {
	Verb        string `json:"verb"`
	Group       string `json:"group"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	UserAgent   string `json:"userAgent"`
	Old         bool   `json:"old"`
}

// record lets the world record the requests for resources from now on.
func (e *Env) record(ctx context.Context) error {
	return e.session.control.call(ctx, "POST", worldPath(e.world.Name, "requests"), nil, nil)
}

// requests returns the requests that the world has recorded, and how many more there were.
func (e *Env) requests(ctx context.Context) (list []request, missed uint64, err error) {
	var all struct {
		Requests []request
		Missed   uint64
	}
	err = e.session.control.call(ctx, "GET", worldPath(e.world.Name, "requests"), nil, &all)
	return all.Requests, all.Missed, err
}
