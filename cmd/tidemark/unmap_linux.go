package main

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// unmapStart takes the pages of the program itself out of the process's memory: a
// start touches two thirds of them, the service that follows a tenth. They stay in
// the kernel's page cache, and what is used again is mapped again in microseconds.
// What cannot be told for certain stays as it is.
func unmapStart() {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range programPages(maps, self) {
		// An error leaves the pages where they are.
		syscall.Syscall(syscall.SYS_MADVISE, m.begin, m.end-m.begin, syscall.MADV_DONTNEED)
	}
}

// pages is a mapping of a file.
type pages struct{ begin, end uintptr }

// programPages finds the mappings of a file that cannot be written and were not
// written, in a table as /proc/PID/smaps has it: the linker writes some before it
// protects them, and a debugger any, and those would be lost.
func programPages(smaps []byte, file string) []pages {
	var all []pages
	var at pages
	ours := false
	for lines := bufio.NewScanner(bytes.NewReader(smaps)); lines.Scan(); {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) < 2 {
			continue
		}
		if begin, end, ok := bytes.Cut(fields[0], []byte("-")); ok {
			low, lowErr := strconv.ParseUint(string(begin), 16, strconv.IntSize)
			high, highErr := strconv.ParseUint(string(end), 16, strconv.IntSize)
			mode := string(fields[1])
			at = pages{uintptr(low), uintptr(high)}
			ours = lowErr == nil && highErr == nil && low < high && len(fields) == 6 && string(fields[5]) == file && (mode == "r--p" || mode == "r-xp")
			continue
		}
		if ours && string(fields[0]) == "Anonymous:" && string(fields[1]) == "0" {
			all = append(all, at)
		}
	}
	return all
}
