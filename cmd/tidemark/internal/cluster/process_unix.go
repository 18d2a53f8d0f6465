//go:build unix && !linux

package cluster

import (
	"os"
	"syscall"
)

// processAttributes puts a component into a process group of its own.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// terminate asks a process to end.
func terminate(p *os.Process) { p.Signal(syscall.SIGTERM) }
