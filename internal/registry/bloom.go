package registry

import (
	"hash/maphash"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// digest is what is known of an object's labels and fields in one word: a Bloom
// filter of three bits for each "name=value", below the type that the fields are of:
// with seven labels it is wrong about one object in 26.
// Most objects that a selector does not pick are known not to match by it, without a
// look at anything else; nor at the object itself, once its neighbours have theirs.
type bloom uint64

const (
	bloomBits = 52
	bloomTypeBits = 11 // bits above: of the type, so that another one's fields say nothing
	bloomKnown  = bloom(1) << 63
)

var bloomSeed = maphash.MakeSeed()

// bits are those of a label or of a field with its value.
func (bloom) bits(name, value string) bloom {
	h := maphash.String(bloomSeed, name)*31 ^ maphash.String(bloomSeed, value)
	return 1<<(h%bloomBits) | 1<<(h>>20%bloomBits) | 1<<(h>>40%bloomBits)
}

// digestOf has no bits but those of the type. The types of a built-in collection have IDs
// that lie close together.
func bloomOf(t *resource.Type) bloom {
	if !filtersFields(t) {
		return bloomKnown
	}
	return bloomKnown | bloom(t.ID%(1<<bloomTypeBits))<<bloomBits
}

// digestsFields tells whether the fields of a type are in its objects' digests. Of custom
// kinds they are not: their types come and go with each change of the definition, too many
// for the bits, and what one of them knows is no matter of the next.
func filtersFields(t *resource.Type) bool { return t.Custom == nil }

// allows tells whether an object with the digest may be selected: always when its
// digest is not known, or is of another type.
func (d bloom) allows(object bloom) bool {
	const bits = 1<<bloomBits - 1
	return d == 0 || object&^bits != d&^bits || object&d&bits == d&bits
}
