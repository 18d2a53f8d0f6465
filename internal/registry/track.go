package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/patch"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// encode returns the bytes to store, with the managed fields that result from the write. Before is
// nil for a new object. If same is true, the write changes nothing; there are no bytes then, and
// ownership was not computed.
func (r *Registry) encode(ctx context.Context, w *write, before *currentObject, next runtime.Object) (e wire.Encoded, same bool, err error) {
	wire.DropEmpty(next)
	if e = w.final; w.finalOf != next {
		if e, err = w.encode(ctx, next); err != nil {
			return e, false, err
		}
	}
	var live []byte
	if before != nil {
		live = w.owners.managedOf(before.stored)
	}
	start, managed := live, w.owners.decided
	if !w.owners.hasDecided {
		if start, err = w.managedBefore(live); err != nil {
			return e, false, err
		}
		managed = start
	}
	// Different times alone are no change. A request body can contain other times, and a field that an apply removes can
	// return as a default.
	same = before != nil && sameStored(before.stored, e, live) && apply.SameButTimes(managed, live)
	switch {
	case same && (w.owners.hasDecided || w.owners.client == nil):
		return wire.Encoded{}, true, nil
	case w.owners.hasDecided:
		return withManaged(e, managed), false, nil
	}
	if managed = w.owners.early; !w.owners.tracked {
		if managed, err = r.track(ctx, w, before, next, start, e.Bytes); err != nil {
			return e, false, err
		}
	}
	if same && apply.SameButTimes(managed, live) {
		return wire.Encoded{}, true, nil
	}
	if with := withManaged(e, managed); checkSize(with, nil) == nil {
		return with, false, nil
	}
	return e, false, nil // too large with managed fields
}

// track returns the managed fields after an update.
func (r *Registry) track(ctx context.Context, w *write, before *currentObject, next runtime.Object, start, encoded []byte) ([]byte, error) {
	t := w.Type
	if w.virtual {
		t = w.Exchanged()
	}
	s, err := r.schema(ctx, t)
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

// writer returns the identity of the writer for managed fields.
func (r *Registry) writer(w *write) apply.Write {
	return apply.Write{Manager: w.manager(), Subresource: w.Subresource, Time: r.now()}
}

// manager returns the field manager: that of the options, or else a name derived from the user agent.
func (w *write) manager() string {
	if w.options.FieldManager != "" {
		return w.options.FieldManager
	}
	return apply.ManagerOf(w.options.UserAgent)
}

// managedBefore returns the managed fields that an update starts from: the stored ones, unless the
// body has others. Bodies of subresources do not change them.
func (w *write) managedBefore(live []byte) ([]byte, error) {
	o := &w.owners
	if w.Subresource != "" || o.sent == nil && (o.omitted == nil || bytes.Equal(o.omitted, live)) {
		return live, nil
	}
	if o.sent == nil { // another request has changed the stored ones
		if err := json.Unmarshal(o.omitted, &o.sent); err != nil {
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
	if w.Name != "" && bytes.Equal(start, sent) { // a new object gets those of its writer
		errs := metav1validation.ValidateManagedFields(o.sent, field.NewPath("metadata", "managedFields"))
		if w.stored().Strategy.Declared == nil { // the rules of a type report an error once
			errs = slices.Repeat(errs, w.timesChecked())
		}
		return start, invalid(w.Type, &metav1.ObjectMeta{Name: w.Name}, errs)
	}
	return start, nil
}

// decodeLean is decode for a body that may repeat the managed fields of the stored object. Most do;
// then the managed fields are not decoded.
func (w *write) decodeLean(ctx context.Context, b Body, current *store.Object) (runtime.Object, error) {
	if current == nil || b.Media != wire.JSON || bytes.Count(b.Bytes, []byte(managedMember[1:])) != 1 {
		return w.decode(ctx, b)
	}
	live, said := w.owners.managedOf(current), locateManaged(b.Bytes)
	if len(live) > 0 && bytes.Equal(said.in(b.Bytes), live) {
		lean := Body{b.Media, withoutManaged(b.Bytes, said)}
		if sent, err := w.decode(ctx, lean); err == nil {
			w.owners.omitted = live
			return sent, nil
		}
		w.warnings = nil
	}
	return w.decode(ctx, b) // for errors about the whole body
}

// timesChecked returns how often kube-apiserver repeats an error that both halves of
// validateMetaUpdate find.
func (w *write) timesChecked() int {
	switch w.stored().Strategy.Metadata.Recheck {
	case resource.RecheckNothing:
		return 2
	case resource.RecheckUpdate, resource.RecheckNew:
		return 3
	}
	return 4
}

// checkSize rejects an object that is larger than a request body can be, so that each client that
// reads it can write it back. An apply, for example, adds to the stored object. An object that is
// larger already may become smaller.
func checkSize(e wire.Encoded, current *store.Object) error {
	if len(e.Bytes) <= patch.MaxBytes || current != nil && len(e.Bytes) < current.Len() || patch.Size(e.Bytes) <= patch.MaxBytes {
		return nil
	}
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the object would have more than %d bytes", patch.MaxBytes))
}
