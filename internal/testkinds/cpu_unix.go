//go:build unix

package testkinds

import (
	"syscall"
	"time"
)

// CPUTime returns the CPU time that the process has used. Unlike wall time, it does not
// include other work on the machine.
func CPUTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
