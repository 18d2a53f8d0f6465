package httpapi

import (
	"net/url"
	"testing"
)

// FuzzLookup: a parameter is found as url.ParseQuery finds it.
func FuzzLookup(f *testing.F) {
	for _, query := range []string{"watch=1", "%77atch=1", "watch=%66alse", "wat+ch=1&watch", "a=b&watch=;&watch=2", "watch=%&watch=3", "=watch", "&&watch=1", "watch%3D1", "watchx=1"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		got, found := lookup(query, "watch")
		values, _ := url.ParseQuery(query)
		if want := values.Get("watch"); got != want || found != values.Has("watch") {
			t.Errorf("%q: %q, %v; want %q, %v", query, got, found, want, values.Has("watch"))
		}
	})
}
