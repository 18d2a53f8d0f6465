//go:build unix

package main

import (
	"context"
	"os"
	"time"
)

// parentPause is the pause between two checks of the parent.
const parentPause = 200 * time.Millisecond

// awaitParent returns when the parent has ended or the context ends. When a
// parent ends, its children get another parent on every Unix. A parent-death signal, which only some
// systems have, would also arrive when just the thread ends that started the process.
func awaitParent(ctx context.Context) {
	parent := os.Getppid()
	tick := time.NewTicker(parentPause)
	defer tick.Stop()
	for os.Getppid() == parent {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
