package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/tidemark-dev/tidemark/internal/admission/match"
	"github.com/tidemark-dev/tidemark/internal/derived"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// resolved is the kind of a policy's params in a catalog, nil if it is not served.
type resolved struct {
	catalog *resource.Catalog
	kind    *resource.Type
}

// resolve returns the kind of the params, nil if it is not served.
func (p *compiledPolicy[C]) resolve(c *resource.Catalog) *resource.Type {
	if r := p.params.Load(); r != nil && r.catalog == c {
		return r.kind
	}
	r := &resolved{catalog: c}
	if v := c.Lists(p.paramKind.Group, p.paramKind.Version); v != nil {
		for _, t := range v.Types {
			if t.Kind == p.paramKind.Kind && t.Collection != "" {
				r.kind = t
				break
			}
		}
	}
	p.params.Store(r)
	return r.kind
}

// Param is an object that a binding passes to its policy. Nil is none.
type Param struct {
	Key    string // namespace/name, or the name
	kind   *resource.Type
	object *store.Object
	values *paramValues
}

// Value returns the object in the version that the policy names; nil for none. It must not be changed. The
// error is for the client. Read each value when it is needed, since they may be many and large.
func (p *Param) Value(ctx context.Context) (any, error) {
	if p == nil {
		return nil, nil
	}
	value, err := p.values.of(ctx, p.kind, p.object)
	if err != nil {
		return nil, failedBinding(err)
	}
	return value, nil
}

// paramsOf returns a binding's params in the version of kind. The error is for the client.
func (p *Policies[C]) paramsOf(a *registry.Attributes, kind *resource.Type, b *Binding) ([]*Param, error) {
	prefix, err := paramsNamespace(a, kind, b.Params)
	if err != nil {
		return nil, err
	}
	var found []*store.Object
	switch {
	case b.Params.Name != "" && b.selected != nil:
		return nil, errors.New("paramRef.name and paramRef.selector are mutually exclusive")
	case b.Params.Name != "":
		if o := a.State.Get(kind.Collection, prefix+b.Params.Name); o != nil {
			found = append(found, o)
		}
	case b.selected != nil:
		if found, err = b.selected.at(a.State, kind.Collection, prefix); err != nil {
			return nil, err
		}
	default:
		return nil, errors.New("one of name or selector must be provided")
	}
	if action := b.Params.ParameterNotFoundAction; len(found) == 0 && action != nil && *action == admissionregistrationv1.DenyAction {
		return nil, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	params := make([]*Param, len(found))
	for i, o := range found {
		params[i] = &Param{o.Key, kind, o, &p.values}
	}
	return params, nil
}

// paramsNamespace returns the prefix of the keys of params: the namespace of the reference, or else
// that of the request; empty for a kind without namespaces.
func paramsNamespace(a *registry.Attributes, kind *resource.Type, ref *admissionregistrationv1.ParamRef) (string, error) {
	switch {
	case !kind.Namespaced && ref.Namespace != "":
		return "", errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	case !kind.Namespaced:
		return "", nil
	case ref.Namespace != "":
		return ref.Namespace + "/", nil
	case match.Namespace(a) == "":
		return "", errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
	}
	return match.Namespace(a) + "/", nil
}

// selection is the objects of a collection that a selector selects. After a change of the
// collection, only the changed objects are selected again.
type selection struct {
	selector labels.Selector
	err      error

	mu         sync.Mutex // guards the fields below
	collection string
	objects    *derived.Value[[]*store.Object]
}

func newSelection(s *metav1.LabelSelector) *selection {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return &selection{selector: selector, err: err}
}

// at returns the selected objects whose keys have the prefix, by key.
func (s *selection) at(state *store.State, collection, prefix string) ([]*store.Object, error) {
	if s.err != nil {
		return nil, s.err
	}
	s.mu.Lock()
	if s.collection != collection {
		s.collection, s.objects = collection, derived.NewIncremental(nil, s.update, collection)
	}
	objects := s.objects
	s.mu.Unlock()
	all := objects.At(state)
	if prefix == "" {
		return all, nil
	}
	first, _ := slices.BinarySearchFunc(all, prefix, func(o *store.Object, prefix string) int { return strings.Compare(o.Key, prefix) })
	last := first
	for last < len(all) && strings.HasPrefix(all[last].Key, prefix) {
		last++
	}
	return all[first:last], nil
}

// update returns the selected objects after changes.
func (s *selection) update(last []*store.Object, then, now store.Snapshot) []*store.Object {
	changed := map[string]*store.Object{} // nil: no longer selected
	for before, after := range now.Since(then) {
		switch {
		case after != nil && s.selects(after):
			changed[after.Key] = after
		case before != nil:
			changed[before.Key] = nil
		}
	}
	next := make([]*store.Object, 0, len(last))
	for _, o := range last {
		after, ok := changed[o.Key]
		switch {
		case !ok:
			next = append(next, o)
		case after != nil:
			next = append(next, after)
		}
		delete(changed, o.Key)
	}
	for _, o := range changed {
		if o != nil {
			next = append(next, o)
		}
	}
	slices.SortFunc(next, func(a, b *store.Object) int { return strings.Compare(a.Key, b.Key) })
	return next
}

// selects reports whether the labels of an object match.
func (s *selection) selects(o *store.Object) bool {
	var head struct {
		Metadata struct {
			Labels labels.Set `json:"labels"`
		} `json:"metadata"`
	}
	return json.Unmarshal(o.Bytes(), &head) == nil && s.selector.Matches(head.Metadata.Labels)
}

const (
	// maxParamValues bounds the values of params that are remembered, and maxParamBytes their memory.
	maxParamValues = 512
	maxParamBytes  = 32 << 20
)

// paramValues remembers the values of params. It is safe for concurrent use.
type paramValues struct {
	slots [maxParamValues]atomic.Pointer[paramValue]
	bytes atomic.Int64 // of all
}

type paramValue struct {
	object *store.Object
	kind   uint64 // resource.Type.ID
	value  map[string]any
	bytes  int64
}

var paramSeed = maphash.MakeSeed()

// of returns a stored object as a value in the version of kind. It must not be changed.
func (v *paramValues) of(ctx context.Context, kind *resource.Type, o *store.Object) (any, error) {
	slot := &v.slots[maphash.String(paramSeed, o.Key)%maxParamValues]
	if p := slot.Load(); p != nil && p.object == o && p.kind == kind.ID {
		return p.value, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	shown, err := registry.Target{Type: kind}.Show(ctx, o, resource.ForRead)
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", kind.Collection, o.Key, err)
	}
	p := &paramValue{object: o, kind: kind.ID, bytes: decodedBytes(shown)}
	if err := utiljson.Unmarshal(shown, &p.value); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", kind.Collection, o.Key, err)
	}
	v.keep(slot, p)
	return p.value, nil
}

// keep remembers a value, unless it is large. It forgets all if they take too much memory.
func (v *paramValues) keep(slot *atomic.Pointer[paramValue], p *paramValue) {
	if p.bytes > maxParamBytes/8 {
		return
	}
	added := p.bytes
	if old := slot.Swap(p); old != nil {
		added -= old.bytes
	}
	if v.bytes.Add(added) <= maxParamBytes {
		return
	}
	for i := range v.slots {
		if old := v.slots[i].Swap(nil); old != nil {
			v.bytes.Add(-old.bytes)
		}
	}
}

// decodedBytes estimates the memory of a JSON value when it is decoded.
func decodedBytes(text []byte) int64 {
	const object, other = 300, 48
	return int64(len(text) + object*bytes.Count(text, []byte("{")) + other*(bytes.Count(text, []byte(","))+bytes.Count(text, []byte("["))))
}
