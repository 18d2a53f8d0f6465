package serving

import "testing"

func TestConnections(t *testing.T) {
	for files, want := range map[uint64]int{
		0: 16, 100: 16, 656: 16, 1024: 384, 4096: 3456, 20_000: 18_000, 1 << 20: 943_719, 1<<64 - 1: 943_719,
	} {
		if got := connections(files); got != want {
			t.Errorf("with %d files: %d connections, want %d", files, got, want)
		}
	}
}
