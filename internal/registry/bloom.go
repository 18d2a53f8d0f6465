package registry

import (
	"hash/maphash"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// bloom is a Bloom filter of an object's labels and fields: three bits for each "name=value", below
// some bits of the type that the fields belong to. With seven labels it is wrong about one object
// in 26.
//
// A selector skips most objects that do not match by their filter alone. It does not even read an
// object if the filters of its neighbours exclude them all.
type bloom uint64

const (
	bloomBits     = 52
	bloomTypeBits = 11 // above bloomBits: they identify the type that the fields belong to
	bloomKnown    = bloom(1) << 63
)

var bloomSeed = maphash.MakeSeed()

// bits returns the bits of a label or field with its value.
func (bloom) bits(name, value string) bloom {
	h := maphash.String(bloomSeed, name)*31 ^ maphash.String(bloomSeed, value)
	return 1<<(h%bloomBits) | 1<<(h>>20%bloomBits) | 1<<(h>>40%bloomBits)
}

// bloomOf returns a filter with only the bits of the type. The types of a built-in collection have
// consecutive IDs.
func bloomOf(t *resource.Type) bloom {
	if !filtersFields(t) {
		return bloomKnown
	}
	return bloomKnown | bloom(t.ID%(1<<bloomTypeBits))<<bloomBits
}

// filtersFields reports whether the filters of a type's objects include fields. They do not for
// custom kinds: each change of a definition makes a new type, too many for the bits.
func filtersFields(t *resource.Type) bool { return t.Custom == nil }

// allows reports whether an object with the given filter may match. It is true if the object's
// filter is not known, or is of another type.
func (d bloom) allows(object bloom) bool {
	const bits = 1<<bloomBits - 1
	return d == 0 || object&^bits != d&^bits || object&d&bits == d&bits
}
