package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestProgramPages(t *testing.T) {
	const table = `00400000-00402000 r--p 00000000 fe:00 1 /usr/bin/tidemark
Size:                  8 kB
Anonymous:             0 kB
00402000-00500000 r-xp 00002000 fe:00 1 /usr/bin/tidemark
Anonymous:             0 kB
00500000-00501000 r--p 00100000 fe:00 1 /usr/bin/tidemark
Anonymous:             4 kB
00501000-00502000 rw-p 00101000 fe:00 1 /usr/bin/tidemark
Anonymous:             0 kB
c000000000-c000400000 rw-p 00000000 00:00 0
Anonymous:             0 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 2 /usr/lib/libc.so.6
Anonymous:             0 kB
7f0000002000-7f0000003000 r--p 00000000 fe:00 1 /usr/bin/tidemark (deleted)
Anonymous:             0 kB
`
	want := []pages{{0x400000, 0x402000}, {0x402000, 0x500000}}
	if got := programPages([]byte(table), "/usr/bin/tidemark"); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// TestUnmapStart: the program goes on with less memory.
func TestUnmapStart(t *testing.T) {
	before := residentFile(t)
	unmapStart()
	if after := residentFile(t); after > before/2 {
		t.Errorf("%d KiB of files are mapped, %d before", after, before)
	}
}

// residentFile is how much of the files that are mapped is in memory, in KiB.
func residentFile(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(status), "RssFile:")
	n, err := strconv.Atoi(strings.Fields(text)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
