//go:build !unix

package testkinds

import "time"

var began = time.Now()

// CPUTime is how long the process has run.
func CPUTime() time.Duration { return time.Since(began) }
