// Package progress shows the progress of a long command: finished steps on lines that
// stay, and the current step on a line that changes.
package progress

import (
	"fmt"
	"io"
	"sync"
)

// Progress writes progress to W. The zero value writes nothing.
type Progress struct {
	// W receives the lines; nil means no output.
	W io.Writer
	// Terminal is true if a line on W can be overwritten.
	Terminal bool
}

// wipe clears the current line.
const wipe = "\r\x1b[K"

// Step shows the current step, if W is a terminal.
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

// Shared returns a Progress that several goroutines can use: calls do not overlap.
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
