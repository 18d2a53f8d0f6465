package patch

import (
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// mergeObjects applies a merge patch where the document and the patch are objects. Members
// that the patch does not name stay as they are, objects in both are merged recursively,
// and the library merges the rest, which is as small a part of the document as possible.
// The members come out sorted by name, as from the library: errors about the result follow
// that order.
//
// An error only means that this fast path cannot be used, for example because of a
// duplicate member.
func mergeObjects(document, patch []byte) ([]byte, error) {
	changes := map[string]jsontext.Value{}
	if err := members(patch, func(name string, value jsontext.Value) error {
		if _, ok := changes[name]; ok {
			return errTwice
		}
		changes[name] = value
		return nil
	}); err != nil {
		return nil, err
	}
	var out, had, change []member
	err := members(document, func(name string, value jsontext.Value) error {
		to, ok := changes[name]
		switch {
		case !ok:
			out = append(out, member{name, value})
		case value.Kind() == '{' && to.Kind() == '{':
			merged, err := mergeObjects(value, to)
			if err != nil {
				return err
			}
			out = append(out, member{name, merged})
			delete(changes, name)
		default:
			had = append(had, member{name, value})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for name, value := range changes {
		change = append(change, member{name, value})
	}
	if len(change) > 0 {
		merged, err := guarded(func() ([]byte, error) { return mergeByLibrary(had, change) })
		if err != nil {
			return nil, err
		}
		if err := members(merged, func(name string, value jsontext.Value) error {
			out = append(out, member{name, value})
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return object(out)
}

func mergeByLibrary(had, change []member) ([]byte, error) {
	document, err := object(had)
	if err != nil {
		return nil, err
	}
	patch, err := object(change)
	if err != nil {
		return nil, err
	}
	return jsonpatch.MergePatch(document, patch)
}

var errTwice = errors.New("a member stands twice")

// member is a member of a JSON object.
type member struct {
	name  string
	value []byte
}

// object writes members sorted by name.
func object(members []member) ([]byte, error) {
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	n := 2
	for _, m := range members {
		n += len(m.name) + len(m.value) + 4
	}
	b := append(make([]byte, 0, n), '{')
	for i, m := range members {
		if i > 0 {
			if m.name == members[i-1].name {
				return nil, errTwice
			}
			b = append(b, ',')
		}
		var err error
		if b, err = jsontext.AppendQuote(b, m.name); err != nil {
			return nil, err
		}
		b = append(append(b, ':'), m.value...)
	}
	return append(b, '}'), nil
}
