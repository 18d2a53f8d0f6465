package store_test

import (
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// FuzzAuditID: an audit ID has the text that it was made from, and a UUID takes no text.
func FuzzAuditID(f *testing.F) {
	f.Add("5d8c3c9a-0f0e-4c1e-9c55-0123456789ab")
	f.Add("5D8C3C9A-0F0E-4C1E-9C55-0123456789AB")
	f.Add("00000000-0000-0000-0000-000000000000")
	f.Add("5d8c3c9a-0f0e-4c1e-9c55-0123456789a-")
	f.Add("")
	f.Add(strings.Repeat("x", 100))
	f.Fuzz(func(t *testing.T, text string) {
		id := store.NewAuditID(text)
		if want := text[:min(len(text), store.MaxAuditID)]; id.String() != want {
			t.Errorf("got %q, want %q", id, want)
		}
		if u, ok := id.UUID(); ok && store.AuditUUID(u) != id {
			t.Errorf("%q is not the UUID %x", id, u)
		}
		if id != store.NewAuditID(id.String()) {
			t.Errorf("%q differs from itself", id)
		}
	})
}

func TestVerb(t *testing.T) {
	for verb, want := range map[store.Verb]string{
		store.VerbUnknown: "", store.VerbCreate: "create", store.VerbApply: "apply", store.VerbDeleteCollection: "deletecollection", 99: "verb 99",
	} {
		if got := verb.String(); got != want {
			t.Errorf("verb %d: got %q, want %q", uint8(verb), got, want)
		}
	}
}
