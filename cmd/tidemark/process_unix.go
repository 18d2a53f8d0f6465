//go:build unix

package main

import (
	"context"
	"net"
	"os"
	"syscall"
	"time"
)

// listenPrivate listens on a socket with mode 0600. The umask is that of the whole process: files that
// other goroutines create meanwhile get at most this mode, too.
func listenPrivate(path string) (net.Listener, error) {
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	return net.Listen("unix", path)
}

// parentPause is the pause between two checks of the parent.
const parentPause = 200 * time.Millisecond

// awaitParent returns when the parent has ended or the context ends. When a
// parent ends, its children get another parent on every Unix. A parent-death signal, which only some
// systems have, would also arrive when just the thread ends that started the process.
func awaitParent(ctx context.Context) {
	parent := os.Getppid()
	tick := time.NewTicker(parentPause)
	defer tick.Stop()
	for os.Getppid() == parent {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
