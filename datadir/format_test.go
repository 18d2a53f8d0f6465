package datadir

import (
	"fmt"
	"testing"
)

// FuzzFormat: writing a format that was read gives the same bytes.
func FuzzFormat(f *testing.F) {
	f.Add([]byte(formatHead + "1\n"))
	f.Add([]byte(formatHead + "01\n"))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := parseFormat(b)
		if want := fmt.Sprintf("%s%d\n", formatHead, v); err == nil && string(b) != want {
			t.Errorf("%q was read as format %d, which is written as %q", b, v, want)
		}
	})
}
