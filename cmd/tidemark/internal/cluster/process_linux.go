package cluster

import (
	"os"
	"syscall"
)

// processAttributes puts a component into a process group of its own, and lets the kernel kill it when the thread ends that
// started it. That is also when this process is killed.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// terminate asks a process to end.
func terminate(p *os.Process) { p.Signal(syscall.SIGTERM) }
