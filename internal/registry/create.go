package registry

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/uuid"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// nameAttempts is how many generated names a create tries.
const nameAttempts = 8

// Create stores a new object.
func (r *Registry) Create(ctx context.Context, t Target, b Body, o WriteOptions) (Object, error) {
	return r.confirmed(ctx, func() (Object, error) { return r.attemptCreate(ctx, t, b, o) })
}

// attemptCreate is the attempt of Create for confirmed.
func (r *Registry) attemptCreate(ctx context.Context, t Target, b Body, o WriteOptions) (Object, error) {
	w, err := newWrite(t, &o, "CreateOptions", "")
	if err != nil {
		return Object{}, err
	}
	w.identify(ctx)
	for names := 1; ; {
		w.begin()
		sent, err := w.decode(ctx, b)
		if err != nil {
			return w.response(nil, false, err)
		}
		w.sent(sent)
		meta := sent.(metav1.Object)
		generates := meta.GetName() == "" && meta.GetGenerateName() != ""
		made, err := r.create(ctx, w, sent)
		switch {
		case restarts(err):
			if err := ctx.Err(); err != nil {
				return w.response(nil, false, err)
			}
		case generates && isTaken(err) && names < nameAttempts:
			names++ // admission has to see the next name, too
		default:
			return w.response(made, true, err)
		}
	}
}

// create stores a decoded object as a new one. The error is store.ErrStale if the request has to
// start again.
func (r *Registry) create(ctx context.Context, w *write, sent runtime.Object) (*store.Object, error) {
	meta := sent.(metav1.Object)
	if err := setNamespace(w.Target, meta); err != nil {
		return nil, err
	}
	if c := w.Type.Custom; c != nil && c.Terminating {
		return nil, apierrors.NewForbidden(w.Type.GroupResource(), meta.GetName(), errors.New("create not allowed while custom resource definition is terminating"))
	}
	at := w.Target
	at.Name = meta.GetName()
	state, err := r.openNamespace(ctx, at, w.dryRun)
	if err != nil {
		return nil, err
	}
	a := r.attributes(w, admissionv1.Create, state, nil, nil)
	a.Name, a.sentName, a.NameGenerated = at.Name, at.Name, at.Name == "" && meta.GetGenerateName() != ""
	next, err := r.prepareCreate(ctx, w, a, sent)
	if err != nil {
		return nil, err
	}
	e, _, err := r.encode(ctx, w, nil, next)
	if err == nil {
		err = checkSize(e, nil)
	}
	if err != nil {
		return nil, err
	}
	at.Name = a.Name
	made, err := r.commit(ctx, a, store.Write{Collection: at.Type.Collection, Key: at.key(), Value: e.Bytes, RevisionAt: e.RevisionAt})
	if errors.Is(err, store.ErrExists) {
		err = r.exists(at, a.NameGenerated)
	}
	return made, err
}

// generateName returns a name that no object has in a state. Another request may take the name
// before this object is stored.
func (r *Registry) generateName(s *store.State, t Target, base string) string {
	for range nameAttempts {
		t.Name = r.randomName(base)
		if s.Get(t.Type.Collection, t.key()) == nil {
			break
		}
	}
	return t.Name
}

// randomName returns the base with a random suffix.
func (r *Registry) randomName(base string) string {
	if r.GenerateName != nil {
		return r.GenerateName(base)
	}
	return r.withSuffix(base)
}

// prepareCreate makes the object to store from the decoded body.
func (r *Registry) prepareCreate(ctx context.Context, w *write, a *Attributes, sent runtime.Object) (runtime.Object, error) {
	if _, err := bodyVersion(sent.(metav1.Object)); err != nil {
		return nil, err
	}
	next, err := toStored(ctx, w.Type, sent)
	if err != nil {
		return nil, err
	}
	meta, st := next.(metav1.Object), w.stored()
	w.owners.forget()
	w.owners.takeFrom(meta)
	w.dedupOwners(meta)
	wipeSystemFields(meta)
	a.Object = next
	if err := r.mutateCreate(ctx, w, a); err != nil {
		return nil, err
	}
	next, meta = a.Object, a.Object.(metav1.Object)
	version, err := bodyVersion(meta)
	if err != nil {
		return nil, err
	}
	if err := r.complete(ctx, w, a); err != nil {
		return nil, err
	}
	errs, err := r.causes(ctx, a)
	if err != nil {
		return nil, err
	}
	errs = append(errs, w.validateNew(ctx, next)...)
	if err := ctx.Err(); err != nil { // validation rules can take long
		return nil, err
	}
	if err := invalid(st, meta, errs); err != nil {
		return nil, err
	}
	if warn := st.Strategy.Warnings; warn != nil {
		w.warnings = append(w.warnings, warn(next, nil)...)
	}
	if a.sentVersion = version; version != 0 && !a.DryRun {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	return next, r.admit(ctx, a)
}

// wipeSystemFields clears the metadata that only the server sets.
func wipeSystemFields(meta metav1.Object) {
	meta.SetUID("")
	meta.SetCreationTimestamp(metav1.Time{})
	meta.SetDeletionTimestamp(nil)
	meta.SetDeletionGracePeriodSeconds(nil)
	meta.SetSelfLink("")
}

// mutateCreate calls the mutating plugins for a new object, and sets its name. The client's manager
// owns the fields that the client sent, not those that plugins or the server set.
func (r *Registry) mutateCreate(ctx context.Context, w *write, a *Attributes) (err error) {
	s := &w.stored().Strategy
	plugins := a.any(changesObjects)
	unknown := s.Disabled != nil && s.Disabled(a.Object, nil, true)
	if s.PrepareCreate != nil || s.SetCreator != nil && w.by != nil || plugins || unknown || wire.HasEmpty(a.Object) {
		if w.owners.client, err = clientBytes(ctx, w.Type, a.Object); err != nil {
			return err
		}
	}
	if plugins {
		if err := r.mutate(ctx, a); err != nil {
			return err
		}
		meta := a.Object.(metav1.Object)
		wipeSystemFields(meta)
		w.mutated = true
		w.dedupOwners(meta)
		if err := setNamespace(w.Target, meta); err != nil {
			return err
		}
		// Without any name, the object is invalid: validation reports that.
		if w.Name != "" && (meta.GetName() != "" || meta.GetGenerateName() != "") {
			if err := checkName(w.Target, meta); err != nil {
				return err
			}
		}
	}
	meta := a.Object.(metav1.Object)
	if meta.GetName() == "" && meta.GetGenerateName() != "" {
		meta.SetName(r.generateName(a.State, w.Target, meta.GetGenerateName()))
	} else {
		a.NameGenerated = false
	}
	a.Name = meta.GetName()
	return nil
}

// complete sets the fields of a new object that only the server sets.
func (r *Registry) complete(ctx context.Context, w *write, a *Attributes) error {
	next, meta, st := a.Object, a.Object.(metav1.Object), w.stored()
	s := &st.Strategy
	var uid [16]byte
	r.random(uid[:])
	meta.SetUID(types.UID(uuid.From(uid)))
	meta.SetCreationTimestamp(metav1.NewTime(r.now().UTC().Truncate(1e9)))
	if g := s.Generation.Initial; g != 0 {
		meta.SetGeneration(g)
	}
	emptyStatus(st, next)
	if s.PrepareCreate != nil {
		s.PrepareCreate(next)
	}
	if s.Disabled != nil {
		s.Disabled(next, nil, false)
	}
	if s.SetCreator != nil && w.by != nil {
		s.SetCreator(next, w.by.Info())
	}
	return r.finish(ctx, a)
}

// emptyStatus gives a new object its initial status.
func emptyStatus(st *resource.Type, next runtime.Object) {
	if !st.Strategy.Status.KeepOnCreate {
		clearStatus(st, next)
	}
	if start := st.Strategy.Status.New; start != nil {
		start(next)
	}
}

// validateNew validates a new object.
func (w *write) validateNew(ctx context.Context, o runtime.Object) field.ErrorList {
	st := w.stored()
	errs := validateNewMeta(st, o.(metav1.Object))
	check := st.Strategy.Validate
	if own := w.Type.Strategy.Validate; own != nil {
		check = own
	}
	if check != nil {
		of := check(ctx, o)
		if st.Strategy.Metadata.Recheck == resource.RecheckNothing && len(of) > 0 {
			errs = nil
		}
		errs = append(errs, of...)
	}
	return declaredErrors(ctx, st, errs, o, nil, "")
}

// declaredErrors adds the errors of the rules that the Go type of a kind declares.
func declaredErrors(ctx context.Context, st *resource.Type, errs field.ErrorList, o, old runtime.Object, subresource string) field.ErrorList {
	if st.Strategy.Declared == nil {
		return errs
	}
	return st.Strategy.Declared(ctx, errs, o, old, subresource)
}

// exists returns the error for a name that is taken. Its message mentions it if that object is
// being deleted.
func (r *Registry) exists(t Target, generated bool) error {
	return &takenError{r.existsStatus(t, generated)}
}

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
