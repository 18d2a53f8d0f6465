//go:build unix

package webhook

import (
	"os/exec"
	"syscall"
)

// killAll makes the context of a command end its children, too: they are in a process group of their own.
func killAll(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}
