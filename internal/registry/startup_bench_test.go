package registry_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark/internal/startup"
)

// BenchmarkEnsure measures the first start of a server, and a later one.
func BenchmarkEnsure(b *testing.B) {
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			w := newWorld(b)
			b.StartTimer()
			if err := startup.Ensure(b.Context(), w.Config); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("again", func(b *testing.B) {
		w := newWorld(b)
		w.ensure()
		b.ReportAllocs()
		for b.Loop() {
			w.ensure()
		}
	})
}
