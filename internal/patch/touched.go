package patch

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	kjson "sigs.k8s.io/json"
)

// touched reads an object as a strategic merge patch needs it: what the patch may
// look at as the library wants it, the other members as the bytes that they are
// (jsontext.Value). A patch of the status leaves the spec and the managed fields
// alone.
//
// The library looks at the members of an object that the patch has members for, and
// at those that a directive of the patch names behind a slash: of
//
//	{"status": {"$setElementOrder/conditions": [...], "phase": "Running"}}
//
// at status, and in it at conditions and phase. It goes down where both are objects.
// Directives for the whole object ($patch, $retainKeys) keep or drop other members
// without a look at them.
func touched(object []byte, change map[string]any) (map[string]any, error) {
	looked := make(map[string]bool, len(change)) // without what the library goes down into
	for name := range change {
		if directive, of, ok := strings.Cut(name, "/"); ok && strings.HasPrefix(directive, "$") {
			looked[of] = true
		}
	}
	read := make(map[string]any, 8)
	err := members(object, func(name string, value jsontext.Value) (err error) {
		part, isPart := change[name].(map[string]any)
		_, isChanged := change[name]
		switch {
		case isPart && value.Kind() == '{' && !looked[name]:
			read[name], err = touched(value, part)
		case isChanged || looked[name]:
			var v any
			err = kjson.UnmarshalCaseSensitivePreserveInts(value, &v)
			read[name] = v
		default:
			read[name] = value
		}
		return err
	})
	return read, err
}

// members calls do with each member of an object, as often as it stands there; the
// values are parts of it.
func members(object []byte, do func(name string, value jsontext.Value) error) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(object), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return fmt.Errorf("no object: %w", err)
	}
	for d.PeekKind() == '"' {
		t, err := d.ReadToken()
		if err != nil {
			return err
		}
		name := t.String()
		value, err := d.ReadValue()
		if err != nil {
			return err
		}
		end := d.InputOffset()
		if err := do(name, object[end-int64(len(value)):end]); err != nil {
			return err
		}
	}
	if _, err := d.ReadToken(); err != nil { // its end
		return err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return fmt.Errorf("something follows the object: %w", err)
	}
	return nil
}
