//go:build !unix

package main

import (
	"context"
	"net"
	"os"
)

// listenPrivate listens on a socket. The permissions of its directory protect it.
func listenPrivate(path string) (net.Listener, error) { return net.Listen("unix", path) }

// awaitParent returns when the parent has ended. The handle of a process stays valid after its end.
func awaitParent(context.Context) {
	if parent, err := os.FindProcess(os.Getppid()); err == nil {
		parent.Wait()
	}
}
