//go:build !unix

package serving

import "net"

// listenPrivate listens on a socket. The permissions of its directory protect it.
func listenPrivate(path string) (net.Listener, error) { return net.Listen("unix", path) }
