package tidemark

import (
	"github.com/tidemark-dev/tidemark/internal/httpapi"
)

// checks are the checks of /readyz, by the names that probes use. The server
// accepts connections only once all parts have started, so only the log can fail later.
// For clients of kube-apiserver its name is "etcd".
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

// allMetrics returns the metrics of the parts of the root world and of its server.
func (w *World) allMetrics() []httpapi.Metric {
	r := w.running
	floor, head := w.store.Bounds()
	all := []httpapi.Metric{
		{
			Name: "apiserver_tls_handshake_errors_total", Counter: true,
			Help:  "TLS handshakes that failed.",
			Value: float64(r.handshakeErrors.Load()),
		},
		{
			Name:  "tidemark_transport_bytes",
			Help:  "Memory that waits for clients of all HTTP/2 connections: answers that are not sent yet, bodies that are not read yet, headers.",
			Value: float64(r.transportUsed()),
		},
		{
			Name:  "tidemark_store_revision",
			Help:  "The newest revision of the store: the resourceVersion of a list made now.",
			Value: float64(head),
		},
		{
			Name:  "tidemark_store_oldest_revision",
			Help:  "The oldest revision that can still be read and watched from.",
			Value: float64(floor),
		},
		{
			Name:  "tidemark_controllers_revision",
			Help:  "How far the controllers have seen the store: its revision, but for a moment after a write.",
			Value: float64(w.loops.Revision()),
		},
	}
	all = append(all, w.storageMetrics()...)
	all = append(all, r.auditMetrics()...)
	all = append(all, r.encryptionMetrics()...)
	for _, f := range w.loops.Metrics() {
		name := map[string]string{"name": f.Name}
		all = append(all,
			httpapi.Metric{Name: "workqueue_depth", Help: "Objects that a controller has to look at.", Labels: name, Value: f.Depth()},
			httpapi.Metric{Name: "workqueue_adds_total", Help: "Objects that a controller had to look at.", Labels: name, Counter: true, Value: f.Adds()},
			httpapi.Metric{Name: "workqueue_retries_total", Help: "Failures of a controller; it retries each.", Labels: name, Counter: true, Value: f.Retries()},
			httpapi.Metric{Name: "tidemark_controller_paused", Help: "1 while a kube-controller-manager holds its lease and does the work.", Labels: name, Value: f.Paused()},
		)
	}
	return all
}

// loopChecks has a line for each enabled controller, so that operators see which run. A
// controller that fails retries, which does not make the server unready: the metrics show
// its failures.
func (w *World) loopChecks() []httpapi.Check {
	var all []httpapi.Check
	for _, f := range w.loops.Metrics() {
		all = append(all, httpapi.Check{Name: "controller/" + f.Name, Probe: func() error { return w.loops.Err() }, Note: func() string {
			if f.Paused() > 0 {
				return ", paused: a kube-controller-manager holds its lease"
			}
			return ""
		}})
	}
	return all
}
