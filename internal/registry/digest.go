package registry

import (
	"hash/maphash"

	"k8s.io/apimachinery/pkg/selection"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// digest is what is known of an object's labels and fields in one word: a Bloom
// filter of three bits for each "name=value", below the type that the fields are of:
// with seven labels it is wrong about one object in 26.
// Most objects that a selector does not pick are known not to match by it, without a
// look at anything else; nor at the object itself, once its neighbours have theirs.
type digest uint64

const (
	digestBits = 52
	digestType = 11 // bits above: of the type, so that another one's fields say nothing
	digestSet  = digest(1) << 63
)

var digestSeed = maphash.MakeSeed()

// bits are those of a label or of a field with its value.
func (digest) bits(name, value string) digest {
	h := maphash.String(digestSeed, name)*31 ^ maphash.String(digestSeed, value)
	return 1<<(h%digestBits) | 1<<(h>>20%digestBits) | 1<<(h>>40%digestBits)
}

// digestOf has no bits but those of the type. The types of a built-in collection have IDs
// that lie close together.
func digestOf(t *resource.Type) digest {
	if !digestsFields(t) {
		return digestSet
	}
	return digestSet | digest(t.ID%(1<<digestType))<<digestBits
}

// digestsFields tells whether the fields of a type are in its objects' digests. Of custom
// kinds they are not: their types come and go with each change of the definition, too many
// for the bits, and what one of them knows is no matter of the next.
func digestsFields(t *resource.Type) bool { return t.Custom == nil }

// allows tells whether an object with the digest may be selected: always when its
// digest is not known, or is of another type.
func (d digest) allows(object digest) bool {
	const bits = 1<<digestBits - 1
	return d == 0 || object&^bits != d&^bits || object&d&bits == d&bits
}

// digest is that of an object.
func (a *attributes) digest() digest {
	d := digestOf(a.typ)
	for name, value := range a.labels {
		d |= d.bits(name, value)
	}
	if digestsFields(a.typ) {
		for i, value := range a.values {
			d |= d.bits("\x00"+a.typ.Display.Fields[i].Name, value)
		}
	}
	return d
}

// wanted is what an object's digest must have: the bits of all that the selector
// wants to be equal to something. Zero: there is no such thing.
func (s *selector) wanted() digest {
	var all digest
	if s.labels != nil {
		requirements, _ := s.labels.Requirements()
		for _, r := range requirements {
			switch r.Operator() {
			case selection.Equals, selection.DoubleEquals, selection.In:
				if values := r.ValuesUnsorted(); len(values) == 1 {
					all |= all.bits(r.Key(), values[0])
				}
			}
		}
	}
	for _, r := range s.fields {
		if r.equal && r.field >= 0 && digestsFields(s.typ) {
			all |= all.bits("\x00"+s.typ.Display.Fields[r.field].Name, r.value)
		}
	}
	if all == 0 {
		return 0
	}
	return all | digestOf(s.typ)
}
