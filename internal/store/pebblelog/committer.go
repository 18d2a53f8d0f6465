package pebblelog

// committer runs the writes of a log on one goroutine. When Pebble gives up, it
// ends the goroutine that called it (see pebbleLogger.Fatalf), or another one
// while this one waits for ever: the caller of do sees the failure in both cases.
// One long-lived goroutine, because Pebble's commit needs a deep stack.
type committer struct {
	work chan func() error
	done chan error
}

func (c *committer) start() {
	c.work = make(chan func() error)
	c.done = make(chan error, 1) // the answer to a caller that left blocks nobody
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
