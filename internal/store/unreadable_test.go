package store_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestUnreadable: a stand-in is JSON with the key and the revision of the object, and keeps the reason.
func TestUnreadable(t *testing.T) {
	for key, why := range map[string]string{
		"default/a": `unable to transform key "/registry/secrets/default/a": it has ,"unreadable":`,
		"node":      "", "ns/é": "bytes \xff and\nlines", "b": strings.Repeat("long", 1000),
	} {
		o := store.NewUnreadable(key, 5, 1234567, why)
		var held struct {
			Metadata struct{ Name, Namespace, ResourceVersion string }
		}
		if err := json.Unmarshal(o.Bytes(), &held); err != nil {
			t.Fatalf("%s: %v", o.Bytes(), err)
		}
		if held.Metadata.ResourceVersion != "1234567" || !strings.Contains("nodedefault/ab", held.Metadata.Name) && key[0] != 'n' {
			t.Errorf("%s: %+v", key, held)
		}
		got := o.At(1234568).Unreadable()
		if got == "" || got != o.Unreadable() || len(why) > 0 && got[:5] != why[:5] {
			t.Errorf("%s: got %q, want %q", key, got, why)
		}
	}
	var none *store.Object
	if (&store.Object{Key: "a", Held: []byte("{}")}).Unreadable() != "" || none.Unreadable() != "" {
		t.Error("other objects are not readable")
	}
}
