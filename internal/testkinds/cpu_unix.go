//go:build unix

package testkinds

import (
	"syscall"
	"time"
)

// CPUTime is how long the process has computed. Unlike the time of the clock, it does not
// grow with other work on the machine.
func CPUTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
