package registry

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/uuid"
)

// nameAttempts is how often a generated name is tried: row G4.
const nameAttempts = 8

// Create stores a new object: rows A7 to A9, A13, A14, G4 to G6.
func (r *Registry) Create(ctx context.Context, t Target, b Body, o WriteOptions) (Object, error) {
	w, err := newWrite(t, &o, "CreateOptions", "")
	if err != nil {
		return Object{}, err
	}
	sent, err := w.decode(b)
	if err != nil {
		return w.answer(nil, false, err)
	}
	made, err := r.create(ctx, w, sent)
	return w.answer(made, true, err)
}

// create stores what a client sent as a new object.
func (r *Registry) create(ctx context.Context, w *write, sent runtime.Object) (*store.Object, error) {
	meta := sent.(metav1.Object)
	if err := placeNamespace(w.Target, meta); err != nil {
		return nil, err
	}
	if c := w.Type.Custom; c != nil && c.Terminating {
		return nil, apierrors.NewForbidden(w.Type.GroupResource(), meta.GetName(), errors.New("create not allowed while custom resource definition is terminating"))
	}
	named := w.Target
	named.Name = meta.GetName()
	if err := r.checkNamespace(named); err != nil {
		return nil, err
	}
	defer r.end(w)
	generate := meta.GetName() == "" && meta.GetGenerateName() != ""
	if generate {
		meta.SetName(generateName(meta.GetGenerateName()))
	}
	next, err := r.prepareCreate(ctx, w, sent)
	if err != nil {
		return nil, err
	}
	return r.insert(ctx, w, next, generate)
}

// prepareCreate makes what is stored from what a client sent.
func (r *Registry) prepareCreate(ctx context.Context, w *write, sent runtime.Object) (runtime.Object, error) {
	version, err := bodyVersion(sent.(metav1.Object))
	if err != nil {
		return nil, err
	}
	next, err := toStored(ctx, w.Type, sent)
	if err != nil {
		return nil, err
	}
	meta, st := next.(metav1.Object), w.stored()
	w.takeManaged(meta)
	w.dedupOwners(meta)
	meta.SetUID(types.UID(uuid.New()))
	meta.SetCreationTimestamp(metav1.NewTime(r.now().UTC().Truncate(1e9)))
	meta.SetDeletionTimestamp(nil)
	meta.SetDeletionGracePeriodSeconds(nil)
	meta.SetSelfLink("")
	s := &st.Strategy
	if g := s.Generation.Initial; g != 0 {
		meta.SetGeneration(g)
	}
	if !s.Status.KeepOnCreate {
		clearStatus(st, next)
	}
	if s.Status.New != nil {
		s.Status.New(next)
	}
	refusal, err := r.complete(ctx, w, next)
	if err != nil {
		return nil, err
	}
	errs := w.validateNew(ctx, next)
	if err := ctx.Err(); err != nil { // rules can take long
		return nil, err
	}
	if err := invalid(st, meta, errs); err != nil {
		return nil, err
	}
	if s.Warnings != nil {
		w.warnings = append(w.warnings, s.Warnings(next, nil)...)
	}
	if refusal != nil {
		return nil, refusal
	}
	if version != 0 {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	return next, r.admit(ctx, w, next, nil)
}

// validateNew checks a new object.
func (w *write) validateNew(ctx context.Context, o runtime.Object) field.ErrorList {
	st := w.stored()
	errs := validateNew(st, o.(metav1.Object))
	check := st.Strategy.Validate
	if own := w.Type.Strategy.Validate; own != nil {
		check = own
	}
	if check == nil {
		return errs
	}
	of := check(ctx, o)
	if st.Strategy.Metadata.Recheck == resource.RecheckNothing && len(of) > 0 {
		return of
	}
	return append(errs, of...)
}

// complete sets what only the server may set in a new object. What the client sent
// is what it owns. The refusal comes after validation.
func (r *Registry) complete(ctx context.Context, w *write, object runtime.Object) (refusal, err error) {
	st, by, completing := &w.stored().Strategy, w.options.By, r.Completing[w.Type.Collection]
	reserve := r.Reserve[w.Type.Collection]
	if st.PrepareCreate == nil && (st.SetCreator == nil || by == nil) && completing == nil && reserve == nil {
		return nil, nil
	}
	if w.asSent, err = clientBytes(ctx, w.Type, object); err != nil {
		return nil, err
	}
	a := &Admission{Target: w.Target, Verb: "create", Object: object, DryRun: w.dryRun}
	for _, step := range completing {
		if err := step(ctx, a); err != nil {
			return nil, err
		}
		w.warnings = append(w.warnings, a.Warnings...)
		a.Warnings = nil
	}
	if st.PrepareCreate != nil {
		st.PrepareCreate(object)
	}
	if st.SetCreator != nil && by != nil {
		st.SetCreator(object, by.Info())
	}
	if reserve != nil {
		w.release, err = reserve(object, nil, w.dryRun)
	}
	return a.Refusal, err
}

// reserve completes an object that was changed.
func (r *Registry) reserve(ctx context.Context, w *write, next, old runtime.Object) (err error) {
	w.asSent = nil
	reserve := r.Reserve[w.Type.Collection]
	if reserve == nil || w.Subresource != "" {
		return nil
	}
	if w.asSent, err = clientBytes(ctx, w.Type, next); err != nil {
		return err
	}
	w.release, err = reserve(next, old, w.dryRun)
	return err
}

// end lets go of what was reserved for the write, which has ended, and tells those who
// wanted to know.
func (r *Registry) end(w *write) {
	if w.era != nil {
		defer r.writes.leave(w.era)
		w.era = nil
	}
	for _, release := range []*func(){&w.release, &w.follows} {
		if *release != nil {
			(*release)()
			*release = nil
		}
	}
	for _, f := range w.ends {
		f(w.isStored)
	}
	w.ends, w.isStored = nil, false
}

// insert stores a new object; a generated name that is taken is generated again.
func (r *Registry) insert(ctx context.Context, w *write, object runtime.Object, generate bool) (*store.Object, error) {
	meta, t := object.(metav1.Object), w.Target
	for attempt := 1; ; attempt++ {
		t.Name = meta.GetName()
		e, _, err := r.encode(ctx, w, nil, object)
		if err == nil {
			err = checkSize(e, nil)
		}
		if err != nil {
			return nil, err
		}
		c := store.Write{Collection: t.Type.Collection, Key: t.key(), Value: e.Bytes, RevisionAt: e.RevisionAt}
		if c.Then, err = r.follow(ctx, w, e, object, nil); err != nil {
			return nil, err
		}
		made, err := r.commit(ctx, w, c)
		switch {
		case err == nil:
			return made, nil
		case !errors.Is(err, store.ErrExists):
			return nil, err
		case !generate, attempt == nameAttempts:
			return nil, r.exists(t, meta.GetGenerateName() != "")
		}
		meta.SetName(generateName(meta.GetGenerateName()))
	}
}

// exists is the answer to a name that is taken, maybe by an object that is on its
// way out: rows D3, G4.
func (r *Registry) exists(t Target, generated bool) error {
	return &takenError{r.existsStatus(t, generated)}
}

// takenError is the answer to a name that is taken; it is store.ErrExists.
type takenError struct{ *apierrors.StatusError }

func (e *takenError) Is(target error) bool { return target == store.ErrExists }

func (r *Registry) existsStatus(t Target, generated bool) *apierrors.StatusError {
	err := apierrors.NewAlreadyExists(t.Type.GroupResource(), t.Name)
	if generated {
		err = apierrors.NewGenerateNameConflict(t.Type.GroupResource(), t.Name, 1)
	}
	if o := r.Store.Any().Get(t.Type.Collection, t.key()); o != nil && isDeleted(o) {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}

// isDeleted tells whether the deletion of an object has begun.
func isDeleted(o *store.Object) bool {
	return at(o.Bytes(), []string{"metadata", "deletionTimestamp"}) != ""
}

// checkNamespace requires that the namespace of a new object is there and stays:
// row A9.
func (r *Registry) checkNamespace(t Target) error {
	if !t.Type.Namespaced || t.Namespace == "" {
		return nil
	}
	ns := r.Store.Any().Get("namespaces", t.Namespace)
	if ns == nil {
		return apierrors.NewNotFound(schemaNamespaces, t.Namespace)
	}
	if !isDeleted(ns) {
		return nil
	}
	err := apierrors.NewForbidden(t.Type.GroupResource(), t.Name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", t.Namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    "NamespaceTerminating",
		Message: fmt.Sprintf("namespace %s is being terminated", t.Namespace),
		Field:   "metadata.namespace",
	})
	return err
}
