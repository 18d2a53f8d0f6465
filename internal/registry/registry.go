// Package registry implements the verbs: get, list, watch, create, update, patch, apply, delete and
// deletecollection. It knows nothing of HTTP; its errors are *apierrors.StatusError.
//
// Calls between its files run one way:
//
//	verbs     get, list, watch, create, update, patch, apply, delete, deletecollection;
//	          virtual (resources that are not stored), serverwrite and updateobject (writes of
//	          the server itself)
//	pipeline  modify (changes of a stored object), txn (commit), plugin and admission, track
//	          (encoding and managed fields), stored (decoding and conversion), write (one request)
//	helpers   lock, deletion, managed, ownership, schemas, meta, selector, target, walk, errors
package registry

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Registry is the verbs over a store. Its methods are safe for concurrent use.
type Registry struct {
	Store *store.Store
	// Now is the wall clock for timestamps; nil: time.Now.
	Now func() time.Time
	// BookmarkInterval is the time between bookmarks; zero: 60 s.
	BookmarkInterval time.Duration
	// FutureWait is how long a read waits for a future revision; zero: 3 s.
	FutureWait time.Duration
	// Plugins are the admission chain, in order; empty: every write is admitted.
	Plugins []Plugin
	// Observe gets the durations of admission; nil: they are not measured.
	Observe func(o Observation)
	// Virtual has the resources that are not stored; nil: there are none.
	Virtual Virtual
	// Namespaces are the rules for the namespaces of new objects.
	Namespaces NamespaceRules
	// GenerateName makes a name from metadata.generateName; nil: it appends five random
	// characters, like kube-apiserver.
	GenerateName func(base string) string
	// UnsafeDeletion lets clients delete objects that cannot be read, by an option of the deletion.
	UnsafeDeletion bool
	// Random fills a slice with random bytes, for UIDs and names. It is safe for concurrent use. Nil:
	// crypto/rand.
	Random func([]byte)
	// Sequential has the server do its own writes one after the other, in an order that depends on the
	// state alone.
	Sequential bool

	turn      sync.Mutex // see Turn
	turns     turns      // of large objects
	schemas   sync.Map   // *resource.Type, or weak.Pointer of a structural schema: *apply.Schema
	unchanged apply.Unchanged
}

func (r *Registry) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

// random fills a slice with random bytes.
func (r *Registry) random(b []byte) {
	if r.Random != nil {
		r.Random(b)
		return
	}
	rand.Read(b)
}

// Turn waits until no other caller has the turn, and takes it until done is called. If the registry is Sequential,
// deletions of collections and the server's controllers write only in their turn: so the controllers do not work
// between the deletions of one request. Otherwise Turn does nothing.
func (r *Registry) Turn() (done func()) {
	if !r.Sequential {
		return func() {}
	}
	r.turn.Lock()
	return r.turn.Unlock
}

// Width returns how many writes of the server's own may run at once where n could.
func (r *Registry) Width(n int) int {
	if r.Sequential {
		return min(n, 1)
	}
	return n
}

func (r *Registry) futureWait() time.Duration {
	if r.FutureWait > 0 {
		return r.FutureWait
	}
	return 3 * time.Second
}

func (r *Registry) bookmarkInterval() time.Duration {
	if r.BookmarkInterval > 0 {
		return r.BookmarkInterval
	}
	return time.Minute
}
