package apply

import (
	"hash/maphash"
	"sync"
)

// Unchanged remembers applies that changed nothing, so that a repeated one (a controller's
// resync) costs a hash. It forgets the oldest. The zero value is ready, and safe for
// concurrent use.
type Unchanged struct {
	mu         sync.Mutex
	young, old map[Application]struct{}
}

// maxUnchanged is how many applies each of the two generations holds: at most a
// megabyte.
const maxUnchanged = 8192

// Application identifies an apply by a seeded hash. Collisions are practically impossible.
type Application struct{ a, b uint64 }

var unchangedSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// NewApplication identifies an apply. The version identifies the object and its version:
// the collection, the key and the revision, or uid and resourceVersion. Everything else
// that the result depends on is among the parameters.
func NewApplication(version string, patch []byte, w Write, force bool, parameters ...string) Application {
	var sums [2]uint64
	for i := range sums {
		var h maphash.Hash
		h.SetSeed(unchangedSeeds[i])
		hashText(&h, version)
		hashText(&h, w.Manager)
		hashText(&h, w.Subresource)
		maphash.WriteComparable(&h, force)
		for _, p := range parameters {
			hashText(&h, p)
		}
		maphash.WriteComparable(&h, len(parameters))
		h.Write(patch)
		sums[i] = h.Sum64()
	}
	return Application{sums[0], sums[1]}
}

// hashText writes a string with its length, so that adjacent strings cannot be confused.
func hashText(h *maphash.Hash, s string) {
	maphash.WriteComparable(h, len(s))
	h.WriteString(s)
}

// Has reports whether the apply is known to change nothing.
func (u *Unchanged) Has(a Application) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.young[a]; ok {
		return true
	}
	if _, ok := u.old[a]; !ok {
		return false
	}
	u.add(a)
	return true
}

// Add remembers that the apply changed neither the object nor its managed fields.
func (u *Unchanged) Add(a Application) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.add(a)
}

func (u *Unchanged) add(a Application) {
	if u.young == nil || len(u.young) >= maxUnchanged {
		u.old, u.young = u.young, map[Application]struct{}{}
	}
	u.young[a] = struct{}{}
}
