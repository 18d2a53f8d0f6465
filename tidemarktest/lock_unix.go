//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package tidemarktest

import (
	"fmt"
	"os"
	"syscall"
)

// lock waits until no other process has the lock of a file. The lock ends with the process.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if err != syscall.EINTR {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}

// detached lets a server live on when this process ends, or its terminal sends it a signal.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
