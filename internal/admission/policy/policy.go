// Package policy has the common part of validating and mutating admission policies. It finds the stored
// policies and bindings that apply to a request, and their params. Policies of files come before the
// stored ones.
//
// Policies are derived from the state of a request, so a policy, a binding, a param or a definition
// of params is in effect with the next request. A policy is compiled when a request first matches
// it.
package policy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/admission/manifest"
	"github.com/tidemark-dev/tidemark/internal/admission/match"
	"github.com/tidemark-dev/tidemark/internal/derived"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Definition has the fields that policies of both kinds have.
type Definition struct {
	Name        string
	ParamKind   *admissionregistrationv1.ParamKind // nil: the policy has no params
	Constraints *admissionregistrationv1.MatchResources
	// Ignore is the failure policy: errors admit the request.
	Ignore bool
}

// Binding is a stored binding. It is immutable, and safe for concurrent use.
type Binding struct {
	// Name is the name of the binding, Policy the name of its policy.
	Name, Policy string
	Params       *admissionregistrationv1.ParamRef // nil: params is null
	// Resources narrow the requests that the policy matches; nil: they do not.
	Resources *admissionregistrationv1.MatchResources
	// Actions are those of a validating policy.
	Actions []admissionregistrationv1.ValidationAction

	criteria *match.Criteria // nil: all requests
	selected *selection      // nil: params are not selected by labels
	invalid  error           // of a binding that cannot be read
}

// Policy is a stored policy that has bindings. It is immutable, and safe for concurrent use.
type Policy[C any] struct {
	Definition
	Bindings []*Binding // by name; at least one

	*compiledPolicy[C]
}

// compiledPolicy is the part of a policy that does not depend on its bindings.
type compiledPolicy[C any] struct {
	// Compiled returns the policy's expressions, which the first call compiles.
	Compiled func() C

	object    *store.Object
	criteria  *match.Criteria
	paramKind schema.GroupVersionKind
	params    atomic.Pointer[resolved]
	invalid   error // of a policy that cannot be read
}

// Kind is the kind of the policies of a plugin.
type Kind[C any] struct {
	// Policies and Bindings are the collections.
	Policies, Bindings string
	// Policy reads a policy. Compile compiles it; it is called once.
	Policy func(o *store.Object) (d Definition, compile func() C, err error)
	// Binding reads a binding.
	Binding func(o *store.Object) (*Binding, error)
	// Catalog has the kinds of params.
	Catalog func() *resource.Catalog
	// Files has policies and bindings of files; nil: there are none.
	Files *manifest.Directory
}

// Policies are the stored policies of a kind. Create them with New. They are safe for concurrent use.
type Policies[C any] struct {
	kind  Kind[C]
	value *derived.Value[*set[C]]
	// policies and bindings are those that the last set was made of. Only derived.Value calls
	// build, one call at a time.
	policies map[string]*decoded[*Policy[C]]
	bindings map[string]*decoded[*Binding]
	values   paramValues
	// files are the policies of the last manifest.Set; nil: none was seen yet.
	files atomic.Pointer[filed[C]]
}

// filed are the policies of files.
type filed[C any] struct {
	of *manifest.Set
	*set[C]
}

type decoded[T any] struct {
	object *store.Object
	value  T
}

// New returns the policies of a kind.
func New[C any](k Kind[C]) *Policies[C] {
	p := &Policies[C]{kind: k}
	p.value = derived.New(p.build, k.Policies, k.Bindings)
	return p
}

// set is the policies of a state, or those of files.
type set[C any] struct {
	all []*Policy[C] // by name
	// inFiles: they apply to stored policies, too, because they do not depend on them.
	inFiles bool
	// candidates are the policies whose rules may match a target, for targets seen so far.
	candidates atomic.Pointer[map[targetKey][]*Policy[C]]
	mu         sync.Mutex // held to replace candidates
}

type targetKey struct {
	id          uint64 // resource.Type.ID
	subresource string
	operation   registry.Operation
}

// maxCandidates bounds the targets that a set remembers.
const maxCandidates = 4096

// build makes the policies of a state. It reads only objects that changed.
func (p *Policies[C]) build(now []store.Snapshot) *set[C] {
	p.bindings = refresh(p.bindings, now[1].Scan("", ""), p.readBinding)
	p.policies = refresh(p.policies, now[0].Scan("", ""), p.readPolicy)
	return join(p.policies, p.bindings)
}

// inFiles returns the policies of files.
func (p *Policies[C]) inFiles() *set[C] {
	now := p.kind.Files.Get()
	if last := p.files.Load(); last != nil && last.of == now {
		return last.set
	}
	s := join(refresh(nil, slices.Values(now.Objects), p.readPolicy), refresh(nil, slices.Values(now.Bindings), p.readBinding))
	s.inFiles = true
	p.files.Store(&filed[C]{now, s})
	return s
}

// join makes a set of policies and bindings.
func join[C any](policies map[string]*decoded[*Policy[C]], bindings map[string]*decoded[*Binding]) *set[C] {
	of := map[string][]*Binding{}
	s := &set[C]{}
	for _, d := range bindings {
		if d.value.invalid != nil { // its policy is not known
			s.all = append(s.all, invalid[C](d.value.Name, d.value.invalid))
			continue
		}
		of[d.value.Policy] = append(of[d.value.Policy], d.value)
	}
	for name, d := range policies {
		bindings := of[name]
		if len(bindings) == 0 {
			continue
		}
		slices.SortFunc(bindings, func(a, b *Binding) int { return strings.Compare(a.Name, b.Name) })
		s.all = append(s.all, &Policy[C]{Definition: d.value.Definition, Bindings: bindings, compiledPolicy: d.value.compiledPolicy})
	}
	slices.SortFunc(s.all, func(a, b *Policy[C]) int { return strings.Compare(a.Name, b.Name) })
	s.candidates.Store(&map[targetKey][]*Policy[C]{})
	return s
}

// refresh returns the values of objects, by key. It reads those that changed.
func refresh[T any](last map[string]*decoded[T], now iter.Seq[*store.Object], read func(o *store.Object) T) map[string]*decoded[T] {
	next := make(map[string]*decoded[T], len(last))
	for o := range now {
		if d := last[o.Key]; d != nil && d.object == o {
			next[o.Key] = d
			continue
		}
		next[o.Key] = &decoded[T]{o, read(o)}
	}
	return next
}

// invalid returns a policy that refuses all requests.
func invalid[C any](name string, err error) *Policy[C] {
	return &Policy[C]{Definition: Definition{Name: name}, compiledPolicy: &compiledPolicy[C]{invalid: err, Compiled: func() (none C) { return none }}}
}

// readPolicy reads a policy. One that cannot be read refuses all requests.
func (p *Policies[C]) readPolicy(o *store.Object) *Policy[C] {
	d, compile, err := p.kind.Policy(o)
	if err != nil {
		return invalid[C](o.Key, err)
	}
	c := &compiledPolicy[C]{object: o, Compiled: sync.OnceValue(compile)}
	if d.Constraints == nil {
		c.invalid = errors.New("policy contained no match constraints, a required field")
	} else {
		c.criteria = criteria(d.Constraints)
	}
	if d.ParamKind != nil {
		gv, err := schema.ParseGroupVersion(d.ParamKind.APIVersion)
		if err != nil {
			c.invalid = fmt.Errorf("failed to parse paramKind APIVersion: %w", err)
		}
		c.paramKind = gv.WithKind(d.ParamKind.Kind)
	}
	return &Policy[C]{Definition: d, compiledPolicy: c}
}

// readBinding reads a binding. An unreadable one rejects all requests: its policy may deny them.
func (p *Policies[C]) readBinding(o *store.Object) *Binding {
	b, err := p.kind.Binding(o)
	if err != nil {
		return &Binding{Name: o.Key, invalid: fmt.Errorf("the binding %s cannot be read: %w", o.Key, err)}
	}
	if b.Resources != nil {
		b.criteria = criteria(b.Resources)
	}
	if b.Params != nil && b.Params.Selector != nil {
		b.selected = newSelection(b.Params.Selector)
	}
	return b
}

// criteria compiles match resources. Match returns the error of invalid ones.
func criteria(r *admissionregistrationv1.MatchResources) *match.Criteria {
	c, _ := match.New(match.Source{
		Rules: r.ResourceRules, ExcludeRules: r.ExcludeResourceRules, MatchPolicy: r.MatchPolicy,
		NamespaceSelector: r.NamespaceSelector, ObjectSelector: r.ObjectSelector,
	})
	return c
}

// exempt are the policies themselves, which no stored policy applies to, so that a broken one can be removed.
var exempt = map[schema.GroupResource]bool{
	{Group: admissionregistrationv1.GroupName, Resource: "validatingadmissionpolicies"}:       true,
	{Group: admissionregistrationv1.GroupName, Resource: "validatingadmissionpolicybindings"}: true,
	{Group: admissionregistrationv1.GroupName, Resource: "mutatingadmissionpolicies"}:         true,
	{Group: admissionregistrationv1.GroupName, Resource: "mutatingadmissionpolicybindings"}:   true,
}

// Handles reports whether the rules of any policy may match an operation on a target. It is for
// registry.Plugin.
func (p *Policies[C]) Handles(s *store.State, t registry.Target, o registry.Operation) bool {
	return p.inFiles().handles(t, o) || p.value.At(s).handles(t, o)
}

func (s *set[C]) handles(t registry.Target, o registry.Operation) bool {
	return len(s.all) > 0 && len(s.of(t, o)) > 0
}

// of returns the policies whose rules may match.
func (s *set[C]) of(t registry.Target, o registry.Operation) []*Policy[C] {
	key := targetKey{t.Type.ID, t.Subresource, o}
	known := *s.candidates.Load()
	if found, ok := known[key]; ok {
		return found
	}
	var found []*Policy[C]
	if (s.inFiles || !exempt[t.Type.GroupResource()]) && !match.IsReview(t) {
		for _, p := range s.all {
			if p.criteria == nil || p.criteria.MayMatch(t, o) {
				found = append(found, p)
			}
		}
	}
	if t.Type.ID != 0 && len(known) < maxCandidates {
		s.remember(key, found)
	}
	return found
}

func (s *set[C]) remember(key targetKey, found []*Policy[C]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := *s.candidates.Load()
	next := make(map[targetKey][]*Policy[C], len(known)+1)
	for k, v := range known {
		next[k] = v
	}
	next[key] = found
	s.candidates.Store(&next)
}

// Invocation is a policy that applies to a request, for one binding and one param.
type Invocation[C any] struct {
	Policy *Policy[C]
	// Binding is nil with an error of the policy itself.
	Binding *Binding
	// Form is the form of the request that the rules of the policy name.
	Form registry.Form
	// Param is the variable params; nil: null.
	Param *Param
}

// Each yields the policies that apply to a request, those of files first, by the names of policies and bindings. With an
// error, the policy or the binding cannot be applied, and the failure policy decides. The text of the
// error is for the client.
func (p *Policies[C]) Each(ctx context.Context, a *registry.Attributes) iter.Seq2[Invocation[C], error] {
	return func(yield func(Invocation[C], error) bool) {
		for _, s := range []*set[C]{p.inFiles(), p.value.At(a.State)} {
			for _, one := range s.of(a.Target, a.Operation) {
				if !p.each(ctx, a, one, yield) {
					return
				}
			}
		}
	}
}

// each yields the invocations of a policy, and reports whether to continue.
func (p *Policies[C]) each(ctx context.Context, a *registry.Attributes, of *Policy[C], yield func(Invocation[C], error) bool) bool {
	i := Invocation[C]{Policy: of}
	kind, err := p.apply(ctx, a, &i)
	switch {
	case err != nil:
		return yield(i, fmt.Errorf("failed to configure policy: %w", err))
	case i.Form == registry.Form{}:
		return true
	}
	for _, i.Binding = range of.Bindings {
		if ok, err := i.Binding.matches(ctx, a); err != nil {
			if !yield(i, failedBinding(err)) {
				return false
			}
			continue
		} else if !ok {
			continue
		}
		if of.ParamKind == nil || i.Binding.Params == nil {
			if !yield(i, nil) {
				return false
			}
			continue
		}
		params, err := p.paramsOf(a, kind, i.Binding)
		if err != nil && !yield(i, failedBinding(err)) {
			return false
		}
		for _, i.Param = range params {
			if !yield(i, nil) {
				return false
			}
		}
		i.Param = nil
	}
	return true
}

func failedBinding(err error) error { return fmt.Errorf("failed to configure binding: %w", err) }

// apply sets the form of an invocation if the policy matches the request. It returns the kind of
// the params, nil if there are none.
func (p *Policies[C]) apply(ctx context.Context, a *registry.Attributes, i *Invocation[C]) (*resource.Type, error) {
	of := i.Policy
	if of.criteria != nil {
		form, ok, err := of.criteria.Match(ctx, a)
		if err != nil || !ok {
			return nil, err
		}
		i.Form = form
	}
	if of.invalid != nil {
		return nil, of.invalid
	}
	if of.ParamKind == nil {
		return nil, nil
	}
	kind := of.resolve(p.kind.Catalog())
	if kind == nil {
		return nil, fmt.Errorf("failed to find resource referenced by paramKind: '%v'", of.paramKind)
	}
	return kind, nil
}

func (b *Binding) matches(ctx context.Context, a *registry.Attributes) (bool, error) {
	if b.criteria == nil {
		return true, nil
	}
	_, ok, err := b.criteria.Match(ctx, a)
	return ok, err
}
