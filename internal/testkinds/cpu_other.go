//go:build !unix

package testkinds

import "time"

var began = time.Now()

// cpuTime returns the wall time since the start of the process.
func cpuTime() time.Duration { return time.Since(began) }
