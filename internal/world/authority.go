package world

import (
	"context"
	"os"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/kubeconfig"
	"github.com/tidemark-dev/tidemark/internal/startup"
)

// followAuthority publishes the authority's certificate again after each renewal: for Pods, for
// extension servers, and in the kubeconfig files that the server wrote.
func (s *Server) followAuthority() {
	p, root := s.process, s.root
	p.authority.Follow(func() {
		s.publisher.mu.Lock()
		defer s.publisher.mu.Unlock()
		if s.publisher.stopped {
			return
		}
		root.loops.RootCAChanged()
		clients, err := p.clientsData()
		if err == nil {
			err = startup.PublishClients(context.Background(), startup.Config{Registry: root.verbs, Catalog: builtin.For(root.kubernetes), Clients: clients, Shared: p.storage.Shared != nil, Now: p.Now})
		}
		if err != nil {
			p.logOf(logCertificates).Warn("the authorities of client certificates are not published", "err", err)
		}
		for _, path := range s.publisher.files {
			if _, err := os.Stat(path); err != nil {
				continue // it was removed
			}
			if err := kubeconfig.Write(path, root.kubeconfig()); err != nil {
				p.logOf(logCertificates).Warn("a kubeconfig has the old certificate of the authority", "file", path, "err", err)
			}
		}
	})
}
