package migrate

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// sameObject returns an error if two objects differ, in their revisions or in the parts that
// clients see.
func sameObject(collection string, want, got *store.Object) error {
	switch {
	case got.Modified != want.Modified:
		return fmt.Errorf("%s %s has the resource version %d, and should have %d", collection, want.Key, got.Modified, want.Modified)
	case got.Created != want.Created:
		return fmt.Errorf("%s %s was created at %d, and should have been at %d", collection, want.Key, got.Created, want.Created)
	case bytes.Equal(got.Bytes(), want.Bytes()):
		return nil
	}
	a, b := canonical(want.Bytes()), canonical(got.Bytes())
	if bytes.Equal(a, b) {
		return nil
	}
	return fmt.Errorf("%s %s at %d differs: %s", collection, want.Key, want.Modified, difference(a, b))
}

// canonical returns JSON with sorted members and without white space, or the text if it is no JSON.
func canonical(text []byte) []byte {
	v := jsontext.Value(bytes.Clone(text))
	if v.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false), jsontext.AllowDuplicateNames(true)) != nil {
		return text
	}
	return v
}

// difference shows where two texts differ, with some bytes of each, but for values: they may be secret.
func difference(want, got []byte) string {
	n := 0
	for n < len(want) && n < len(got) && want[n] == got[n] {
		n++
	}
	d := jsontext.NewDecoder(bytes.NewReader(want))
	var at jsontext.Pointer
	for d.InputOffset() <= int64(n) {
		if _, err := d.ReadToken(); err != nil {
			break
		}
		at = d.StackPointer()
	}
	return fmt.Sprintf("%d bytes became %d, first at %s", len(want), len(got), at)
}
