package registry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Form is a version in which a client can send a request: its resource, and the kind of its body.
type Form struct {
	Resource schema.GroupVersionResource
	Kind     schema.GroupVersionKind
}

// Forms returns the form of the target, and then its equivalent forms: those of the other versions
// of the resource that have the subresource, too. Events of the two groups are equivalent.
func (t Target) Forms() []Form {
	own := formOf(t.Type, t.Subresource)
	if len(t.Type.Versions) < 2 {
		return []Form{own}
	}
	all := make([]Form, 1, len(t.Type.Versions))
	all[0] = own
	for _, v := range t.Type.Versions {
		if v != t.Type && (t.Subresource == "" || v.Subresource(t.Subresource) != nil) {
			all = append(all, formOf(v, t.Subresource))
		}
	}
	return all
}

func formOf(t *resource.Type, subresource string) Form {
	f := Form{t.GroupVersion().WithResource(t.Resource), t.GroupVersionKind()}
	switch s := t.Subresource(subresource); {
	case s == nil:
	case s.Exchange != nil:
		f.Kind = s.Exchange.GroupVersionKind()
	case s.Options != nil:
		f.Kind = s.Kind
		if f.Kind.Version == "" {
			f.Kind.Group, f.Kind.Version = t.Group, t.Version
		}
	}
	return f
}

// Versioned is the view of webhooks and policies of a request in one form. It is read-only.
type Versioned struct {
	Form
	// Object and Old are whole objects with their managed fields, or the bodies of a subresource:
	// a Scale, an Eviction, the options of a connection. They are nil if the request has none. An
	// object of the mutating phase is as the client sent it, with defaults.
	Object, Old runtime.Object

	objectTree, oldTree map[string]any
	objectJSON, oldJSON []byte
	// pending adds the managed fields to Object; nil: they are there.
	pending func() error
	// managed returns the managed fields that pending adds, as JSON. JSON inserts these bytes, so they
	// are not decoded and encoded again. Nil: there are none, or a plugin has replaced them.
	managed func() ([]byte, error)
	// bare returns Object as JSON without managed fields.
	bare func() ([]byte, error)
}

// Complete adds the managed fields to an Object of Lean.
func (v *Versioned) Complete() error {
	if v.pending == nil {
		return nil
	}
	add := v.pending
	v.pending = nil
	return add()
}

// Trees returns the objects as unstructured content, nil for none. It is computed once, and must
// not be changed.
func (v *Versioned) Trees() (object, old map[string]any, err error) {
	if err := treeOf(v.Object, &v.objectTree); err != nil {
		return nil, nil, err
	}
	if err := treeOf(v.Old, &v.oldTree); err != nil {
		return nil, nil, err
	}
	return v.objectTree, v.oldTree, nil
}

func treeOf(o runtime.Object, tree *map[string]any) (err error) {
	if *tree != nil || o == nil {
		return nil
	}
	if u, ok := o.(interface{ Tree() map[string]any }); ok {
		*tree = u.Tree()
		return nil
	}
	*tree, err = runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	return err
}

// JSON returns the objects as JSON with kind, apiVersion and managed fields, nil for none. It is
// computed once, and must not be changed.
func (v *Versioned) JSON() (object, old []byte, err error) {
	if v.objectJSON == nil && v.Object != nil {
		if v.objectJSON, err = v.encodeObject(); err != nil {
			return nil, nil, err
		}
	}
	if v.oldJSON == nil && v.Old != nil {
		if v.oldJSON, err = json.Marshal(v.Old); err != nil {
			return nil, nil, err
		}
	}
	return v.objectJSON, v.oldJSON, nil
}

// encodeObject returns Object as JSON with its managed fields.
func (v *Versioned) encodeObject() ([]byte, error) {
	if v.pending == nil || v.managed == nil {
		if err := v.Complete(); err != nil {
			return nil, err
		}
		return json.Marshal(v.Object)
	}
	managed, err := v.managed()
	if err != nil {
		return nil, err
	}
	object, err := v.bare()
	if err != nil || len(managed) == 0 {
		return object, err
	}
	if at := managedAt(object); at > 0 {
		return insertManaged(object, at, managed), nil
	}
	if err := v.Complete(); err != nil {
		return nil, err
	}
	return json.Marshal(v.Object)
}

// versions are the forms of a request's objects that were made for plugins.
type versions struct {
	made []*Versioned
	// past has the Old of each form that was made before the object changed. It is still right.
	past []*Versioned
	// dirty is the form in which a plugin has replaced the object. Attributes.Object does not
	// have the change yet.
	dirty *Versioned
}

// changed forgets the forms of the object: a plugin or the request may have changed it.
func (v *versions) changed() {
	for _, m := range v.made {
		old := &Versioned{Form: m.Form, Old: m.Old, oldTree: m.oldTree, oldJSON: m.oldJSON} // without the object: policies can change it a thousand times
		if i := slices.IndexFunc(v.past, func(p *Versioned) bool { return p.Kind == m.Kind }); i >= 0 {
			v.past[i] = old
		} else {
			v.past = append(v.past, old)
		}
	}
	clear(v.made)
	v.made = v.made[:0]
}

// In returns the view of webhooks and policies of the request in a form, which is one of Forms. It
// is cached until the object changes. A conversion webhook of the kind may convert the object. In
// must not be called concurrently.
func (a *Attributes) In(ctx context.Context, f Form) (*Versioned, error) {
	v, err := a.Lean(ctx, f)
	if err != nil {
		return nil, err
	}
	return v, v.Complete()
}

// Lean is In without the managed fields of the object, until Complete adds them. They take longer to
// make than the rest, and few expressions look at them.
func (a *Attributes) Lean(ctx context.Context, f Form) (*Versioned, error) {
	for _, v := range a.versions.made {
		if v.Kind == f.Kind {
			return v, nil
		}
	}
	if err := a.settle(ctx); err != nil {
		return nil, err
	}
	v, err := &Versioned{Form: f}, error(nil)
	scaled := a.exchanges() && !a.w.virtual // its managed fields are shown to mutating plugins alone
	if i := slices.IndexFunc(a.versions.past, func(p *Versioned) bool { return p.Kind == f.Kind }); i >= 0 && !scaled {
		p := a.versions.past[i]
		v.Old, v.oldTree, v.oldJSON = p.Old, p.oldTree, p.oldJSON
	} else if !isNil(a.Old) {
		if v.Old, err = a.shown(ctx, f, a.Old); err != nil {
			return nil, err
		}
		if scaled && a.mutating {
			live, err := a.toScale(a.w.owners.managedOf(a.before.stored))
			if err != nil {
				return nil, err
			}
			v.Old.(metav1.Object).SetManagedFields(live)
		}
	}
	if err = a.addObject(ctx, v); err != nil {
		return nil, err
	}
	a.versions.made = append(a.versions.made, v)
	return v, nil
}

func isNil(o runtime.Object) bool { return o == nil || reflect.ValueOf(o).IsNil() }

// addObject adds the object of the request to a form, and its managed fields as pending.
func (a *Attributes) addObject(ctx context.Context, v *Versioned) (err error) {
	switch {
	case isNil(a.Object):
		return nil
	case a.mutating && a.body != nil:
		v.Object = withKind(shallow(a.body), v.Kind)
	default:
		if v.Object, err = a.shown(ctx, v.Form, a.Object); err != nil {
			return err
		}
	}
	meta, ok := v.Object.(metav1.Object)
	if !ok || a.Operation == admissionv1.Connect || a.exchanges() && !a.w.virtual && !a.mutating {
		return nil
	}
	if v.Object == a.Object {
		v.Object = shallow(v.Object)
		meta = v.Object.(metav1.Object)
	}
	v.pending = func() error {
		managed, err := a.shownManagedFields(ctx)
		if err == nil {
			meta.SetManagedFields(managed)
		}
		return err
	}
	if a.managedShown || a.replicas() != nil {
		return nil
	}
	v.managed = func() ([]byte, error) { return a.trackEarly(ctx) }
	final := a.final(v.Form)
	v.bare = func() ([]byte, error) {
		// The stored encoding lacks empty fields that JSON of the object has.
		if final && !wire.HasEmpty(a.Object) {
			return a.encodeFinal()
		}
		return json.Marshal(v.Object)
	}
	return nil
}

// final reports whether a form of the object is the one that will be stored: nothing changes it after
// the mutating phase.
func (a *Attributes) final(f Form) bool {
	return !a.mutating && !a.w.virtual && !a.exchanges() && a.Type.Conversion == nil && f.Kind == a.Type.GroupVersionKind()
}

// encodeFinal returns the object to store as JSON without managed fields. The request stores the same
// encoding.
func (a *Attributes) encodeFinal() ([]byte, error) {
	meta := a.Object.(metav1.Object)
	version := meta.GetResourceVersion()
	e, err := a.w.encode(context.Background(), a.Object)
	meta.SetResourceVersion(version)
	if err != nil {
		return nil, err
	}
	a.w.final, a.w.finalOf = e, a.Object
	if version == "" {
		return withoutRevision(e), nil
	}
	return slices.Concat(e.Bytes[:e.RevisionAt], []byte(version), e.Bytes[e.RevisionAt:]), nil
}

// shownManagedFields returns the managed fields that plugins see, which one of them may have replaced.
func (a *Attributes) shownManagedFields(ctx context.Context) (_ []metav1.ManagedFieldsEntry, err error) {
	if !a.managedShown {
		if a.managed, err = a.managedFields(ctx); err != nil {
			return nil, err
		}
		a.managedShown = true
	}
	return a.managed, nil
}

// shown returns an object of the request in a form. It may be the object itself, or share memory
// with it.
func (a *Attributes) shown(ctx context.Context, f Form, o runtime.Object) (runtime.Object, error) {
	switch {
	case a.w.virtual || a.Operation == admissionv1.Connect:
		return withKind(o, f.Kind), nil
	case a.exchanges():
		made, err := a.subresource().View(o.DeepCopyObject(), resource.ForWrite)
		if err != nil {
			return nil, err
		}
		return withKind(made, f.Kind), nil
	}
	return a.convert(ctx, f, o)
}

// convert converts a whole object from the version of the strategy to that of a form.
func (a *Attributes) convert(ctx context.Context, f Form, o runtime.Object) (runtime.Object, error) {
	if a.stored().GroupVersionKind() == f.Kind {
		return withKind(o, f.Kind), nil
	}
	to := a.typeOf(f)
	if to == nil {
		return nil, fmt.Errorf("%s is no version of %s", f.Kind, a.Type.GroupResource())
	}
	o, err := convertObject(ctx, a.stored(), to, o.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	return withKind(o, f.Kind), nil
}

// convertObject converts an object, which it may change, between versions of a kind. The
// conversions of custom kinds take an object of any version.
func convertObject(ctx context.Context, from, to *resource.Type, o runtime.Object) (_ runtime.Object, err error) {
	if from.Custom != nil && to.Conversion != nil {
		return to.Conversion.FromStored(ctx, o)
	}
	if from.Conversion != nil {
		if o, err = from.Conversion.ToStored(ctx, o); err != nil {
			return nil, err
		}
	}
	if to.Conversion != nil {
		return to.Conversion.FromStored(ctx, o)
	}
	return o, nil
}

// typeOf returns the version of the resource that a form names, nil if there is none.
func (t Target) typeOf(f Form) *resource.Type {
	if t.Type.GroupVersion() == f.Resource.GroupVersion() {
		return t.Type
	}
	return t.Type.At(f.Resource.GroupVersion().String())
}

// Replace replaces the object of the request by the JSON of a form. Only Mutate may call it. It
// sets the defaults of the form's version, and drops unknown fields. Attributes.Object has the change
// when Mutate returns, In at once. Fields that the request cannot change are restored later.
func (a *Attributes) Replace(ctx context.Context, f Form, object []byte) error {
	if err := a.Widen(ctx, object); err != nil {
		return err
	}
	next, _, err := a.Decode(f, object)
	var unread *wire.BodyError
	if errors.As(err, &unread) {
		err = errors.New(unread.Cause)
	}
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return a.Set(ctx, f, next)
}

// Stamped reports whether the managed fields of the object have a time that this request set. Like
// kube-apiserver, it is false for custom resources, and after Replace: the time has fractions of a
// second until the object was read from JSON.
func (a *Attributes) Stamped(ctx context.Context) (bool, error) {
	if a.replaced || a.Type.Custom != nil || a.w.virtual || a.isConnection() {
		return false, nil
	}
	managed, err := a.trackEarly(ctx)
	if err != nil {
		return false, err
	}
	var live []byte
	if a.before.stored != nil {
		live = a.w.owners.managedOf(a.before.stored)
	}
	return len(managed) > 0 && !bytes.Equal(managed, live), nil
}

// Set is Replace for a decoded object, which must not be changed any more.
func (a *Attributes) Set(ctx context.Context, f Form, next runtime.Object) error {
	v, err := a.In(ctx, f)
	if err != nil {
		return err
	}
	if v.Object == nil {
		return errors.New("the request has no object")
	}
	next = withKind(next, f.Kind)
	if meta, ok := next.(metav1.Object); ok && a.managedShown && !equality.Semantic.DeepEqual(meta.GetManagedFields(), a.managed) {
		a.managed, a.managedChanged = meta.GetManagedFields(), true
	}
	a.replaced = true
	a.versions.changed()
	made := &Versioned{Form: f, Object: next, Old: v.Old, oldTree: v.oldTree, oldJSON: v.oldJSON}
	a.versions.made = append(a.versions.made, made)
	a.versions.dirty = made
	return nil
}

// Widen takes as many seats as for a body like object, the JSON that a plugin has made, before it
// is decoded. Otherwise a small body that plugins make large would not wait for other large
// requests. The error is a Status, which rejects the request whatever the failure policy. Only
// Mutate may call it.
func (a *Attributes) Widen(ctx context.Context, object []byte) error {
	err := fairness.Widen(ctx, wire.Work(a.Exchanged(), wire.JSON, object))
	switch {
	case errors.Is(err, fairness.ErrFull):
		return apierrors.NewTooManyRequests(err.Error(), 1)
	case err != nil:
		return apierrors.NewTimeoutError("request did not complete within requested timeout - "+err.Error(), 0)
	}
	return nil
}

// Decode decodes the JSON of a form, and sets defaults. Complaints are unknown and duplicate fields of
// a built-in kind.
func (a *Attributes) Decode(f Form, object []byte) (o runtime.Object, complaints []string, err error) {
	if a.isConnection() {
		o, err = wire.Unmarshal(object, a.subresource().Options)
		return o, nil, err
	}
	t := a.typeOf(f)
	if x := a.Exchanged(); x != a.Type {
		t = x
	}
	if t == nil {
		return nil, nil, fmt.Errorf("%s is no version of %s", f.Kind, a.Type.GroupResource())
	}
	if err := wire.CheckDepth(object); err != nil {
		return nil, nil, err
	}
	if t.Custom != nil {
		o, _, err = t.Custom.Decode(object) // prunes
	} else {
		o, complaints, err = wire.UnmarshalStrict(object, t.New)
	}
	if err != nil {
		return nil, nil, err
	}
	if k := o.GetObjectKind().GroupVersionKind(); !k.Empty() && k != t.GroupVersionKind() {
		return nil, nil, fmt.Errorf("no kind %q is registered for version %q in scheme %q", k.Kind, k.GroupVersion(), "pkg/runtime/scheme.go:111")
	}
	if t.Strategy.Default != nil {
		t.Strategy.Default(o)
	}
	return o, complaints, nil
}

// settle gives Attributes.Object the changes of Replace.
func (a *Attributes) settle(ctx context.Context) error {
	v := a.versions.dirty
	if v == nil {
		return nil
	}
	a.versions.dirty = nil
	switch {
	case a.w.virtual:
		a.Object = shallow(v.Object)
	case a.exchanges():
		next, err := a.w.merge(a.Old, v.Object)
		if err != nil {
			return err
		}
		a.Object, a.body = next, v.Object
		return nil
	default:
		next := v.Object
		if a.stored().GroupVersionKind() == v.Kind {
			next = shallow(next)
		} else {
			var err error
			if next, err = convertObject(ctx, a.typeOf(v.Form), a.stored(), next.DeepCopyObject()); err != nil {
				return err
			}
		}
		a.Object = next
	}
	if meta, ok := a.Object.(metav1.Object); ok {
		meta.SetManagedFields(nil) // managedFields has them
	}
	return nil
}

// managedFields returns the managed fields after the write as the client sent it.
func (a *Attributes) managedFields(ctx context.Context) ([]metav1.ManagedFieldsEntry, error) {
	managed, err := a.trackEarly(ctx)
	if err != nil {
		return nil, err
	}
	return a.toScale(managed)
}

// toScale decodes managed fields. At a scale subresource, they become those of the Scale.
func (a *Attributes) toScale(managed []byte) (all []metav1.ManagedFieldsEntry, err error) {
	if scale := a.replicas(); scale != nil {
		managed, err = scale.ToScale(managed)
	}
	if err != nil || len(managed) == 0 {
		return nil, err
	}
	return all, json.Unmarshal(managed, &all)
}

// trackEarly computes the managed fields before the object is encoded, and remembers them.
func (a *Attributes) trackEarly(ctx context.Context) ([]byte, error) {
	w, o := a.w, &a.w.owners
	if o.hasDecided {
		return o.decided, nil
	}
	if o.tracked {
		return o.early, nil
	}
	var live []byte
	var before *currentObject
	if a.before.stored != nil {
		before = &a.before
		live = o.managedOf(before.stored)
	}
	start, err := w.managedBefore(live)
	if err != nil {
		start = live // the error follows when the object is encoded
	}
	if o.client == nil {
		if o.client, err = a.clientBytes(ctx); err != nil {
			return nil, err
		}
	}
	o.early, err = a.registry.track(ctx, w, before, a.Object, start, o.client)
	if err != nil && w.virtual {
		return nil, nil // kube-apiserver ignores the error, too
	}
	if err != nil {
		return nil, err
	}
	o.tracked = true
	return o.early, nil
}

func (a *Attributes) clientBytes(ctx context.Context) ([]byte, error) {
	if a.w.virtual {
		return json.Marshal(withKind(a.Object, a.Exchanged().GroupVersionKind()))
	}
	return clientBytes(ctx, a.Type, a.Object)
}

// takeManaged makes the request store the managed fields that plugins have set, if they are valid.
func (a *Attributes) takeManaged() error {
	if !a.managedChanged || a.w.virtual || a.exchanges() {
		return nil
	}
	a.managedChanged = false
	if err := apply.Check(a.managed); err != nil {
		a.managedShown = false
		a.Warn(fmt.Sprintf(".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: %v", err))
		return nil
	}
	var managed []byte
	if len(a.managed) > 0 {
		var err error
		if managed, err = json.Marshal(a.managed); err != nil {
			return err
		}
	}
	a.w.owners.setDecided(managed)
	a.w.owners.byPlugin = true
	return nil
}

// shallow copies a struct, but not the values that it points to.
func shallow(o runtime.Object) runtime.Object {
	if c, ok := o.(interface{ Shallow() runtime.Object }); ok {
		return c.Shallow()
	}
	v := reflect.ValueOf(o).Elem()
	made := reflect.New(v.Type())
	made.Elem().Set(v)
	return made.Interface().(runtime.Object)
}

// withKind sets the kind of an object. Objects that several goroutines share have it already.
func withKind(o runtime.Object, k schema.GroupVersionKind) runtime.Object {
	if o.GetObjectKind().GroupVersionKind() != k {
		o.GetObjectKind().SetGroupVersionKind(k)
	}
	return o
}

// Local returns a value that a plugin keeps for this request, also when the mutating plugins run
// again. The first call for a key makes it.
func (a *Attributes) Local(key any, make func() any) any {
	if v, ok := a.local[key]; ok {
		return v
	}
	v := make()
	if a.local == nil {
		a.local = map[any]any{}
	}
	a.local[key] = v
	return v
}

// Reinvoke makes the mutating plugins run once more, behind the last one. Reinvoking is true then.
func (a *Attributes) Reinvoke() { a.reinvoke = true }

// ShownName returns the name of the object that webhooks and policies see. It is empty for each
// object of a deletecollection, and in the mutating phase if the server is to generate the name. A
// plugin that renames the object does not change it.
func (a *Attributes) ShownName() string {
	if a.w != nil && a.w.collection {
		return ""
	}
	return cmp.Or(a.sentName, a.Name)
}
