//go:build !unix

package main

import (
	"context"
	"os"
)

// awaitParent returns when the parent has ended. The handle of a process stays valid after its end.
func awaitParent(context.Context) {
	if parent, err := os.FindProcess(os.Getppid()); err == nil {
		parent.Wait()
	}
}
