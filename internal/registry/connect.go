package registry

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// Connection is the response of Connect.
type Connection struct {
	// Options are the options of the connection as plugins have changed them.
	Options runtime.Object
	// Warnings are for the headers of the response, Annotations for the audit event of the
	// request, both also with an error.
	Warnings    []string
	Annotations map[string]string
}

// AdmitsConnections reports whether any plugin handles a connection to the target, which has the
// subresource. Otherwise Connect does nothing.
func (r *Registry) AdmitsConnections(t Target, by *authn.User) bool {
	w := &write{Target: t, by: by, as: by}
	return r.handles(w, r.Store.Any(), admissionv1.Connect, readsObjects)
}

// Connect calls the plugins for a connection to an object. They may change its options. The object
// may not exist.
func (r *Registry) Connect(ctx context.Context, t Target, options runtime.Object, by *authn.User) (Connection, error) {
	w := &write{Target: t, by: by, as: by, virtual: true, options: &WriteOptions{}}
	if _, err := r.Store.MostRecent(ctx); err != nil {
		return Connection{}, readStatus(err)
	}
	a := r.attributes(w, admissionv1.Connect, r.Store.Any(), options, nil)
	a.Kind = formOf(t.Type, t.Subresource).Kind
	err := r.mutate(ctx, a)
	if err == nil {
		err = r.admit(ctx, a)
	}
	return Connection{Options: a.Object, Warnings: w.warnings, Annotations: w.annotations()}, status(err)
}

// isConnection reports whether the bodies of the target are the options of a connection.
func (t Target) isConnection() bool {
	s := t.subresource()
	return s != nil && s.Options != nil
}
