package registry

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// ownership has the managed fields of the object of a write.
type ownership struct {
	// sent are the managed fields of the body. They replace the stored ones.
	sent []metav1.ManagedFieldsEntry
	// omitted are the managed fields of the body if they were not decoded, because they equal
	// the stored ones.
	omitted []byte
	// at is the position of the managed fields in locatedIn, the last argument of locate.
	at        span
	locatedIn *store.Object
	// decided are the managed fields to store, if hasDecided is true: those of an apply.
	decided    []byte
	hasDecided bool
	// client is the object as JSON in the version of the request, without the fields that the
	// server or plugins set, which no manager owns. Nil: they set none.
	client []byte
	// early are the managed fields after the write, if tracked is true: plugins wanted to see
	// them before the object was encoded.
	early   []byte
	tracked bool
	// byPlugin reports whether this attempt has decided: a plugin, or keepDecided.
	byPlugin bool
}

// forget discards the results of the previous attempt.
func (o *ownership) forget() {
	if o.byPlugin {
		o.setDecided(nil)
		o.hasDecided = false
	}
	o.client, o.early, o.tracked = nil, nil, false
}

// setDecided sets the managed fields to store.
func (o *ownership) setDecided(managed []byte) {
	o.decided, o.hasDecided, o.byPlugin = managed, true, false
}

// keepDecided keeps the managed fields of the stored object in this attempt.
func (o *ownership) keepDecided(stored *store.Object) {
	o.setDecided(o.managedOf(stored))
	o.byPlugin = true
}

// takeFrom moves the managed fields of a body out of the object.
func (o *ownership) takeFrom(meta metav1.Object) {
	o.sent = meta.GetManagedFields()
	meta.SetManagedFields(nil)
}

// locate returns where the managed fields of a stored object stand. It remembers the last response,
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
