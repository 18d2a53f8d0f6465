package registry

import (
	"context"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// Place names what an Action answers: a virtual resource, or a subresource that is
// created.
type Place struct {
	schema.GroupResource
	Subresource string
}

// Action answers a create that stores nothing under the name it was sent to: row
// A10. It returns the answer, which may be what was sent, completed; nil: a Status
// that says that it was done. It is safe for concurrent use.
type Action func(ctx context.Context, c *Call) (runtime.Object, error)

// Call is what an Action is asked.
type Call struct {
	Target Target
	// Sent is the body: decoded, in the namespace of the request.
	Sent runtime.Object
	// By is who asks.
	By *authn.User
	// DryRun: nothing may be stored.
	DryRun bool
}

// Answer is that of an Action.
type Answer struct {
	// Value is the JSON of the answer.
	Value []byte
	// Status is set instead when the answer is a Status.
	Status *metav1.Status
	// Warnings go out as headers.
	Warnings []string
}

// Acts tells whether a create of the target is answered by an Action.
func (r *Registry) Acts(t Target) bool { return r.Actions[t.place()] != nil }

func (t Target) place() Place { return Place{t.Type.GroupResource(), t.Subresource} }

// accessReviews are answered in every namespace: an error would tell those who may
// not see a namespace whether it exists.
var accessReviews = Place{GroupResource: schema.GroupResource{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}}

// Act has an Action answer a create: rows A8, A10, A13, F1 to F5, R2.
func (r *Registry) Act(ctx context.Context, t Target, b Body, o WriteOptions) (Answer, error) {
	w, err := newWrite(t, &o, "CreateOptions", "")
	if err != nil {
		return Answer{}, err
	}
	sent, err := w.decode(b)
	if err != nil {
		return Answer{Warnings: w.warnings}, err
	}
	named := t
	if meta, ok := sent.(metav1.Object); ok {
		if err := placeNamespace(t, meta); err != nil {
			return Answer{Warnings: w.warnings}, err
		}
		if named.Name == "" {
			named.Name = meta.GetName()
		}
	}
	if t.place() != accessReviews {
		if err := r.checkNamespace(named); err != nil {
			return Answer{Warnings: w.warnings}, err
		}
	}
	made, err := r.Actions[t.place()](ctx, &Call{Target: t, Sent: sent, By: o.By, DryRun: w.dryRun})
	if err != nil {
		return Answer{Warnings: w.warnings}, status(err)
	}
	if made == nil {
		return Answer{Status: &metav1.Status{Status: metav1.StatusSuccess, Code: 201}, Warnings: w.warnings}, nil
	}
	made.GetObjectKind().SetGroupVersionKind(t.Exchanged().GroupVersionKind())
	value, err := json.Marshal(made)
	return Answer{Value: value, Warnings: w.warnings}, err
}

// Identity is what tells one object from another of the same name.
type Identity struct {
	UID string
	// Deleted is when the object has to be gone; zero: it was not deleted.
	Deleted time.Time
}

// Identity looks an object up in the state that is there; ok is false when it is
// not.
func (r *Registry) Identity(t Target) (i Identity, ok bool) {
	o := r.Store.Any().Get(t.Type.Collection, t.key())
	if o == nil {
		return i, false
	}
	meta := member(o.Bytes(), "metadata")
	i.UID = text(member(meta, "uid"))
	if deleted := text(member(meta, "deletionTimestamp")); deleted != "" {
		i.Deleted, _ = time.Parse(time.RFC3339, deleted)
	}
	return i, true
}
