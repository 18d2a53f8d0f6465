package audit

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/await"
)

// slowOutput writes when it is released, and notes the sizes.
type slowOutput struct {
	release chan struct{}
	mu      sync.Mutex
	sizes   []int // guarded by mu
	events  int   // guarded by mu
}

func (s *slowOutput) write(_ context.Context, b *batch) error {
	<-s.release
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sizes = append(s.sizes, len(b.data))
	s.events += len(b.ends)
	return nil
}

func (s *slowOutput) hurry()       {}
func (s *slowOutput) close() error { return nil }

// TestGroupsAreBounded: events that wait for a slow disk are written in groups of bounded size, each before its put returns.
func TestGroupsAreBounded(t *testing.T) {
	out := &slowOutput{release: make(chan struct{})}
	c := newCommitter(out, "log", func(_ string, _ int, err error) { t.Error(err) })
	const events = 200
	line := bytes.Repeat([]byte("x"), 64<<10)
	var all sync.WaitGroup
	returned := 0
	for range events {
		all.Go(func() {
			if err := c.put(new(Event), line); err != nil {
				t.Error(err)
			}
			out.mu.Lock()
			defer out.mu.Unlock()
			if returned++; returned > out.events {
				t.Errorf("%d puts have returned, %d events were written", returned, out.events)
			}
		})
	}
	await.True(t, "a full group that waits", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.open.data) >= groupBytes
	})
	close(out.release)
	all.Wait()
	if out.events != events {
		t.Errorf("%d events of %d", out.events, events)
	}
	for _, size := range out.sizes {
		if size > groupBytes+len(line) {
			t.Errorf("a group of %d bytes", size)
		}
	}
	if err := c.close(t.Context()); err != nil {
		t.Error(err)
	}
}
