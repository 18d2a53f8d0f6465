package main

import "testing"

func TestGrowth(t *testing.T) {
	for live, want := range map[uint64]int{0: 100, 4 << 20: 100, 64 << 20: 100, 128 << 20: 50, 256 << 20: 25, 10 << 30: 25} {
		if got := growth(live); got != want {
			t.Errorf("%d bytes: %d percent, want %d", live, got, want)
		}
	}
}
