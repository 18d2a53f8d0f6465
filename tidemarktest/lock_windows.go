package tidemarktest

import (
	"errors"
	"syscall"
	"time"
)

// lockPause is how often a taken lock is tried.
const lockPause = 50 * time.Millisecond

// errSharing is ERROR_SHARING_VIOLATION.
const errSharing = syscall.Errno(32)

// lock waits until no other process has the lock of a file. The lock ends with the process.
func lock(path string) (unlock func(), err error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	for {
		handle, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
		if err == nil {
			return func() { syscall.CloseHandle(handle) }, nil
		}
		if !errors.Is(err, errSharing) {
			return nil, err
		}
		time.Sleep(lockPause)
	}
}

// detached lets a server live on when this process ends, or its console is closed.
func detached() *syscall.SysProcAttr {
	const detachedProcess = 0x8
	return &syscall.SysProcAttr{CreationFlags: detachedProcess | syscall.CREATE_NEW_PROCESS_GROUP}
}
