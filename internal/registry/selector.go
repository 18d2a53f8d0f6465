package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/shard"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// selector selects objects of a collection. Requirements on names and namespaces become a key or a
// prefix of keys, so that a scan is short.
type selector struct {
	ctx    context.Context //nolint:containedctx // of the list or watch that selects: its fields may be those of a webhook's response
	typ    *resource.Type
	prefix string // of the keys that can match
	key    string // the only key that can match; empty: no such limit
	none   bool   // nothing can match

	shard  *shard.Selector // nil: all
	labels labels.Selector // nil: all
	fields []requirement   // in addition to prefix and key
	values bool            // some of fields are fields of the type
	bloom  bloom           // the bits that an object must have
	failed error           // the error of an object whose fields cannot be converted
}

// requirement is one term of a field selector.
type requirement struct {
	field int // index in typ.Display.Fields; nameField, namespaceField
	equal bool
	value string
}

const (
	nameField      = -1
	namespaceField = -2
)

// all reports whether every object with the prefix matches.
func (s *selector) all() bool {
	return s.labels == nil && len(s.fields) == 0 && s.key == "" && !s.none && s.shard == nil
}

// newSelector parses the selectors of a request.
func newSelector(ctx context.Context, t Target, o *metainternal.ListOptions) (*selector, error) {
	s := &selector{ctx: ctx, typ: t.Type}
	if t.Namespace != "" {
		s.prefix = t.Namespace + "/"
	}
	if o.LabelSelector != nil && !o.LabelSelector.Empty() {
		s.labels = o.LabelSelector
	}
	if t.Name != "" && o.FieldSelector != nil && !o.FieldSelector.Empty() {
		if name, ok := o.FieldSelector.RequiresExactMatch("metadata.name"); !ok || name != t.Name {
			return nil, apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
		}
	}
	if o.FieldSelector != nil {
		for _, r := range o.FieldSelector.Requirements() {
			if err := s.require(t, r); err != nil {
				return nil, err
			}
		}
	}
	s.narrow(t)
	s.bloom = s.requiredBloom()
	s.values = slices.ContainsFunc(s.fields, func(r requirement) bool { return r.field >= 0 })
	return s, nil
}

func (s *selector) require(t Target, r fields.Requirement) error {
	index, ok := fieldIndex(t.Type, r.Field)
	if !ok {
		return unknownField(t.Type, r.Field)
	}
	equal := r.Operator == selection.Equals || r.Operator == selection.DoubleEquals
	s.fields = append(s.fields, requirement{index, equal, r.Value})
	return nil
}

func fieldIndex(t *resource.Type, name string) (int, bool) {
	switch {
	case name == "metadata.name":
		return nameField, true
	case name == "metadata.namespace" && (t.Namespaced || t.Display.FieldError == ""):
		return namespaceField, true
	}
	for i := range t.Display.Fields {
		if t.Display.Fields[i].Name == name {
			return i, true
		}
	}
	return 0, false
}

func unknownField(t *resource.Type, name string) error {
	if t.Display.FieldError != "" {
		return apierrors.NewBadRequest(fmt.Sprintf(t.Display.FieldError, name))
	}
	return apierrors.NewBadRequest(fmt.Sprintf(`%q is not a known field selector: only "metadata.name", "metadata.namespace"`, name))
}

// narrow turns requirements on name and namespace into a key or a prefix.
func (s *selector) narrow(t Target) {
	namespace, name := t.Namespace, t.Name // a name: a watch of a single object
	rest := s.fields[:0]
	for _, r := range s.fields {
		switch {
		case r.field == nameField && r.equal && (name == "" || name == r.value):
			name = r.value
			s.none = s.none || name == ""
		case r.field == namespaceField && r.equal && t.Type.Namespaced && (namespace == "" || namespace == r.value):
			namespace = r.value
			s.none = s.none || namespace == ""
		case (r.field == nameField || r.field == namespaceField && t.Type.Namespaced) && r.equal:
			s.none = true
		default:
			rest = append(rest, r)
		}
	}
	s.fields = rest
	switch {
	case strings.ContainsAny(name+namespace, "/\x00"):
		s.none = true // keys cannot contain these
	case !t.Type.Namespaced:
		s.key = name
	case namespace != "":
		if s.prefix = namespace + "/"; name != "" {
			s.key = s.prefix + name
		}
	case name != "":
		s.fields = append(s.fields, requirement{nameField, true, name})
	}
}

// watchPrefix returns the prefix of the keys whose changes a watch needs.
func (s *selector) watchPrefix() string {
	if s.key != "" {
		return s.key
	}
	return s.prefix
}

// matches reports whether an object is selected; nil is not. An object whose fields cannot be
// converted counts as selected, and failed has the error: showing it fails as well.
func (s *selector) matches(o *store.Object) bool {
	if o == nil || s.none || !s.bloom.allows(bloom(o.Digest())) { // first, since it is fast
		return false
	}
	if s.key != "" && o.Key != s.key || !strings.HasPrefix(o.Key, s.prefix) {
		return false
	}
	if s.shard != nil && !s.inShard(o) {
		return false
	}
	if s.labels == nil && len(s.fields) == 0 {
		return true
	}
	a, err := selectableOf(s.ctx, s.typ, o, s.values)
	if err != nil {
		s.failed = err
		return true
	}
	for _, r := range s.fields {
		if (a.field(r.field, o.Key) == r.value) != r.equal {
			return false
		}
	}
	return s.labels == nil || s.labels.Matches(a.labels)
}

// limitTo limits the selector to a shard; an empty text does not.
func (s *selector) limitTo(text string) (err error) {
	if text == "" {
		return nil
	}
	if s.shard, err = shard.Parse(text); err != nil {
		return apierrors.NewBadRequest("invalid shard selector: " + err.Error())
	}
	return nil
}

// inShard reports whether an object is in the shard. Neither its UID nor its namespace ever changes.
func (s *selector) inShard(o *store.Object) bool {
	if !s.shard.ByNamespace() {
		return s.shard.Has(textAt(o.Bytes(), "metadata", "uid"))
	}
	namespace, _, ok := strings.Cut(o.Key, "/")
	if !ok {
		namespace = ""
	}
	return s.shard.Has(namespace)
}

// selectable is the part of an object that selectors match. It is cached with the version of the
// object.
type selectable struct {
	typ    *resource.Type
	labels labels.Set
	values []string // by index in typ.Display.Fields
}

func (a *selectable) field(index int, key string) string {
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		namespace, name = "", key
	}
	switch index {
	case nameField:
		return name
	case namespaceField:
		return namespace
	}
	return a.values[index]
}

// fieldsNeedConversion reports whether the fields of a type are not those of the stored bytes.
// Objects of a custom kind are selected by their converted and defaulted form.
func fieldsNeedConversion(t *resource.Type) bool {
	return t.ConvertsPerRequest() && len(t.Display.Fields) > 0
}

// selectableOf returns the part of an object that selectors match, from the object's cache if that
// is of the same type. If fields is false, fields that need a conversion are left out.
func selectableOf(ctx context.Context, t *resource.Type, o *store.Object, fields bool) (*selectable, error) {
	shown := fieldsNeedConversion(t)
	if a, ok := o.Memo().(*selectable); ok && a.typ == t && (!fields || !shown || a.values != nil) {
		return a, nil
	}
	a, object := &selectable{typ: t}, o.Bytes()
	eachMember(member(member(object, "metadata"), "labels"), func(key, value []byte) bool {
		if a.labels == nil {
			a.labels = labels.Set{}
		}
		a.labels[unquote(key)] = text(value)
		return true
	})
	if shown && fields {
		var err error
		if object, err = wire.As(ctx, t, object); err != nil {
			return nil, err
		}
	}
	if len(t.Display.Fields) > 0 && (fields || !shown) {
		a.values = make([]string, len(t.Display.Fields))
		for i := range t.Display.Fields {
			a.values[i] = fieldValue(&t.Display.Fields[i], object)
		}
	}
	o.SetMemo(a)
	o.SetDigest(uint64(a.bloom()))
	return a, nil
}

// fieldValue returns the first value of a field's paths that is not empty.
func fieldValue(f *resource.Field, object []byte) string {
	if f.Paths == nil {
		if v := textAt(object, strings.Split(f.Name, ".")...); v != "" {
			return v
		}
	}
	for _, path := range f.Paths {
		if v := textAt(object, path...); v != "" {
			return v
		}
	}
	return f.Default
}

// bloom returns the filter of an object.
func (a *selectable) bloom() bloom {
	d := bloomOf(a.typ)
	for name, value := range a.labels {
		d |= d.bits(name, value)
	}
	if filtersFields(a.typ) {
		for i, value := range a.values {
			d |= d.bits("\x00"+a.typ.Display.Fields[i].Name, value)
		}
	}
	return d
}

// requiredBloom returns the bits that a matching object must have: those of all values that the
// selector requires. Zero means that it requires none.
func (s *selector) requiredBloom() bloom {
	var all bloom
	if s.labels != nil {
		requirements, _ := s.labels.Requirements()
		for _, r := range requirements {
			switch r.Operator() {
			case selection.Equals, selection.DoubleEquals, selection.In:
				if values := r.ValuesUnsorted(); len(values) == 1 {
					all |= all.bits(r.Key(), values[0])
				}
			}
		}
	}
	for _, r := range s.fields {
		if r.equal && r.field >= 0 && filtersFields(s.typ) {
			all |= all.bits("\x00"+s.typ.Display.Fields[r.field].Name, r.value)
		}
	}
	if all == 0 {
		return 0
	}
	return all | bloomOf(s.typ)
}
