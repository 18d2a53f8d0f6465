package audit

import (
	"bytes"
	"encoding/json"
	"errors"
)

// managedMember is in each object that has managed fields.
var managedMember = []byte(`"managedFields"`)

// WithoutManagedFields returns an object, a list or a table without metadata.managedFields. The
// order of the members may change. A value that is no object is returned as it is.
func WithoutManagedFields(value []byte) []byte {
	if !bytes.Contains(value, managedMember) {
		return value
	}
	lean, err := cleaned(value, func(o members) error {
		return errors.Join(
			change(o, "metadata", dropManaged),
			change(o, "items", each(cleanObject)),
			change(o, "rows", each(cleanRow)))
	})
	if err != nil {
		return value
	}
	return lean
}

// members are the members of a JSON object, not decoded.
type members = map[string]json.RawMessage

// cleaned changes the members of an object.
func cleaned(value []byte, f func(members) error) ([]byte, error) {
	var o members
	if err := json.Unmarshal(value, &o); err != nil {
		return nil, err
	}
	if err := f(o); err != nil {
		return nil, err
	}
	return json.Marshal(o)
}

func cleanObject(value []byte) ([]byte, error) {
	return cleaned(value, func(o members) error { return change(o, "metadata", dropManaged) })
}

// cleanRow changes the object of a row of a table.
func cleanRow(value []byte) ([]byte, error) {
	return cleaned(value, func(row members) error { return change(row, "object", cleanObject) })
}

func dropManaged(metadata []byte) ([]byte, error) {
	return cleaned(metadata, func(m members) error { delete(m, "managedFields"); return nil })
}

// change replaces a member that may have managed fields.
func change(o members, name string, f func([]byte) ([]byte, error)) (err error) {
	if value, ok := o[name]; ok && bytes.Contains(value, managedMember) {
		o[name], err = f(value)
	}
	return err
}

// each changes the elements of an array. Other values stay: a custom resource can have anything
// in a member of that name.
func each(f func([]byte) ([]byte, error)) func([]byte) ([]byte, error) {
	return func(array []byte) ([]byte, error) {
		var all []json.RawMessage
		if err := json.Unmarshal(array, &all); err != nil {
			return array, nil //nolint:nilerr // it is no list of objects
		}
		for i := range all {
			if made, err := f(all[i]); err == nil {
				all[i] = made
			}
		}
		return json.Marshal(all)
	}
}
