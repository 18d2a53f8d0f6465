package webhook

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/admission/manifest"
	"github.com/tidemark-dev/tidemark/internal/admission/match"
	"github.com/tidemark-dev/tidemark/internal/derived"
	"github.com/tidemark-dev/tidemark/internal/expression"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	remote "github.com/tidemark-dev/tidemark/internal/webhook"
)

// callsPerWebhook is the limit of concurrent calls of one webhook. Others wait for up to the timeout of the webhook, and
// are then refused with 429. It bounds the goroutines and buffers that a webhook which hangs can hold, at about 24 KiB a
// call.
const callsPerWebhook = 512

// phase is a kind of webhook, as metrics name it.
type phase string

const (
	admit      phase = "admit"
	validating phase = "validating"
)

// collection returns where the configurations of the phase are stored.
func (p phase) collection() string {
	if p == admit {
		return "mutatingwebhookconfigurations.admissionregistration.k8s.io"
	}
	return "validatingwebhookconfigurations.admissionregistration.k8s.io"
}

// hook is a compiled webhook. It is immutable but for its endpoint.
type hook struct {
	phase               phase
	configuration, name string
	// id is unique among the webhooks of the phase.
	id string
	// criteria are nil for a webhook without rules, which is never called.
	criteria   *match.Criteria
	conditions *match.Conditions
	// invalid is the error of a configuration that cannot be read; it refuses every request.
	invalid     error
	ignore      bool // failures are ignored
	reinvoke    bool // it may be called again
	sideEffects admissionregistrationv1.SideEffectClass
	timeout     time.Duration
	version     string // of the review: v1 or v1beta1; empty: the webhook takes none of them
	target      remote.Target
	endpoint    atomic.Pointer[remote.Endpoint] // nil: it was not called yet
}

// configurations are the webhooks of a phase, compiled. A change compiles the configuration that has
// changed, and no other.
type configurations struct {
	value   *derived.Value[*compiled]
	reviews bool // webhooks see reviews

	files *manifest.Directory
	// filed are the webhooks of the last manifest.Set of files; nil: none was seen yet.
	filed   atomic.Pointer[filed]
	compile func(o *store.Object) []*hook
}

// filed are the webhooks of files.
type filed struct {
	of  *manifest.Set
	all []*hook // in the order of their calls
}

type compiled struct {
	byKey map[string][]*hook
	// all are in the order of their calls: by the names of the configurations, and their order
	// there.
	all []*hook
}

func (w *Webhooks) configurations(p phase, files *manifest.Directory) *configurations {
	update := func(last *compiled, then, now store.Snapshot) *compiled {
		next := &compiled{byKey: maps.Clone(last.byKey)}
		for before, after := range now.Since(then) {
			if after == nil {
				delete(next.byKey, before.Key)
				continue
			}
			next.byKey[after.Key] = w.compile(p, after)
		}
		for _, key := range slices.Sorted(maps.Keys(next.byKey)) {
			next.all = append(next.all, next.byKey[key]...)
		}
		return next
	}
	return &configurations{
		value: derived.NewIncremental(&compiled{byKey: map[string][]*hook{}}, update, p.collection()), reviews: w.c.Reviews,
		files: files, compile: func(o *store.Object) []*hook { return w.compile(p, o) },
	}
}

// of returns the webhooks that may see a request: those of files first, then those of its state.
func (c *configurations) of(a *registry.Attributes) []*hook {
	files := c.inFiles()
	if match.Exempt(a.Target) {
		return files
	}
	stored := c.value.At(a.State).all
	if len(files) == 0 {
		return stored
	}
	return slices.Concat(files, stored)
}

// inFiles returns the webhooks of files.
func (c *configurations) inFiles() []*hook {
	now := c.files.Get()
	if last := c.filed.Load(); last != nil && last.of == now {
		return last.all
	}
	f := &filed{of: now}
	for _, o := range now.Objects {
		for _, h := range c.compile(o) {
			h.id = "manifest/" + h.id // a stored configuration may have the same name
			f.all = append(f.all, h)
		}
	}
	c.filed.Store(f)
	return f.all
}

// compile compiles a stored configuration.
func (w *Webhooks) compile(p phase, o *store.Object) []*hook {
	// The other kind has the same fields, and fewer.
	c, err := registry.Decode[admissionregistrationv1.MutatingWebhookConfiguration](o)
	if err != nil {
		w.c.Log.Error("a webhook configuration cannot be read, and refuses all requests", "configuration", o.Key, "err", err)
		everything, _ := match.New(match.Source{})
		return []*hook{{phase: p, configuration: o.Key, name: o.Key, id: o.Key, criteria: everything, invalid: fmt.Errorf("the configuration %s cannot be read", o.Key)}}
	}
	all := make([]*hook, len(c.Webhooks))
	seen := map[string]int{}
	for i := range c.Webhooks {
		s := &c.Webhooks[i]
		h := w.compileOne(p, s)
		h.configuration, h.id = o.Key, fmt.Sprintf("%s/%s/%d", o.Key, s.Name, seen[s.Name])
		seen[s.Name]++
		all[i] = h
	}
	return all
}

func (w *Webhooks) compileOne(p phase, s *admissionregistrationv1.MutatingWebhook) *hook {
	h := &hook{
		phase: p, name: s.Name, timeout: 10 * time.Second, target: target(&s.ClientConfig),
		ignore:   s.FailurePolicy != nil && *s.FailurePolicy == admissionregistrationv1.Ignore,
		reinvoke: s.ReinvocationPolicy != nil && *s.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy,
	}
	if s.TimeoutSeconds != nil {
		h.timeout = time.Duration(*s.TimeoutSeconds) * time.Second
	}
	if s.SideEffects != nil {
		h.sideEffects = *s.SideEffects
	}
	for _, version := range s.AdmissionReviewVersions {
		if version == "v1" || version == "v1beta1" {
			h.version = version
			break
		}
	}
	if len(s.Rules) == 0 {
		return h
	}
	rules := make([]admissionregistrationv1.NamedRuleWithOperations, len(s.Rules))
	for i, r := range s.Rules {
		rules[i].RuleWithOperations = r
	}
	source := match.Source{Rules: rules, MatchPolicy: s.MatchPolicy, NamespaceSelector: s.NamespaceSelector, ObjectSelector: s.ObjectSelector}
	var err error
	if h.criteria, err = match.New(source); err != nil {
		w.c.Log.Error("a webhook has an invalid selector, and refuses the requests of its rules", "webhook", s.Name, "err", err)
	}
	owner := match.Owner{Kind: "webhook", Type: string(p), Name: s.Name, Ignore: h.ignore, Metrics: w.c.Conditions}
	h.conditions = match.NewConditions(owner, s.MatchConditions, expression.Variables{Authorizer: true})
	return h
}

// target returns the address of a webhook.
func target(c *admissionregistrationv1.WebhookClientConfig) remote.Target {
	t := remote.Target{CABundle: c.CABundle}
	switch {
	case c.Service != nil:
		t.Service = &remote.Service{Namespace: c.Service.Namespace, Name: c.Service.Name}
		if c.Service.Port != nil {
			t.Service.Port = *c.Service.Port
		}
		if c.Service.Path != nil {
			t.Service.Path = *c.Service.Path
		}
	case c.URL != nil:
		t.URL = *c.URL
	}
	return t
}

// connect returns the endpoint of a webhook. An error is not remembered: credentials may come from
// files.
func (w *Webhooks) connect(h *hook) (*remote.Endpoint, error) {
	if e := h.endpoint.Load(); e != nil {
		return e, nil
	}
	connections := w.c.Validating
	if h.phase == admit {
		connections = w.c.Mutating
	}
	e, err := connections.Endpoint(h.target, callsPerWebhook)
	if err != nil {
		return nil, err
	}
	if !h.endpoint.CompareAndSwap(nil, e) { // its calls count together
		e = h.endpoint.Load()
	}
	return e, nil
}
