package datadir

import (
	"fmt"
	"testing"
)

// FuzzFormat: what is read as a format is what is written for it.
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
