package pebblelog

// committer runs the writes of a log on one goroutine. When Pebble fails, it ends that
// goroutine (see pebbleLogger.Fatalf), or another one while that goroutine waits for ever.
// In both cases the caller of do gets the failure. The goroutine is long-lived because
// Pebble's commit needs a deep stack.
type committer struct {
	work chan func() error
	done chan error
}

func (c *committer) start() {
	c.work = make(chan func() error)
	c.done = make(chan error, 1) // does not block if the caller has left
	go func() {
		for f := range c.work {
			c.done <- f()
		}
	}()
}

// do runs f. It is called by one goroutine at a time.
func (c *committer) do(failure *failure, f func() error) error {
	select {
	case c.work <- f:
	case <-failure.done:
		return failure.err
	}
	select {
	case err := <-c.done:
		return err
	case <-failure.done:
		return failure.err
	}
}

func (c *committer) stop() { close(c.work) }
