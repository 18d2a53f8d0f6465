package progress_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
)

// TestProgress checks that a file gets lines alone, and a terminal also the running step.
func TestProgress(t *testing.T) {
	for _, test := range []struct {
		terminal bool
		want     string
	}{{false, "one\n"}, {true, "\r\x1b[Kat 1\r\x1b[Kone\n"}} {
		var b bytes.Buffer
		p := progress.Progress{W: &b, Terminal: test.terminal}
		p.Step("at %d", 1)
		if p.Done("%s", "one"); b.String() != test.want {
			t.Errorf("%q, want %q", b.String(), test.want)
		}
	}
	progress.Progress{}.Done("no output")
}

// TestShared: lines of several goroutines stay whole.
func TestShared(t *testing.T) {
	var b bytes.Buffer
	p := progress.Progress{W: &b}.Shared()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { p.Done("a line") })
	}
	if wg.Wait(); b.String() != strings.Repeat("a line\n", 10) {
		t.Errorf("%q", b.String())
	}
}
