//go:build !unix

package testkinds

import "time"

var began = time.Now()

// CPUTime returns the wall time since the start of the process.
func CPUTime() time.Duration { return time.Since(began) }
