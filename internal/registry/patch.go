package registry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/patch"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Patch is the body of a patch.
type Patch struct {
	Type  types.PatchType
	Bytes []byte
}

// Patch changes an object, or the part of it that a subresource has. After a conflict it is applied
// again to the newer version, unless the patch contains a resourceVersion.
func (r *Registry) Patch(ctx context.Context, t Target, p Patch, o WriteOptions) (Object, error) {
	return r.confirmed(ctx, func() (Object, error) { return r.attemptPatch(ctx, t, p, o) })
}

// attemptPatch is the attempt of Patch for confirmed.
func (r *Registry) attemptPatch(ctx context.Context, t Target, p Patch, o WriteOptions) (Object, error) {
	w, err := newWrite(t, &o, "PatchOptions", p.Type)
	if err != nil {
		return Object{}, err
	}
	if m := wire.AppliedMedium(p.Type); m != "" {
		return r.apply(ctx, w, Body{Media: m, Bytes: p.Bytes})
	}
	work := wire.Work(t.Type, wire.JSON, p.Bytes)
	if p.Type == types.JSONPatchType && patch.MayCopy(p.Bytes) {
		work = max(work, patch.MaxBytes)
	}
	if err := fairness.Widen(ctx, work); err != nil {
		return Object{}, err
	}
	if err := patch.CheckText(p.Bytes); err != nil {
		return Object{}, err
	}
	if err := wire.CheckDepth(p.Bytes); err != nil {
		return Object{}, apierrors.NewBadRequest(wire.DecodingPatch + err.Error())
	}
	made, err := r.modify(ctx, w, objectChange{next: func(v currentObject) (runtime.Object, error) {
		made, err := w.patched(ctx, v, &p)
		if err != nil {
			return nil, err
		}
		if err := w.checkPatched(v.stored, made.Object.(metav1.Object)); err != nil {
			return nil, err
		}
		if w.exchanges() {
			return made.Object, nil
		}
		return toStored(ctx, made.version, made.Object)
	}})
	return w.response(made, false, err)
}

// patchedObject is an object that a patch has made. Strict has the field validation errors of the patch and of the object.
type patchedObject struct {
	patch.Patched
	wire.Decoded
	// version is the type of the target, or another version of the kind if the patch has changed the apiVersion.
	version *resource.Type
}

// patched applies a patch to the object or the part of it that the target has. A patch without
// managed fields is applied to the object without them, which is faster. If that fails, it is
// applied to the whole object for the right error message.
func (w *write) patched(ctx context.Context, v currentObject, p *Patch) (patchedObject, error) {
	document, err := w.show(v, resource.ForPatch)
	if err != nil {
		return patchedObject{}, err
	}
	if p.Type != types.JSONPatchType && !bytes.Contains(p.Bytes, []byte("managedFields")) {
		made, err := w.patchDocument(ctx, withoutManaged(document, locateManaged(document)), p)
		switch {
		case err == nil && len(made.Strict) == 0:
			return made, nil
		case errors.Is(err, fairness.ErrFull), err != nil && ctx.Err() != nil: // it would fail again
			return made, err
		}
	}
	made, err := w.patchDocument(ctx, document, p)
	if err != nil {
		return made, err
	}
	switch {
	case len(made.Strict) == 0 || w.options.FieldValidation == metav1.FieldValidationIgnore:
	case w.options.FieldValidation == metav1.FieldValidationStrict:
		return made, strictPatch(w, &made)
	default:
		w.warnings = append(w.warnings, wire.Warnings(made.Strict...)...)
	}
	return made, nil
}

// patchDocument applies a patch and decodes the result.
func (w *write) patchDocument(ctx context.Context, document []byte, p *Patch) (made patchedObject, err error) {
	t, validate := w.Exchanged(), w.options.FieldValidation != metav1.FieldValidationIgnore
	switch p.Type {
	case types.JSONPatchType:
		made.Patched, err = patch.JSON(document, p.Bytes, validate)
	case types.MergePatchType:
		made.Patched, err = patch.Merge(document, p.Bytes, validate)
	default:
		made.Patched, err = patch.Strategic(document, p.Bytes, t.New())
	}
	if err != nil {
		return made, err
	}
	if err := fairness.Widen(ctx, wire.Work(t, wire.JSON, made.Document)); err != nil {
		return made, err
	}
	made.Decoded, err = wire.Decode(t, wire.JSON, made.Document)
	var unread *wire.BodyError
	if errors.As(err, &unread) {
		if other := otherVersion(t, made.Document); other != nil {
			t = other
			made.Decoded, err = wire.Decode(t, wire.JSON, made.Document)
		}
	}
	switch {
	case errors.As(err, &unread):
		why := unread.Cause
		if made.Values != nil {
			if tree, err := made.Values(); err == nil {
				why = cmp.Or(treeError(made.Document, tree, t.New()), why)
			}
		}
		return made, invalidPatch(&made, why)
	case err != nil:
		return made, err
	case p.removesVersion(t, made.Document):
		return made, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", w.Name))
	}
	made.version = t
	if made.Values != nil && len(made.Strict) > 0 {
		if tree, err := made.Values(); err == nil {
			made.Strict = unknownFields(tree, t.New())
		}
	}
	made.Strict = append(made.Complaints, made.Strict...)
	return made, nil
}

// removesVersion reports whether the patch has removed the apiVersion of an object of a built-in kind. kube-apiserver does
// not find the name of such an object.
func (p *Patch) removesVersion(t *resource.Type, document []byte) bool {
	// A JSON patch can replace the whole document without naming apiVersion.
	mayLack := p.Type == types.JSONPatchType || p.Type == types.MergePatchType && bytes.Contains(p.Bytes, []byte("apiVersion"))
	if t.Custom != nil || !mayLack {
		return false
	}
	head, err := wire.TypeMeta(document)
	return err == nil && head.APIVersion == ""
}

// otherVersion returns the version of a built-in kind that a document names, if it is another one
// than t.
func otherVersion(t *resource.Type, document []byte) *resource.Type {
	if t.Custom != nil || len(t.Versions) == 0 {
		return nil
	}
	head, err := wire.TypeMeta(document)
	if err != nil {
		return nil
	}
	for _, other := range t.Versions {
		if other != t && other.Kind == head.Kind && other.GroupVersion().String() == head.APIVersion {
			return other
		}
	}
	return nil
}

// treeError returns kube-apiserver's message for a document that cannot be decoded: the result of a
// strategic merge patch or of an apply. kube-apiserver does not encode that result as JSON, so its
// message differs from the decoder's. It is empty if there is no such error.
func treeError(document []byte, tree map[string]any, to runtime.Object) string {
	if wire.CheckQuantities(document, reflect.TypeOf(to)) != nil {
		return "" // the decoder reports it
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, to); err != nil {
		return err.Error()
	}
	return ""
}

// unknownFields returns kube-apiserver's messages for the unknown fields in the result of a
// strategic merge patch. Its paths do not have the keys of maps, unlike those of the decoder.
func unknownFields(tree map[string]any, to runtime.Object) (messages []string) {
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(tree, to, true)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, each := range strict.Errors() {
			messages = append(messages, each.Error())
		}
	}
	return messages
}

// invalidPatch returns the error for a patch whose result cannot be decoded.
func invalidPatch(made *patchedObject, why string) *apierrors.StatusError {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{
		field.Invalid(field.NewPath("patch"), made.Shown(), why),
	})
}

// strictPatch returns the error for a patch that fails strict field validation. Its code and message are
// those of any other body; its cause is that of invalidPatch.
func strictPatch(w *write, made *patchedObject) error {
	err := wire.StrictError(w.Exchanged(), made.Strict)
	err.ErrStatus.Details = &metav1.StatusDetails{
		Causes: invalidPatch(made, "strict decoding error: "+strings.Join(made.Strict, ", ")).ErrStatus.Details.Causes,
	}
	return err
}
