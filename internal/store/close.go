package store

// Close waits for the writes under way, ends every cursor and closes the log.
// It is idempotent.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.writer.Close()
		s.closed.Store(true)
		close(s.done)
		s.stop()
		s.loop.Wait()
		for _, c := range *s.names.Load() {
			c.wakeAll()
		}
		s.history.mu.Lock()
		feeds := s.history.feeds
		s.history.mu.Unlock()
		for _, f := range feeds {
			f.send()
		}
		s.old.close() // no read of the log after this
		s.closeErr = s.archive.Close()
		s.o.Account.Close()
	})
	return s.closeErr
}

// Wake wakes the cursors of a collection although nothing changed in it, so that their
// readers check their other conditions.
func (s *Store) Wake(collection string) {
	if c := (*s.names.Load())[collection]; c != nil {
		c.wakeAll()
	}
}
