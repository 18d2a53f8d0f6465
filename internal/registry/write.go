package registry

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// WriteOptions are the parameters of create, update and patch. The verbs check them.
type WriteOptions struct {
	DryRun          []string
	FieldManager    string
	FieldValidation string
	// Force makes an apply take over fields of other managers; nil: not given.
	Force *bool
	// UserAgent names the field manager if FieldManager is empty.
	UserAgent string
	// By is the client; nil: the server itself.
	By *authn.User
	// Allow returns an error unless the client may use another verb on the target, too. An
	// update or an apply that creates the object needs "create". Nil: every verb is allowed.
	Allow func(verb string) error
	// Sent is called with the decoded body of a create or an update, before defaults are set.
	// It may be called several times. It must not change the object, nor keep it. Unless
	// SentWhole is true, the object may lack its managed fields. Nil: it is not called.
	Sent      func(o runtime.Object)
	SentWhole bool
}

// write is one request that writes. One goroutine uses it.
type write struct {
	Target
	source source
	// verb is that of the request, for the origin of its changes.
	verb store.Verb
	// options are nil for a deletion, deletion is nil for anything else.
	options  *WriteOptions
	deletion *metav1.DeleteOptions
	by       *authn.User
	// as is the user that webhooks and policies see; nil: they do not see the write.
	as *authn.User
	// dryRun reports whether the request is a dry-run: it is not committed.
	dryRun bool
	// virtual is set if the body is not a stored object, and is admitted as it is.
	virtual bool
	// collection is set if the deletion is part of a deletecollection.
	collection bool
	// mutated is set once the mutating plugins have been called.
	mutated bool
	// cleared is set if the next version lacks fields of disabled features that were sent.
	cleared bool
	// freed is the version of an object that a deletion has marked, and that nothing delays: any write removes it.
	freed *store.Object
	// committed is set once the request has stored or removed something.
	committed bool
	owners    ownership
	// final is the encoding of the object finalOf, which a webhook has seen; nil: there is none.
	final   wire.Encoded
	finalOf runtime.Object
	// warnings are sent with the response, also with an error.
	warnings []string
	// attrs are the attributes of the last attempt, nil if no plugin was called.
	attrs *Attributes
}

// source is the origin of the next version of an object.
type source uint8

const (
	fromBody source = iota
	fromPatch
	// fromVirtual: a VirtualHandler changes or deletes the object, which keeps its generation
	// and its managed fields. Admission has seen the body that the client sent to the handler.
	fromVirtual
	// fromServer: the server itself writes.
	fromServer
)

// admitted reports whether the mutating and validating plugins see the write. The others are
// a part of a request that they have seen.
func (w *write) admitted() bool { return w.source != fromVirtual && w.source != fromServer }

// newWrite checks the options. Kind is "CreateOptions", "UpdateOptions" or "PatchOptions".
func newWrite(t Target, o *WriteOptions, kind string, patch types.PatchType) (*write, error) {
	dryRun := nonEmpty(o.DryRun)
	var errs field.ErrorList
	if kind == "PatchOptions" {
		errs = metav1validation.ValidatePatchOptions(&metav1.PatchOptions{
			DryRun: dryRun, Force: o.Force, FieldManager: o.FieldManager, FieldValidation: o.FieldValidation,
		}, patch)
	} else {
		errs = metav1validation.ValidateDryRun(field.NewPath("dryRun"), dryRun)
		errs = append(errs, metav1validation.ValidateFieldManager(o.FieldManager, field.NewPath("fieldManager"))...)
		errs = append(errs, metav1validation.ValidateFieldValidation(field.NewPath("fieldValidation"), o.FieldValidation)...)
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
	}
	w := &write{Target: t, options: o, by: o.By, dryRun: len(dryRun) > 0}
	switch {
	case kind == "CreateOptions":
		w.verb = store.VerbCreate
	case kind == "UpdateOptions":
		w.verb = store.VerbUpdate
	case wire.AppliedMedium(patch) != "":
		w.verb, w.source = store.VerbApply, fromPatch
	default:
		w.verb, w.source = store.VerbPatch, fromPatch
	}
	return w, nil
}

// nonEmpty drops empty values: `dryRun=` requests no dry-run.
func nonEmpty(values []string) []string {
	var all []string
	for _, v := range values {
		if v != "" {
			all = append(all, v)
		}
	}
	return all
}

// allow returns an error unless the client may use another verb on the target, too.
func (w *write) allow(verb string) error {
	if w.options == nil || w.options.Allow == nil {
		return nil
	}
	return w.options.Allow(verb)
}

// response returns the response of a verb. Warnings go out with errors, too.
func (w *write) response(o *store.Object, created bool, err error) (Object, error) {
	return Object{Stored: o, Created: created, Warnings: w.warnings, Annotations: w.annotations(), committed: w.committed}, status(err)
}

// annotations returns the audit annotations of the last attempt.
func (w *write) annotations() map[string]string {
	if w.attrs == nil {
		return nil
	}
	return w.attrs.annotations
}

// sent passes the decoded body to WriteOptions.Sent.
func (w *write) sent(o runtime.Object) {
	if w.options.Sent != nil {
		w.options.Sent(o)
	}
}

// decode decodes the body and applies field validation: an error for Strict, warnings for Warn.
func (w *write) decode(ctx context.Context, b Body) (runtime.Object, error) {
	t := w.Exchanged()
	if err := fairness.Widen(ctx, wire.Work(t, b.Media, b.Bytes)); err != nil {
		return nil, err
	}
	d, err := wire.Decode(t, b.Media, b.Bytes)
	if err != nil {
		return nil, err
	}
	if sent, want := d.Object.GetObjectKind().GroupVersionKind().GroupVersion(), t.GroupVersion(); t.Custom != nil && sent != want {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", sent, want))
	}
	switch {
	case len(d.Strict) == 0 || w.options.FieldValidation == metav1.FieldValidationIgnore:
	case w.options.FieldValidation == metav1.FieldValidationStrict:
		return nil, wire.StrictError(t, d.Strict)
	default:
		w.warnings = append(w.warnings, wire.Warnings(d.Strict...)...)
	}
	return d.Object, nil
}

// checkURL checks the name and the namespace of a body against the URL.
func (w *write) checkURL(meta metav1.Object) error {
	if err := checkName(w.Target, meta); err != nil {
		return err
	}
	return setNamespace(w.Target, meta)
}

// ownerReference is an owner reference as a comparable value.
type ownerReference struct {
	metav1.OwnerReference // without its pointers
	controller, blocks    optionalBool
}

// optionalBool is the value of a *bool.
type optionalBool struct{ set, value bool }

func optional(b *bool) optionalBool {
	if b == nil {
		return optionalBool{}
	}
	return optionalBool{true, *b}
}

// dedupOwners drops owner references that equal an earlier one, with a warning. References to one
// owner that differ in any field all stay.
func (w *write) dedupOwners(meta metav1.Object) {
	kept, twice := uniqueOwners(meta.GetOwnerReferences())
	if len(twice) == 0 {
		return
	}
	meta.SetOwnerReferences(kept)
	when := ""
	if w.source == fromPatch || w.mutated {
		when = " after mutating admission happens"
	}
	w.warnings = append(w.warnings, fmt.Sprintf(".metadata.ownerReferences contains duplicate entries%s; API server dedups owner references in 1.20+, "+
		"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %s", when, strings.Join(twice, ", ")))
}

// uniqueOwners returns the owner references that do not equal an earlier one, and the UIDs of the others.
func uniqueOwners(owners []metav1.OwnerReference) (kept []metav1.OwnerReference, twice []string) {
	if len(owners) < 2 {
		return owners, nil
	}
	seen := make(map[ownerReference]bool, len(owners))
	for _, o := range owners {
		key := ownerReference{o, optional(o.Controller), optional(o.BlockOwnerDeletion)}
		key.Controller, key.BlockOwnerDeletion = nil, nil
		if seen[key] {
			twice = append(twice, string(o.UID))
			continue
		}
		seen[key] = true
		kept = append(kept, o)
	}
	return kept, twice
}

// begin resets the write for another attempt.
func (w *write) begin() {
	w.owners = ownership{}
	w.warnings = w.warnings[:0:0]
	w.mutated = false
}
