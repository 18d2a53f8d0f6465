package patch

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	kjson "sigs.k8s.io/json"
)

// touched decodes an object for a strategic merge patch. The parts that the patch may look
// at are decoded as the library needs them; the other members stay bytes (jsontext.Value).
// So a patch of the status does not decode the spec and the managed fields.
//
// The library looks at the members of an object that the patch has, and at those that a
// directive names after a slash. For
//
//	{"status": {"$setElementOrder/conditions": [...], "phase": "Running"}}
//
// it looks at status, and in it at conditions and phase. It descends where both sides are
// objects. Directives for a whole object ($patch, $retainKeys) keep or drop other members
// without a look at them.
func touched(object []byte, change map[string]any) (map[string]any, error) {
	looked := make(map[string]bool, len(change)) // without the members below
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

// decodeRest decodes the values that touched has left as bytes.
func decodeRest(v any) error {
	decoded := func(part any) (any, error) {
		raw, ok := part.(jsontext.Value)
		if !ok {
			return part, decodeRest(part)
		}
		var made any
		err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &made)
		return made, err
	}
	var err error
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			if v[name], err = decoded(v[name]); err != nil {
				return err
			}
		}
	case []any:
		for i := range v {
			if v[i], err = decoded(v[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// members calls do with each member of an object, including duplicates. The values are
// parts of the object's bytes.
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
