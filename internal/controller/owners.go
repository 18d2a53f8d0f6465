package controller

import (
	"hash/fnv"
	"hash/maphash"
	"sync"
)

// owners is the index from owners to their dependents: the objects that name a UID in their
// ownerReferences. Objects without owners cost no memory. UIDs are stored as hashes. A
// collision makes the collector look at an object once too often, which is harmless, since
// it decides by what it then reads.
//
// The reader of the feed changes the index, and workers read it. Changes are applied in the
// order of the feed: when the reader has passed a change to the collector, all older
// dependents are in the index.
type owners struct {
	mu sync.RWMutex
	of map[uint64]dependents
}

// dependents of an owner: few for most owners, very many for some.
type dependents struct {
	few  []object
	many map[object]struct{}
}

const mostFew = 32

var uidSeed = maphash.MakeSeed()

func hashUID[T ~string | ~[]byte](uid T) uint64 { return maphash.String(uidSeed, string(uid)) }

func (x *owners) reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of = map[uint64]dependents{}
}

func (x *owners) add(owner uint64, o object) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.of[owner]
	switch {
	case d.many != nil:
		d.many[o] = struct{}{}
		return
	case d.has(o):
		return
	case len(d.few) < mostFew:
		d.few = append(d.few, o)
	default:
		d.many = make(map[object]struct{}, 2*mostFew)
		for _, other := range d.few {
			d.many[other] = struct{}{}
		}
		d.many[o] = struct{}{}
		d.few = nil
	}
	x.of[owner] = d
}

func (d dependents) has(o object) bool {
	for _, other := range d.few {
		if other == o {
			return true
		}
	}
	_, there := d.many[o]
	return there
}

func (x *owners) remove(owner uint64, o object) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d, there := x.of[owner]
	if !there {
		return
	}
	delete(d.many, o)
	for i, other := range d.few {
		if other == o {
			last := len(d.few) - 1
			d.few[i], d.few[last] = d.few[last], object{}
			d.few = d.few[:last]
			break
		}
	}
	if len(d.few) == 0 && len(d.many) == 0 {
		delete(x.of, owner)
		return
	}
	x.of[owner] = d
}

// has reports whether an owner may have dependents.
func (x *owners) has(owner uint64) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	_, there := x.of[owner]
	return there
}

// dependents returns the dependents of an owner.
func (x *owners) dependents(owner uint64) []object {
	x.mu.RLock()
	defer x.mu.RUnlock()
	d := x.of[owner]
	all := make([]object, 0, len(d.few)+len(d.many))
	all = append(all, d.few...)
	for o := range d.many {
		all = append(all, o)
	}
	return all
}

// any reports whether a condition holds for a dependent of an owner. The condition must not
// block.
func (x *owners) any(owner uint64, is func(object) bool) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	d := x.of[owner]
	for _, o := range d.few {
		if is(o) {
			return true
		}
	}
	for o := range d.many {
		if is(o) {
			return true
		}
	}
	return false
}

// stableHash is a hash that is the same in each process.
func stableHash(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}
