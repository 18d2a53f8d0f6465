package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// apply is server-side apply.
func (r *Registry) apply(ctx context.Context, w *write, b Body) (Object, error) {
	w.identify(ctx)
	body := b.Bytes
	if current := r.appliedBefore(w, body); current != nil {
		return w.response(current, false, nil)
	}
	if err := fairness.Widen(ctx, wire.Work(w.Type, b.Media, body)); err != nil {
		return Object{}, err
	}
	config, complaint, err := wire.Configuration(b.Media, body)
	var tooLarge *apierrors.StatusError
	switch {
	case errors.As(err, &tooLarge):
		return Object{}, err
	case err != nil:
		return Object{}, apierrors.NewBadRequest(err.Error())
	}
	if err := wire.CheckDepth(config); err != nil {
		return Object{}, apierrors.NewBadRequest(wire.DecodingPatch + err.Error())
	}
	created := false
	var unchanged *store.Object // if the apply changes nothing
	made, err := r.modify(ctx, w, objectChange{
		absent: func() (*store.Object, error) {
			made, err := r.createByApply(ctx, w, config, complaint)
			created = err == nil
			return made, err
		},
		next: func(v currentObject) (runtime.Object, error) {
			shown, err := w.show(v, resource.ForWrite)
			if err != nil {
				return nil, err
			}
			sent, changed, err := r.applied(ctx, w, w.owners.managedOf(v.stored), shown, config)
			if err != nil {
				return nil, err
			}
			if unchanged = nil; !changed {
				unchanged = v.stored
			}
			if err := w.reportDuplicates(complaint); err != nil {
				return nil, err
			}
			// Plugins see an apply that changes nothing, too. So do rules of custom resources, which may compare oldSelf.
			if !changed && (w.Type.Custom != nil || r.handles(w, r.Store.Any(), admissionv1.Update, readsObjects) || r.outdated(w)) {
				w.owners.setDecided(w.owners.managedOf(v.stored))
				return w.unchanged(v)
			}
			if !changed {
				w.warnings = append(w.warnings, w.updateWarnings(v.object, v.object)...)
				return nil, nil
			}
			if sent == nil { // only managed fields change, so no default is added
				return w.unchanged(v)
			}
			if err := w.checkPatched(v.stored, sent.(metav1.Object)); err != nil {
				return nil, err
			}
			return w.take(ctx, sent)
		},
	})
	if err == nil && made != nil && made == unchanged && complaint == "" && len(w.warnings) == 0 {
		r.unchanged.Add(r.application(w, body, made))
	}
	return w.response(made, created, err)
}

// appliedBefore returns the current object if an earlier apply of the same configuration to this
// version changed nothing. Otherwise it returns nil.
func (r *Registry) appliedBefore(w *write, body []byte) *store.Object {
	state := r.Store.Any()
	if r.handles(w, state, admissionv1.Update, readsObjects) {
		return nil // a plugin may decide differently now
	}
	current := state.Get(w.Type.Collection, w.key())
	if current == nil || !r.unchanged.Has(r.application(w, body, current)) || r.outdated(w) {
		return nil
	}
	return current
}

// outdated reports whether a write that changes nothing stores the object anew.
func (r *Registry) outdated(w *write) bool {
	return r.Store.Outdated(w.Type.Collection, w.key())
}

// application identifies an apply of a configuration to a version of an object. It includes the
// type, since that implies the API version of the request.
func (r *Registry) application(w *write, body []byte, current *store.Object) apply.Application {
	version := strconv.AppendUint(make([]byte, 0, 64), uint64(current.Modified), 10)
	version = append(append(version, ' '), current.Key...)
	force := w.options.Force != nil && *w.options.Force
	definition := ""
	if w.Type.Custom != nil {
		definition = w.Type.Custom.Stamp
	}
	return apply.NewApplication(string(version), body, r.writer(w), force, w.Type.Group, w.Type.Version, w.Type.Resource, definition)
}

// createByApply creates the object of an apply that found none.
func (r *Registry) createByApply(ctx context.Context, w *write, config []byte, complaint string) (*store.Object, error) {
	if w.Subresource != "" {
		return nil, w.notFound()
	}
	if err := w.allow("create"); err != nil {
		return nil, err
	}
	sent, _, err := r.applied(ctx, w, nil, nil, config)
	if err != nil {
		return nil, err
	}
	if err := w.reportDuplicates(complaint); err != nil {
		return nil, err
	}
	meta := sent.(metav1.Object)
	if uid := meta.GetUID(); uid != "" {
		return nil, conflict(w.Target, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if err := w.checkURL(meta); err != nil {
		return nil, err
	}
	meta.SetResourceVersion("") // no object has that version
	return r.create(ctx, w, sent)
}

// applied merges a configuration into the object or the part of it that the target has. If changed
// is false, the configuration is applied already. If changed is true and the object is nil, only
// the managed fields change.
func (r *Registry) applied(ctx context.Context, w *write, live, shown, config []byte) (o runtime.Object, changed bool, err error) {
	s, err := r.schema(ctx, w.Exchanged())
	if err != nil {
		return nil, false, err
	}
	scale, seen := w.replicas(), live
	if scale != nil {
		if seen, err = scale.ToScale(live); err != nil {
			return nil, false, err
		}
	}
	force := w.options.Force != nil && *w.options.Force
	next, managed, err := s.Apply(seen, shown, config, r.writer(w), force)
	if err != nil {
		return nil, false, err
	}
	if next == nil && bytes.Equal(managed, seen) {
		return nil, false, nil
	}
	if scale != nil {
		if managed, err = scale.FromScale(live, managed, w.Type.GroupVersion()); err != nil {
			return nil, false, err
		}
	}
	w.owners.setDecided(managed)
	if next == nil {
		return nil, true, nil
	}
	if err := fairness.Widen(ctx, wire.Work(w.Exchanged(), wire.JSON, next)); err != nil {
		return nil, true, err
	}
	if c := w.Exchanged().Custom; c != nil {
		o, err := c.DecodeMerged(next)
		return o, true, err
	}
	d, err := wire.Decode(w.Exchanged(), wire.JSON, next)
	var unread *wire.BodyError
	if errors.As(err, &unread) {
		err = w.unreadable(config, next, err)
	}
	return d.Object, true, err
}

// unreadable returns the error for an applied object that cannot be decoded, in the words of
// kube-apiserver, which converts it from a tree.
func (w *write) unreadable(config, next []byte, err error) error {
	t := w.Exchanged()
	var tree map[string]any
	why := ""
	if utiljson.Unmarshal(next, &tree) == nil {
		why = treeError(next, tree, t.New())
	}
	if why == "" {
		return err
	}
	at, kind := namespacedName(config), t.GroupVersionKind()
	return apierrors.NewBadRequest(fmt.Sprintf("failed to convert new object (%s; %s) to proper version: unable to convert unstructured object to %s: %s", at, kind, kind, why))
}

// namespacedName returns the namespace and the name in a configuration, with a slash between them.
func namespacedName(config []byte) string {
	return textAt(config, "metadata", "namespace") + "/" + textAt(config, "metadata", "name")
}

// reportDuplicates reports repeated keys of a configuration, as field validation wants it.
func (w *write) reportDuplicates(complaint string) error {
	switch {
	case complaint == "" || w.options.FieldValidation == metav1.FieldValidationIgnore:
	case w.options.FieldValidation == metav1.FieldValidationStrict:
		return apierrors.NewBadRequest("error strict decoding patch: " + complaint)
	default:
		w.warnings = append(w.warnings, wire.Warnings(complaint)...)
	}
	return nil
}
