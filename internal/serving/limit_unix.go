//go:build unix

package serving

import "golang.org/x/sys/unix"

// openFiles returns how many files the process may have open.
func openFiles() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // the default of most systems
	}
	return uint64(limit.Cur)
}
