//go:build !unix

package bench

import (
	"os/exec"
	"syscall"
)

// Elsewhere there are no process groups, and the scenario start is skipped.

func ownGroup(*exec.Cmd) {}

func ownSession(*exec.Cmd) {}

func signalGroup(*exec.Cmd, syscall.Signal) error { return syscall.EINVAL }
