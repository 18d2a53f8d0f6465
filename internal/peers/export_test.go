package peers

// Kill ends what Join began as the end of the process does: the server does not withdraw.
func (p *Peers) Kill() {
	p.stop()
	p.done.Wait()
	p.shows = false
}
