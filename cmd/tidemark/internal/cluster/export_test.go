package cluster

import "time"

// WithPause returns the options with another pause before the first restart.
func WithPause(o Options, pause time.Duration) Options {
	o.restartPause = pause
	return o
}
