package registry

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// ownership is what a write knows about the managed fields of its object.
type ownership struct {
	// sent are the managed fields of the body. They replace those of the object.
	sent []metav1.ManagedFieldsEntry
	// leftOut are the managed fields of the body if they were not decoded, because they are
	// those of the object.
	omitted []byte
	// live is where the managed fields of looked stand, the object that was looked at last.
	at        span
	locatedIn *store.Object
	// decided are the managed fields that an apply decided on; isDecided: it did.
	decided    []byte
	hasDecided bool
	// client is the object as JSON of the version of the request, before the server set what
	// no manager owns; nil: it set nothing.
	client []byte
}

// setDecided sets the managed fields to store.
func (o *ownership) setDecided(managed []byte) { o.decided, o.hasDecided = managed, true }

// takeFrom moves the managed fields of a body out of the object.
func (o *ownership) takeFrom(meta metav1.Object) {
	o.sent = meta.GetManagedFields()
	meta.SetManagedFields(nil)
}

// locate returns where the managed fields of a stored object stand. It remembers the last answer,
// since a write asks several times.
func (o *ownership) locate(stored *store.Object) span {
	if o.locatedIn != stored {
		o.locatedIn, o.at = stored, locateManaged(stored.Bytes())
	}
	return o.at
}

// managedOf returns the managed fields of a stored object.
func (o *ownership) managedOf(stored *store.Object) []byte {
	return o.locate(stored).in(stored.Bytes())
}
