package registry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/patch"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Patch is what a client sent to change an object.
type Patch struct {
	Type  types.PatchType
	Bytes []byte
}

// Patch changes an object, or what a subresource shows of it: rows G9, G10, F4.
// Without a resourceVersion in the patch it is made again on whatever version is
// there.
func (r *Registry) Patch(ctx context.Context, t Target, p Patch, o WriteOptions) (Object, error) {
	w, err := newWrite(t, &o, "PatchOptions", p.Type)
	if err != nil {
		return Object{}, err
	}
	if m := wire.AppliedMedium(p.Type); m != "" {
		return r.apply(ctx, w, Body{Media: m, Bytes: p.Bytes})
	}
	if err := wire.CheckDepth(p.Bytes); err != nil {
		return Object{}, apierrors.NewBadRequest("error decoding patch: " + err.Error())
	}
	made, err := r.modify(ctx, w, objectChange{next: func(v currentObject) (runtime.Object, error) {
		sent, err := w.patched(v, &p)
		if err != nil {
			return nil, err
		}
		if err := w.checkPatched(v.stored, sent.(metav1.Object)); err != nil {
			return nil, err
		}
		return w.merge(ctx, v.object, sent)
	}})
	return w.answer(made, false, err)
}

// patched is what the patch makes of what is read at the target. Where it says
// nothing of managed fields it is made without them first; where then something is
// wrong it is made again, for the words.
func (w *write) patched(v currentObject, p *Patch) (runtime.Object, error) {
	document, err := w.show(v)
	if err != nil {
		return nil, err
	}
	if p.Type != types.JSONPatchType && !bytes.Contains(p.Bytes, []byte("managedFields")) {
		lean := withoutManaged(document, locateManaged(document))
		if _, d, err := w.patchDocument(lean, p); err == nil && len(d.Strict) == 0 {
			return d.Object, nil
		}
	}
	made, d, err := w.patchDocument(document, p)
	if err != nil {
		return nil, err
	}
	switch {
	case len(d.Strict) == 0 || w.options.FieldValidation == metav1.FieldValidationIgnore:
	case w.options.FieldValidation == metav1.FieldValidationStrict:
		return nil, strictPatch(w, &made, d.Strict)
	default:
		w.warnings = append(w.warnings, wire.Warnings(d.Strict...)...)
	}
	return d.Object, nil
}

// patchDocument makes a patch, and reads what it makes; the complaints are about
// both.
func (w *write) patchDocument(document []byte, p *Patch) (made patch.Patched, d wire.Decoded, err error) {
	t := w.Exchanged()
	switch p.Type {
	case types.JSONPatchType:
		made, err = patch.JSON(document, p.Bytes)
	case types.MergePatchType:
		made, err = patch.Merge(document, p.Bytes)
	default:
		made, err = patch.Strategic(document, p.Bytes, t.New())
	}
	if err != nil {
		return made, d, err
	}
	d, err = wire.Decode(t, wire.JSON, made.Document)
	var unread *wire.BodyError
	if errors.As(err, &unread) {
		why := unread.Cause
		if p.Type == types.StrategicMergePatchType {
			why = cmp.Or(strategicError(made.Document, t.New()), why)
		}
		return made, d, invalidPatch(&made, why)
	}
	d.Strict = append(made.Complaints, d.Strict...)
	return made, d, err
}

// unrestored says in the words of kube-apiserver, which makes no JSON of such patches in
// between, why their result cannot be read; empty when it finds nothing.
func strategicError(document []byte, to runtime.Object) string {
	var tree map[string]any
	if err := utiljson.Unmarshal(document, &tree); err != nil {
		return ""
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, to); err != nil {
		return err.Error()
	}
	return ""
}

// invalidPatch is the answer to a patch whose result cannot be read: row F4.
func invalidPatch(made *patch.Patched, why string) *apierrors.StatusError {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{
		field.Invalid(field.NewPath("patch"), made.Shown(), why),
	})
}

// strictPatch is the answer to a patch that breaks strict field validation: with
// the code and the words of any other body (row F3), and the cause of row F4.
func strictPatch(w *write, made *patch.Patched, complaints []string) error {
	err := wire.StrictError(w.Exchanged(), complaints)
	err.ErrStatus.Details = &metav1.StatusDetails{
		Causes: invalidPatch(made, "strict decoding error: "+strings.Join(complaints, ", ")).ErrStatus.Details.Causes,
	}
	return err
}
