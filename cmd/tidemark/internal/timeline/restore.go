package timeline

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/changes"
)

// RestoreOptions are the flags of restore.
type RestoreOptions struct {
	At     string
	DryRun bool
}

// ownMetadata is metadata that the server sets.
var ownMetadata = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"}

// Restore writes an older state of objects.
func (e *Env) Restore(ctx context.Context, args []string, o RestoreOptions) error {
	if o.At == "" {
		return usagef("--at is missing: name the instant of the state, such as --at=-10m")
	}
	at, err := changes.ParseInstant(o.At, e.Now)
	if err != nil {
		return usagef("--at: %w", err)
	}
	if err := e.writable(); err != nil {
		return err
	}
	all, err := e.targets(ctx, args, "")
	if err != nil {
		return err
	}
	if at, err = e.pin(ctx, at); err != nil {
		return err
	}
	for _, t := range all {
		if t.name == "" {
			return usagef("%s: want RESOURCE/NAME, such as deploy/web", t.resource.Name())
		}
		if err := e.restore(ctx, t, at, o); err != nil {
			return err
		}
	}
	return nil
}

func (e *Env) restore(ctx context.Context, t target, at changes.Instant, o RestoreOptions) error {
	namespace := e.namespaceOf(t.resource)
	now := changes.Instant{Now: true}
	is, err := e.get(ctx, now, t.resource, namespace, t.name)
	if err != nil {
		return err
	}
	was, err := e.get(ctx, at, t.resource, namespace, t.name)
	switch {
	case err != nil:
		return err
	case was == nil:
		return fmt.Errorf("%s was not there at %s", t, at)
	case is == nil:
		return fmt.Errorf("%s is not there: tidemark undelete %s%s --at=%s brings it back", t, t, flagOf(namespace), at)
	}
	next, err := restored(was, is)
	if err != nil {
		return err
	}
	kinds := &schemas{env: e}
	if len(kinds.fields(ctx, is, next, false, "")) == 0 {
		_, err := fmt.Fprintf(e.Out, "%s unchanged: it is as it was at %s\n", t, at)
		return err
	}
	v := url.Values{"fieldManager": {"tidemark-restore"}}
	dry := ""
	if o.DryRun {
		v.Set("dryRun", "All")
		dry = " (server dry run)"
	}
	made, err := e.write(ctx, http.MethodPut, t.resource.path(namespace, t.name)+"?"+v.Encode(), next)
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%s changed in between; nothing was written: %w", t, err)
	}
	if err != nil {
		return err
	}
	if o.DryRun {
		c := &changedObject{resource: t.resource.Name(), namespace: namespace, name: t.name, before: is, after: made, on: t.resource}
		if err := e.printDifferences([]*changedObject{c}, now, at, DiffOptions{}); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(e.Out, "%s restored to its state at %s%s\n", t, at, dry)
	return err
}

// restored returns the older state as an update of the present object. The status, and the metadata that the server sets,
// are those of the present.
func restored(was, is *Object) (*Object, error) {
	next, err := parseObject(was.raw)
	if err != nil {
		return nil, err
	}
	m, present := next.metadata(), is.metadata()
	for _, name := range ownMetadata {
		delete(m, name)
		if v, ok := present[name]; ok && name != "managedFields" {
			m[name] = v
		}
	}
	if status, ok := is.tree["status"]; ok {
		next.tree["status"] = status
	} else {
		delete(next.tree, "status")
	}
	next.raw, err = json.Marshal(next.tree)
	return next, err
}
