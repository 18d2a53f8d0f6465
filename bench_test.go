package tidemark_test

import (
	"context"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
)

// BenchmarkStart starts and stops servers.
func BenchmarkStart(b *testing.B) {
	run := func(b *testing.B, s *tidemark.Server) {
		if err := s.Start(context.Background()); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("memory", func(b *testing.B) {
		for b.Loop() {
			run(b, &tidemark.Server{})
		}
	})
	b.Run("directory", func(b *testing.B) { // used before
		dir := b.TempDir()
		for b.Loop() {
			run(b, &tidemark.Server{Storage: &datadir.Dir{Path: dir}})
		}
	})
}
