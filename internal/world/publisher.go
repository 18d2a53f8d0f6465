package world

import (
	"path/filepath"
	"slices"
	"sync"
)

// publisher knows where the certificate of the server's own authority was published.
type publisher struct {
	mu      sync.Mutex // held while it is published again
	files   []string   // kubeconfigs, guarded by mu
	stopped bool       // guarded by mu
}

// add adds a kubeconfig file.
func (p *publisher) add(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.files, path) {
		p.files = append(p.files, path)
	}
	return nil
}

// stop waits until nothing is being published, and prevents that later.
func (p *publisher) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
}
