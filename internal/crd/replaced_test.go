package crd_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
)

// TestReplacedDefinition checks that a request that began before its definition was replaced
// continues with its schema, which is compiled once.
func TestReplacedDefinition(t *testing.T) {
	s, err := stores.Open(context.Background(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const name = "things.example.com"
	value, at := stored(name)
	first, err := s.Commit(context.Background(), store.Write{Collection: crd.Collection, Key: name, Value: value, RevisionAt: at})
	if err != nil {
		t.Fatal(err)
	}
	set := crd.NewSet(s, builtin.Catalog(), nil)
	old := set.Catalog().Lookup("example.com", "v1", "things")
	next := []byte(strings.Replace(strings.Replace(string(value), `"generation":1`, `"generation":2`, 1), "forty kilobytes", "40 kilobytes", 1))
	if _, err := s.Commit(context.Background(), store.Write{Collection: crd.Collection, Key: name, Value: next, RevisionAt: at, If: first.Modified}); err != nil {
		t.Fatal(err)
	}
	if set.Catalog().Lookup("example.com", "v1", "things") == old {
		t.Fatal("the type is the same")
	}
	a, err := old.Custom.Structural()
	if err != nil || a == nil {
		t.Fatal(a, err)
	}
	if b, err := old.Custom.Structural(); b != a || err != nil {
		t.Error("it was compiled again", err)
	}
}
