package apply

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// orderedAbove is the size in bytes from which FieldsV1 is sorted before the library parses
// it. The library inserts each element that is out of order into a sorted slice, which
// takes quadratic time.
const orderedAbove = 32 << 10

// ordered returns FieldsV1 with the elements of each set in the library's order. Equal
// elements keep their order, since the last one counts. Invalid text is returned unchanged:
// the library reports the error.
func ordered(raw []byte) []byte {
	if len(raw) <= orderedAbove {
		return raw
	}
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	out, err := appendOrdered(make([]byte, 0, len(raw)), d)
	if err != nil {
		return raw
	}
	return out
}

// fieldMember is a member of a set as JSON.
type fieldMember struct {
	name    []byte // quoted
	path    fieldpath.PathElement
	unknown bool // it is "." or has no path
	value   []byte
}

// appendOrdered appends the next value, sorted.
func appendOrdered(to []byte, d *jsontext.Decoder) ([]byte, error) {
	if d.PeekKind() != '{' {
		v, err := d.ReadValue()
		return append(to, v...), err
	}
	if _, err := d.ReadToken(); err != nil {
		return to, err
	}
	var all []fieldMember
	for d.PeekKind() != '}' {
		name, err := d.ReadValue()
		if err != nil {
			return to, err
		}
		e := fieldMember{name: bytes.Clone(name)}
		text, err := jsontext.AppendUnquote(nil, e.name)
		if err != nil {
			return to, err
		}
		if e.path, err = fieldpath.DeserializePathElement(string(text)); err != nil {
			e.unknown = true
		}
		if e.value, err = appendOrdered(nil, d); err != nil {
			return to, err
		}
		all = append(all, e)
	}
	if _, err := d.ReadToken(); err != nil {
		return to, err
	}
	slices.SortStableFunc(all, func(a, b fieldMember) int {
		switch {
		case a.unknown && b.unknown:
			return 0
		case a.unknown:
			return -1
		case b.unknown:
			return 1
		}
		return a.path.Compare(b.path)
	})
	to = append(to, '{')
	for i, e := range all {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(append(append(to, e.name...), ':'), e.value...)
	}
	return append(to, '}'), nil
}
