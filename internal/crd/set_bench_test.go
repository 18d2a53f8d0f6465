package crd_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
)

// BenchmarkCatalog measures one more definition beside a thousand others of 40 KB each, until the
// next request uses it, and the first one after a start.
func BenchmarkCatalog(b *testing.B) {
	s, err := stores.Open(context.Background(), store.Options{Log: memlog.New()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	put := func(name string) {
		before, at := stored(name)
		if _, err := s.Commit(context.Background(), store.Write{Collection: crd.Collection, Key: name, Value: before, RevisionAt: at}); err != nil {
			b.Fatal(err)
		}
	}
	for i := range 1000 {
		put(fmt.Sprintf("things%d.group%d.example.com", i, i%150))
	}
	b.Run("start", func(b *testing.B) {
		for b.Loop() {
			crd.NewSet(s, builtin.Catalog(), nil).Catalog()
		}
	})
	b.Run("more", func(b *testing.B) {
		set := crd.NewSet(s, builtin.Catalog(), nil)
		set.Catalog()
		n := 0
		for b.Loop() {
			b.StopTimer()
			n++
			put(fmt.Sprintf("more%d-%d.group1.example.com", b.N, n))
			b.StartTimer()
			set.Catalog()
		}
	})
}

// stored is a definition as it is stored, and the place of its version.
func stored(name string) (value []byte, revisionAt int) {
	plural, group, _ := strings.Cut(name, ".")
	names := fmt.Sprintf(`{"plural":%q,"singular":"x","kind":"K","listKind":"KList"}`, plural)
	head := fmt.Sprintf(`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":%q,"resourceVersion":"`, name)
	text := head + fmt.Sprintf(`","generation":1},"spec":{"group":%q,"scope":"Namespaced","names":%s,"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","description":%q}}}]},`+
		`"status":{"acceptedNames":%s,"conditions":[{"type":"NamesAccepted","status":"True"},{"type":"Established","status":"True"}]}}`,
		group, names, strings.Repeat("forty kilobytes of text ", 1700), names)
	return []byte(text), len(head)
}
