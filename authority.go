package tidemark

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/kubeconfig"
	"github.com/tidemark-dev/tidemark/internal/startup"
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

// followAuthority publishes the authority's certificate again after each renewal: for Pods, for
// extension servers, and in the kubeconfig files that the server wrote.
func (s *Server) followAuthority(r *running) {
	r.authority.Follow(func() {
		r.publisher.mu.Lock()
		defer r.publisher.mu.Unlock()
		if r.publisher.stopped {
			return
		}
		r.root.loops.RootCAChanged()
		clients, err := s.clientsData(r)
		if err == nil {
			err = startup.PublishClients(context.Background(), startup.Config{Registry: r.root.verbs, Catalog: builtin.Catalog(), Clients: clients, Shared: r.storage.Shared != nil, Now: s.now})
		}
		if err != nil {
			s.logOf(logCertificates).Warn("the authorities of client certificates are not published", "err", err)
		}
		for _, path := range r.publisher.files {
			if _, err := os.Stat(path); err != nil {
				continue // it was removed
			}
			if err := kubeconfig.Write(path, r.root.kubeconfig()); err != nil {
				s.logOf(logCertificates).Warn("a kubeconfig has the old certificate of the authority", "file", path, "err", err)
			}
		}
	})
}
