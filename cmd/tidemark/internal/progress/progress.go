// Package progress tells people what a long command does, on lines that stay and on
// one that changes.
package progress

import (
	"fmt"
	"io"
	"sync"
)

// Progress is told what goes on. The zero value tells nobody.
type Progress struct {
	// W gets lines; nil: nothing is told.
	W io.Writer
	// Terminal says that W shows a line that changes.
	Terminal bool
}

// wipe begins the line that changes anew.
const wipe = "\r\x1b[K"

// Step shows what goes on now, where a line can change.
func (p Progress) Step(format string, args ...any) {
	if p.W != nil && p.Terminal {
		fmt.Fprintf(p.W, wipe+format, args...)
	}
}

// Done writes a line that stays.
func (p Progress) Done(format string, args ...any) {
	if p.W == nil {
		return
	}
	if p.Terminal {
		format = wipe + format
	}
	fmt.Fprintf(p.W, format+"\n", args...)
}

// Shared is the same progress for several goroutines at once: each call is one write.
func (p Progress) Shared() Progress {
	if p.W != nil {
		p.W = &oneByOne{w: p.W}
	}
	return p
}

// oneByOne is a writer that is safe for concurrent use.
type oneByOne struct {
	mu sync.Mutex
	w  io.Writer // guarded by mu
}

// Write implements io.Writer.
func (o *oneByOne) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(p)
}
