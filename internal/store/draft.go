package store

import "strconv"

// Draft is a copy of the bytes of a write with room for the digits of its revision. The
// number of digits is a guess until the revision is known.
type Draft struct {
	value  []byte
	at     int
	digits int
	packed []byte // nil: it is not packed
}

// NewDraft copies a value, as a Write has it. Next is the revision that it will probably have.
func NewDraft(value []byte, at int, next Revision) Draft {
	d := Draft{at: at, digits: digits(next)}
	d.value = make([]byte, len(value)+d.digits)
	copy(d.value, value[:at])
	copy(d.value[at+d.digits:], value[at:])
	return d
}

// Object is the version with the revision.
func (d *Draft) Object(r Revision) *Object {
	o := &Object{Modified: r, RevisionAt: int32(d.at), Held: d.splice(r)}
	if d.packed != nil {
		fresh.add(d.packed, o.Held)
		o.setPacked(d.packed)
	}
	return o
}

// Len is the length of Object.Bytes of the object.
func (d *Draft) Len() int { return len(d.value) }

// Held is the length of Object.Held of the object.
func (d *Draft) Held() int {
	if d.packed != nil {
		return len(d.packed)
	}
	return len(d.value)
}

// splice inserts the revision.
func (d *Draft) splice(r Revision) []byte {
	if n := digits(r); n != d.digits {
		value := make([]byte, len(d.value)-d.digits+n)
		copy(value, d.value[:d.at])
		copy(value[d.at+n:], d.value[d.at+d.digits:])
		d.value, d.digits = value, n
	}
	strconv.AppendUint(d.value[d.at:d.at], uint64(r), 10)
	return d.value
}

// Drafts appends copies of the values of a transaction to all, and returns their size, in bytes.
func (s Publisher) Drafts(t *Txn, all []Draft) ([]Draft, int) {
	size, next := 0, s.Any().revision
	for i := range t.Writes {
		w := &t.Writes[i]
		next++
		if w.Value == nil {
			all = append(all, Draft{})
			continue
		}
		d := NewDraft(w.Value, w.RevisionAt, next)
		if s.o.packs(w.Collection, len(w.Value)) {
			d.packed = pack(w.Value)
		}
		size += len(d.value)
		all = append(all, d)
	}
	return all, size
}
