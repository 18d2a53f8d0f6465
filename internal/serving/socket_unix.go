//go:build unix

package serving

import (
	"net"
	"syscall"
)

// listenPrivate listens on a socket with mode 0600. The umask is that of the whole process: files that
// other goroutines create meanwhile get at most this mode, too.
func listenPrivate(path string) (net.Listener, error) {
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	return net.Listen("unix", path)
}
