//go:build !unix

package cluster

import (
	"os"
	"syscall"
)

// processAttributes has no attributes to set.
func processAttributes() *syscall.SysProcAttr { return nil }

// terminate kills a process: nothing else ends the process of another program here.
func terminate(p *os.Process) { p.Kill() }
