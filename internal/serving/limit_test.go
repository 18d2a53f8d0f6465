package serving

import "testing"

func TestConnections(t *testing.T) {
	for files, want := range map[uint64]int{
		0: 16, 100: 16, 656: 16, 1024: 384, 4096: 3456, 20_000: 18_000, 1 << 20: 943_719, 1<<64 - 1: 943_719,
	} {
		if got := connections(files, 0); got != want {
			t.Errorf("with %d files: %d connections, want %d", files, got, want)
		}
	}
	for memory, want := range map[int64][2]int{ // the second may be unauthenticated
		0: {18_000, 18_000}, 1: {16, 16}, 64 << 20: {409, 48}, 1 << 30: {6553, 780}, 1 << 33: {18_000, 6241}, 1 << 40: {18_000, 18_000},
	} {
		all := connections(20_000, memory)
		if got := [2]int{all, unauthenticatedConnections(all, memory)}; got != want {
			t.Errorf("with %d bytes of memory: %d connections, want %d", memory, got, want)
		}
	}
}
