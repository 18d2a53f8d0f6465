package main

import "testing"

func TestGrowth(t *testing.T) {
	for live, want := range map[uint64]int{0: 100, 4 << 20: 100, 16 << 20: 200, 64 << 20: 100, 128 << 20: 50, 256 << 20: 25, 10 << 30: 25} {
		if got := growth(live); got != want {
			t.Errorf("%d bytes: %d percent, want %d", live, got, want)
		}
	}
}

func TestToGain(t *testing.T) {
	for c, want := range map[[3]uint64]bool{
		{0, 8 << 20, 4 << 20}:              false,
		{8 << 20, 16 << 20, 4 << 20}:       true,
		{32 << 20, 3 << 20, 4 << 20}:       true,
		{32 << 20, 1 << 30, 1 << 30}:       false,
		{32 << 20, 1280 << 20, 1024 << 20}: true,
		{16 << 20, 512 << 20, 512 << 20}:   false,
		{24 << 20, 528 << 20, 512 << 20}:   true,
	} {
		if got := toGain(c[0], c[1], c[2]); got != want {
			t.Errorf("%d free, %d allocated, %d live: %v", c[0]>>20, c[1]>>20, c[2]>>20, got)
		}
	}
}
