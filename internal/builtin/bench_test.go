package builtin

import "testing"

// BenchmarkCatalog is what every start of a server pays.
func BenchmarkCatalog(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		build()
	}
}
