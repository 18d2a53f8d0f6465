package patch

import (
	"fmt"
	"strings"
	"testing"
)

// TestCopyWork counts the groups of patches with many copies. Copies of a value that the patch does not
// touch need one group for each 3 MiB of copies, not one for a few operations.
func TestCopyWork(t *testing.T) {
	for _, one := range []struct {
		from, path string
		groups     int
	}{
		{"/a", "/b%d", 1},
		{"/o/a", "/o/b%d", 1},
		{"/list/0", "/b%d", 1},
		{"/o", "/o/b%d", 400},       // each copy doubles it
		{"/list/0", "/list/-", 400}, // which may move the items
	} {
		var b strings.Builder
		for i := range 2000 {
			path := one.path
			if strings.Contains(path, "%d") {
				path = fmt.Sprintf(path, i)
			}
			fmt.Fprintf(&b, `,{"op":"copy","from":"%s","path":"%s"}`, one.from, path)
		}
		o, err := Decode([]byte("[" + b.String()[1:] + "]"))
		if err != nil {
			t.Fatal(err)
		}
		document := []byte(`{"a":"` + strings.Repeat("x", 100) + `","o":{"a":"` + strings.Repeat("x", 100) + `"},"list":["a"]}`)
		groups := 0
		for rest := o.all; len(rest) > 0 && groups < one.groups+1; groups++ {
			rest = rest[group(rest, document, MaxBytes):]
		}
		if groups > one.groups {
			t.Errorf("%s to %s: more than %d groups", one.from, one.path, one.groups)
		}
	}
}
