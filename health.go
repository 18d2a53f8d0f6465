package tidemark

import (
	"github.com/tidemark-dev/tidemark/internal/httpapi"
)

// checks are those of /readyz, under the names that probes know. The server
// accepts connections only once everything is there, so what can fail later on is
// the log alone; "etcd" is its name for whoever asks for kube-apiserver's.
func (s *Server) checks() []httpapi.Check {
	fine := func() error { return nil }
	return []httpapi.Check{
		{Name: "log", Live: true, Probe: fine},
		{Name: "etcd", Live: true, Probe: s.Err},
		{Name: "etcd-readiness", Probe: s.Err},
		{Name: "informer-sync", Probe: fine},
		{Name: "poststarthook/start-system-namespaces-controller", Live: true, Probe: fine},
	}
}

// figures are the metrics that the parts of a server have to tell.
func (r *running) figures() []httpapi.Figure {
	return []httpapi.Figure{
		{
			Name: "apiserver_tls_handshake_errors_total", Counter: true,
			Help: "TLS handshakes that failed.",
			Read: func() float64 { return float64(r.handshakeErrors.Load()) },
		},
		{
			Name: "tidemark_store_revision",
			Help: "The newest revision of the store: the resourceVersion of a list made now.",
			Read: func() float64 { _, head := r.store.Bounds(); return float64(head) },
		},
		{
			Name: "tidemark_store_oldest_revision",
			Help: "The oldest revision that can still be read and watched from.",
			Read: func() float64 { floor, _ := r.store.Bounds(); return float64(floor) },
		},
	}
}
