package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	case s.Connect != nil:
		f.Kind = s.Kind
		if f.Kind.Version == "" {
			f.Kind.Group, f.Kind.Version = t.Group, t.Version
		}
	}
	return f
}

// Versioned is what webhooks and policies see of a request in one form. It is read-only.
type Versioned struct {
	Form
	// Object and Old are whole objects with their managed fields, or the bodies of a subresource:
	// a Scale, an Eviction, the options of a connection. They are nil if the request has none. An
	// object of the mutating phase is as the client sent it, with defaults.
	Object, Old runtime.Object

	objectTree, oldTree map[string]any
	objectJSON, oldJSON []byte
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

// JSON returns the objects as JSON with kind and apiVersion, nil for none. It is computed once, and
// must not be changed.
func (v *Versioned) JSON() (object, old []byte, err error) {
	if v.objectJSON == nil && v.Object != nil {
		if v.objectJSON, err = json.Marshal(v.Object); err != nil {
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

// versions are the forms of a request's objects that were made for plugins.
type versions struct {
	made []*Versioned
	// dirty is the form in which a plugin has replaced the object. Attributes.Object does not
	// have the change yet.
	dirty *Versioned
}

// In returns what webhooks and policies see of the request in a form, which is one of Forms. It is
// remembered until the object changes. A webhook of the kind may convert the object.
func (a *Attributes) In(ctx context.Context, f Form) (*Versioned, error) {
	for _, v := range a.versions.made {
		if v.Kind == f.Kind {
			v.Form = f
			return v, nil
		}
	}
	if err := a.settle(ctx); err != nil {
		return nil, err
	}
	v := &Versioned{Form: f}
	var err error
	if v.Old, err = a.shown(ctx, f, a.Old, true); err != nil {
		return nil, err
	}
	if v.Object, err = a.shown(ctx, f, a.Object, false); err != nil {
		return nil, err
	}
	a.versions.made = append(a.versions.made, v)
	return v, nil
}

// shown returns an object of the request in a form, nil for none.
func (a *Attributes) shown(ctx context.Context, f Form, o runtime.Object, old bool) (runtime.Object, error) {
	if o == nil || reflect.ValueOf(o).IsNil() {
		return nil, nil
	}
	s := a.subresource()
	if a.w.virtual || a.Operation == admissionv1.Connect {
		return withKind(shallow(o), f.Kind), nil
	}
	if s != nil && s.View != nil {
		made, err := s.View(o.DeepCopyObject())
		if err != nil {
			return nil, err
		}
		return withKind(made, f.Kind), nil
	}
	made, err := a.convert(ctx, f, o)
	if err != nil {
		return nil, err
	}
	if !old {
		if err := a.showManaged(ctx, made.(metav1.Object)); err != nil {
			return nil, err
		}
	}
	return withKind(made, f.Kind), nil
}

// convert converts a whole object from the version of the strategy to that of a form. The result
// shares memory with the object.
func (a *Attributes) convert(ctx context.Context, f Form, o runtime.Object) (runtime.Object, error) {
	st := a.stored()
	if st.GroupVersionKind() == f.Kind {
		return shallow(o), nil
	}
	to := a.typeOf(f)
	if to == nil {
		return nil, fmt.Errorf("%s is no version of %s", f.Kind, a.Type.GroupResource())
	}
	o = o.DeepCopyObject()
	if a.Type.Conversion != nil && a.Type.Conversion.PerRequest {
		var err error
		if o, err = a.Type.Conversion.ToStored(ctx, o); err != nil {
			return nil, err
		}
	}
	if to.Conversion == nil {
		return o, nil
	}
	return to.Conversion.FromStored(ctx, o)
}

// typeOf returns the version of the resource that a form names, nil if there is none.
func (t Target) typeOf(f Form) *resource.Type {
	if t.Type.GroupVersion() == f.Resource.GroupVersion() {
		return t.Type
	}
	return t.Type.At(f.Resource.GroupVersion().String())
}

// Replace replaces the object of the request by the JSON of a form. Only Mutate may call it. It
// sets the defaults of the form's version. Attributes.Object has the change when Mutate returns, In
// at once. Fields that the request cannot change are restored later.
func (a *Attributes) Replace(ctx context.Context, f Form, object []byte) error {
	v, err := a.In(ctx, f)
	if err != nil {
		return err
	}
	if v.Object == nil {
		return errors.New("the request has no object")
	}
	next, err := a.decodeForm(f, object)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	v.Object, v.objectTree, v.objectJSON = withKind(next, f.Kind), nil, nil
	a.versions.made = append(a.versions.made[:0], v)
	a.versions.dirty = v
	return nil
}

// decodeForm decodes the JSON of a form, and sets defaults.
func (a *Attributes) decodeForm(f Form, object []byte) (runtime.Object, error) {
	t := a.typeOf(f)
	if x := a.Exchanged(); x != a.Type {
		t = x
	}
	if t == nil {
		return nil, fmt.Errorf("%s is no version of %s", f.Kind, a.Type.GroupResource())
	}
	if err := wire.CheckDepth(object); err != nil {
		return nil, err
	}
	if t.Custom != nil {
		o, err := wire.Unmarshal(object, t.New)
		if err != nil {
			return nil, err
		}
		if t.Strategy.Default != nil {
			t.Strategy.Default(o)
		}
		return o, nil
	}
	d, err := wire.Decode(t, wire.JSON, object)
	if err != nil {
		return nil, err
	}
	if t.Strategy.Default != nil {
		t.Strategy.Default(d.Object)
	}
	return d.Object, nil
}

// settle gives Attributes.Object the changes of Replace.
func (a *Attributes) settle(ctx context.Context) error {
	v := a.versions.dirty
	if v == nil {
		return nil
	}
	a.versions.dirty = nil
	if a.w.virtual {
		a.Object = shallow(v.Object)
		return nil
	}
	if s := a.subresource(); s != nil && s.Exchange != nil {
		next := a.Object.DeepCopyObject()
		if err := s.Set(next, v.Object); err != nil {
			return err
		}
		a.Object = next
		return nil
	}
	next, err := a.unconvert(ctx, v)
	if err != nil {
		return err
	}
	a.takeManaged(next.(metav1.Object))
	a.Object = next
	return nil
}

// unconvert converts an object from a form to the version of the strategy.
func (a *Attributes) unconvert(ctx context.Context, v *Versioned) (runtime.Object, error) {
	st := a.stored()
	if st.GroupVersionKind() == v.Kind {
		return shallow(v.Object), nil
	}
	from, o := a.typeOf(v.Form), v.Object.DeepCopyObject()
	if from.Conversion != nil {
		var err error
		if o, err = from.Conversion.ToStored(ctx, o); err != nil {
			return nil, err
		}
	}
	if a.Type.Conversion != nil && a.Type.Conversion.PerRequest {
		return a.Type.Conversion.FromStored(ctx, o)
	}
	return o, nil
}

// showManaged sets the managed fields that the write gives an object.
func (a *Attributes) showManaged(ctx context.Context, meta metav1.Object) error {
	return nil
}

// takeManaged takes the managed fields of an object that a plugin has replaced.
func (a *Attributes) takeManaged(meta metav1.Object) { meta.SetManagedFields(nil) }

// changed forgets the forms of the object: a plugin may have changed it.
func (a *Attributes) changed() { a.versions.made = a.versions.made[:0] }

// shallow copies a struct, and not what it points to.
func shallow(o runtime.Object) runtime.Object {
	v := reflect.ValueOf(o).Elem()
	made := reflect.New(v.Type())
	made.Elem().Set(v)
	return made.Interface().(runtime.Object)
}

func withKind(o runtime.Object, k schema.GroupVersionKind) runtime.Object {
	o.GetObjectKind().SetGroupVersionKind(k)
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

// ShownName returns the name of the object that plugins see: empty in the mutating phase if the
// server is to generate it.
func (a *Attributes) ShownName() string {
	if a.mutating && a.NameGenerated {
		return ""
	}
	return a.Name
}
