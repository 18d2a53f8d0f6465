package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"slices"
	"strconv"
	"weak"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// ownership is what a request says and finds out about the managed fields of its object.
type ownership struct {
	// sent are the managed fields of the body. They replace those of the object.
	sent []metav1.ManagedFieldsEntry
	// leftOut are the managed fields of the body if they were not decoded, because they are
	// those of the object.
	leftOut []byte
	// live is where the managed fields of looked stand, the object that was looked at last.
	live   span
	looked *store.Object
	// decided are the managed fields that an apply decided on; isDecided: it did.
	decided   []byte
	isDecided bool
	// client is the object as JSON of the version of the request, before the server set what
	// no manager owns; nil: it set nothing.
	client []byte
}

// decide sets the managed fields that will be stored.
func (o *ownership) decide(managed []byte) { o.decided, o.isDecided = managed, true }

// take moves the managed fields of a body out of the object.
func (o *ownership) take(meta metav1.Object) {
	o.sent = meta.GetManagedFields()
	meta.SetManagedFields(nil)
}

// locate returns where the managed fields of a stored object stand, which is asked for
// several times.
func (o *ownership) locate(stored *store.Object) span {
	if o.looked != stored {
		o.looked, o.live = stored, locateManaged(stored.Bytes())
	}
	return o.live
}

// of are the managed fields of a stored object.
func (o *ownership) of(stored *store.Object) []byte { return o.locate(stored).in(stored.Bytes()) }

// encode makes the bytes that are stored, with the managed fields that follow from
// the write. before is nil for a new object. Same says that they are what is
// stored already; then there are no bytes, and ownership is not tracked.
func (r *Registry) encode(ctx context.Context, w *write, before *existing, next runtime.Object) (e wire.Encoded, same bool, err error) {
	if wire.HasEmpty(next) {
		if w.owners.client == nil { // the client owns an empty list that it sends
			if w.owners.client, err = clientBytes(ctx, w.Type, next); err != nil {
				return e, false, apierrors.NewBadRequest(err.Error())
			}
		}
		wire.DropEmpty(next)
	}
	e, err = w.encode(ctx, next)
	if err != nil {
		return e, false, apierrors.NewBadRequest(err.Error())
	}
	var live []byte
	if before != nil {
		live = w.owners.of(before.stored)
	}
	start, managed := live, w.owners.decided
	if !w.owners.isDecided {
		if start, err = w.managedBefore(live); err != nil {
			return e, false, err
		}
		managed = start
	}
	if before != nil && sameManaged(w, managed, live) && unchanged(before.stored, e, live) {
		return wire.Encoded{}, true, nil
	}
	if w.owners.isDecided {
		return withManaged(e, managed), false, nil
	}
	if managed, err = r.track(ctx, w, before, next, start, e.Bytes); err != nil {
		return e, false, err
	}
	if with := withManaged(e, managed); checkSize(with, nil) == nil {
		return with, false, nil
	}
	return e, false, nil // an object of this size has no managed fields
}

// sameManaged reports whether managed fields say nothing new. Those of an apply may
// differ in their times alone: what it removed comes back where the server fills it
// in, as in the references of environment variables.
func sameManaged(w *write, managed, live []byte) bool {
	return bytes.Equal(managed, live) || w.owners.isDecided && apply.SameButTimes(managed, live)
}

// track returns the managed fields after an update.
func (r *Registry) track(ctx context.Context, w *write, before *existing, next runtime.Object, start, encoded []byte) ([]byte, error) {
	s, err := r.schema(ctx, w.Type)
	if err != nil {
		return nil, err
	}
	var old []byte
	if before != nil {
		old = before.value
	}
	after := encoded
	switch {
	case w.owners.client != nil:
		after = w.owners.client
	case w.Type.Conversion != nil:
		if after, err = clientBytes(ctx, w.Type, next); err != nil {
			return nil, err
		}
	}
	managed, err := s.Update(start, old, after, r.writer(w))
	if err != nil || w.replicas() == nil {
		return managed, err
	}
	return apply.Untimed(start, managed)
}

// writer is who writes, for managed fields: rows G7, G8.
func (r *Registry) writer(w *write) apply.Write {
	a := apply.Write{Subresource: w.Subresource, Time: r.now()}
	if a.Manager = w.options.FieldManager; a.Manager == "" {
		a.Manager = apply.ManagerOf(w.options.UserAgent)
	}
	return a
}

// clientBytes is an object of the stored version as JSON of the type's own.
func clientBytes(ctx context.Context, t *resource.Type, stored runtime.Object) ([]byte, error) {
	o := stored
	if c := t.Conversion; c != nil && !c.PerRequest {
		var err error
		if o, err = c.FromStored(ctx, stored.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	o.GetObjectKind().SetGroupVersionKind(t.GroupVersionKind())
	return json.Marshal(o)
}

// managedBefore are the managed fields that an update starts from: those of the
// object, unless the body has others. Bodies of subresources do not change them.
func (w *write) managedBefore(live []byte) ([]byte, error) {
	o := &w.owners
	if w.Subresource != "" || o.sent == nil && (o.leftOut == nil || bytes.Equal(o.leftOut, live)) {
		return live, nil
	}
	if o.sent == nil { // another request has changed them
		if err := json.Unmarshal(o.leftOut, &o.sent); err != nil {
			return nil, err
		}
	}
	sent, err := json.Marshal(o.sent)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if bytes.Equal(sent, live) {
		return live, nil
	}
	start := apply.Before(live, sent)
	if w.Name != "" && bytes.Equal(start, sent) { // a new object has those of its writer in any case
		errs := metav1validation.ValidateManagedFields(o.sent, field.NewPath("metadata", "managedFields"))
		errs = slices.Repeat(errs, w.timesChecked())
		return start, invalid(w.Type, &metav1.ObjectMeta{Name: w.Name}, errs)
	}
	return start, nil
}

// schema is what managed fields need to know of a type; it is made when it is first asked
// for. That of a Go type stays; that of a structural schema goes with it, of which, and
// of the type, it therefore holds nothing.
func (r *Registry) schema(ctx context.Context, t *resource.Type) (*apply.Schema, error) {
	s, err := r.ownSchema(t)
	if err != nil {
		return nil, fmt.Errorf("the schema of %s: %w", t.GroupVersionKind(), err)
	}
	if t.Custom == nil {
		return s, nil
	}
	var others apply.Versions
	if len(t.Versions) > 1 {
		others = r.schemaVersions(ctx, t)
	}
	return s.With(others, func() (*spec.Schema, error) { return t.Custom.OpenAPI(3) }), nil
}

// ownSchema is schema, of a custom kind without what belongs to the type.
func (r *Registry) ownSchema(t *resource.Type) (*apply.Schema, error) {
	if t.Custom == nil {
		return r.keptSchema(t, func() (*apply.Schema, error) {
			s, err := apply.Builtin(t.GroupVersionKind(), t.New())
			if err != nil || len(t.Versions) < 2 {
				return s, err
			}
			return s.With(r.schemaVersions(context.Background(), t), nil), nil // no webhook converts built-in kinds
		})
	}
	hasStatus := t.Subresource("status") != nil
	from, err := t.Custom.Structural()
	if err != nil {
		return nil, err
	}
	if from == nil { // nothing is known of it
		shown, err := t.Custom.OpenAPI(3)
		if err != nil {
			return nil, err
		}
		return apply.FromOpenAPI(t.GroupVersionKind(), shown, hasStatus)
	}
	key := weak.Make(from)
	return r.keptSchema(key, func() (*apply.Schema, error) {
		goruntime.AddCleanup(from, func(key weak.Pointer[structuralschema.Structural]) { r.schemas.Delete(key) }, key)
		return apply.FromStructural(t.GroupVersionKind(), from, hasStatus), nil
	})
}

// keptSchema returns what is kept by the key, and builds it the first time.
func (r *Registry) keptSchema(key any, build func() (*apply.Schema, error)) (*apply.Schema, error) {
	if s, ok := r.schemas.Load(key); ok {
		return s.(*apply.Schema), nil
	}
	s, err := build()
	if err != nil {
		return nil, err
	}
	kept, _ := r.schemas.LoadOrStore(key, s)
	return kept.(*apply.Schema), nil
}

// schemaVersions are the other versions of a type.
func (r *Registry) schemaVersions(ctx context.Context, t *resource.Type) apply.Versions {
	return apply.Versions{
		Schema: func(apiVersion string) *apply.Schema {
			other := t.At(apiVersion)
			if other == nil {
				return nil
			}
			s, err := r.schema(ctx, other)
			if err != nil {
				return nil
			}
			return s
		},
		Convert: func(object []byte, from, to string) ([]byte, error) {
			a, b := t.At(from), t.At(to)
			if a == nil || b == nil {
				return nil, fmt.Errorf("no version %s or %s is served any more", from, to)
			}
			return convert(ctx, a, b, object)
		},
	}
}

// convert makes the JSON of an object into that of another version.
func convert(ctx context.Context, from, to *resource.Type, object []byte) ([]byte, error) {
	o, err := wire.Unmarshal(object, from.New)
	if err != nil {
		return nil, err
	}
	if from.Conversion != nil {
		if o, err = from.Conversion.ToStored(ctx, o); err != nil {
			return nil, err
		}
	}
	if to.Conversion != nil {
		if o, err = to.Conversion.FromStored(ctx, o); err != nil {
			return nil, err
		}
	}
	o.GetObjectKind().SetGroupVersionKind(to.GroupVersionKind())
	return json.Marshal(o)
}

// managedFields are those of stored bytes, nil when there are none.
func managedFields(value []byte) []byte { return locateManaged(value).in(value) }

func locateManaged(value []byte) span { return locate(value, "metadata", "managedFields") }

// withManaged puts managed fields into an encoding.
func withManaged(e wire.Encoded, managed []byte) wire.Encoded {
	if len(managed) == 0 {
		return e
	}
	end := managedAt(e)
	out := make([]byte, 0, len(e.Bytes)+len(managedMember)+len(managed))
	out = append(append(append(append(out, e.Bytes[:end]...), managedMember...), managed...), e.Bytes[end:]...)
	return wire.Encoded{Bytes: out, RevisionAt: e.RevisionAt}
}

const managedMember = `,"managedFields":`

// managedAt is where they belong: they are the last member of the metadata, as
// encoding/json writes it.
func managedAt(e wire.Encoded) int { return locate(e.Bytes, "metadata").to - 1 }

// unchanged reports whether an encoding with managed fields is what is stored, apart
// from the digits of the version: such an update writes nothing.
func unchanged(current *store.Object, e wire.Encoded, managed []byte) bool {
	digits := len(strconv.FormatUint(uint64(current.Modified), 10))
	size, end := len(e.Bytes)+digits, len(e.Bytes)
	if len(managed) > 0 {
		size += len(managedMember) + len(managed)
	}
	if current.Len() != size || int(current.RevisionAt) != e.RevisionAt {
		return false
	}
	if len(managed) > 0 {
		end = managedAt(e)
	}
	at, have := e.RevisionAt, current.Bytes()
	if !bytes.Equal(have[:at], e.Bytes[:at]) || !bytes.Equal(have[at+digits:end+digits], e.Bytes[at:end]) {
		return false
	}
	if tail := len(e.Bytes) - end; !bytes.Equal(have[len(have)-tail:], e.Bytes[end:]) {
		return false
	}
	return len(managed) == 0 || bytes.Equal(managedFields(have), managed)
}

// withoutManaged is an object without its managed fields, which stand at managed: they are
// half of most objects, and most requests do not use them. It is the object itself if they do
// not stand where encoding/json writes them.
func withoutManaged(object []byte, managed span) []byte {
	before := managed.from - len(managedMember)
	if managed.to == 0 || before < 0 || string(object[before:managed.from]) != managedMember {
		return object
	}
	out := make([]byte, 0, before+len(object)-managed.to)
	return append(append(out, object[:before]...), object[managed.to:]...)
}

// decodeLean is decode of a body that may repeat the managed fields of the object exactly,
// as nearly always: then they are not decoded.
func (w *write) decodeLean(b Body, current *store.Object) (runtime.Object, error) {
	if current == nil || b.Media != wire.JSON || bytes.Count(b.Bytes, []byte(managedMember[1:])) != 1 {
		return w.decode(b)
	}
	live, said := w.owners.of(current), locateManaged(b.Bytes)
	if len(live) > 0 && bytes.Equal(said.in(b.Bytes), live) {
		lean := Body{b.Media, withoutManaged(b.Bytes, said)}
		if sent, err := w.decode(lean); err == nil {
			w.owners.leftOut = live
			return sent, nil
		}
		w.warnings = nil
	}
	return w.decode(b) // the errors are about the whole body
}
