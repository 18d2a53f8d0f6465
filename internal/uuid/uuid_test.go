package uuid_test

import (
	"regexp"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/uuid"
)

func TestNew(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 1000 {
		id := uuid.New()
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("%s is no new UUID", id)
		}
		seen[id] = true
	}
}

func TestFrom(t *testing.T) {
	got := uuid.From([16]byte{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10})
	if want := "01234567-89ab-4def-bedc-ba9876543210"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
