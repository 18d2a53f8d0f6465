package tidemark

import (
	"context"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// checks are the checks of /readyz, by the names that probes use. The server
// accepts connections only once all parts have started, so only the log can fail later.
// For clients of kube-apiserver its name is "etcd".
func (s *Server) checks(r *running) []httpapi.Check {
	fine := func() error { return nil }
	live, ready := r.usable, r.usable
	if log := r.storage.Shared; log != nil {
		if !r.follows() { // a restart of a follower does not bring its server back
			live = (&sharedCheck{server: s, log: log, timeout: r.storage.HealthTimeout}).probe
		}
		ready = (&sharedCheck{server: s, log: log, timeout: r.storage.ReadyTimeout}).probe
	}
	return []httpapi.Check{
		{Name: "log", Live: true, Probe: fine},
		{Name: "etcd", Live: true, Probe: live},
		{Name: "etcd-readiness", Probe: ready},
		{Name: "informer-sync", Probe: fine},
		{Name: "poststarthook/start-system-namespaces-controller", Live: true, Probe: fine},
	}
}

// usable returns why the server cannot write to its storage. A directory that was replaced ends the server, also if there are
// no writes: see pebblelog.Options.Held.
func (r *running) usable() error {
	if err := r.root.server.Err(); err != nil || r.storage.Usable == nil {
		return err
	}
	return r.storage.Usable()
}

// sharedCheck fails when the log of a shared storage does not answer in time. It asks the log once in
// that time at most, however many probes there are.
type sharedCheck struct {
	server  *Server
	log     store.Shared
	timeout time.Duration

	mu    sync.Mutex // held while the log is asked
	asked time.Time
	err   error
}

func (c *sharedCheck) probe() error {
	if err := c.server.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asked.IsZero() && time.Since(c.asked) < c.timeout {
		return c.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	_, c.err = c.log.Head(ctx)
	c.asked = time.Now()
	return c.err
}

const (
	// longestSync is how long the log may write a group of writes until the server is not ready.
	longestSync = 10 * time.Second
	// The serving certificate is about to end in the last part of its lifetime, at most certificateSoon before its end. The
	// server is not ready in the last part at all, at most certificateLast before the end.
	certificateSoon, certificateSoonPart = 14 * 24 * time.Hour, 4
	certificateLast, certificateLastPart = time.Hour, 20
)

// certificateCheck fails when a serving certificate is about to end.
func (s *Server) certificateCheck(r *running) httpapi.Check {
	left := func() (of *x509.Certificate, left time.Duration) {
		if of = r.firstToEnd(); of == nil {
			return nil, 0
		}
		return of, of.NotAfter.Sub(s.clock())
	}
	part := func(of *x509.Certificate, n int) time.Duration {
		return of.NotAfter.Sub(of.NotBefore) / time.Duration(n)
	}
	return httpapi.Check{Name: "serving-certificate",
		Probe: func() error {
			of, left := left()
			if of == nil || left >= min(certificateLast, part(of, certificateLastPart)) {
				return nil
			}
			return fmt.Errorf("the serving certificate of %v ends at %v", of.DNSNames, of.NotAfter.UTC())
		},
		Note: func() string {
			of, left := left()
			if of == nil || left >= min(certificateSoon, part(of, certificateSoonPart)) {
				return ""
			}
			return fmt.Sprintf(", a certificate ends in %v", left.Round(time.Minute))
		},
	}
}

// firstToEnd returns the serving certificate that ends first; nil: the server has none.
func (r *running) firstToEnd() (first *x509.Certificate) {
	if r.certificates == nil {
		return nil
	}
	for _, c := range r.certificates() {
		if c.Leaf != nil && (first == nil || c.Leaf.NotAfter.Before(first.NotAfter)) {
			first = c.Leaf
		}
	}
	return first
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
			Help:  "Memory that waits for clients of all HTTP/2 connections: responses that are not sent yet, bodies that are not read yet, headers.",
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
	if c := r.firstToEnd(); c != nil {
		all = append(all, httpapi.Metric{
			Name:  "tidemark_serving_certificate_expiration_timestamp_seconds",
			Help:  "When the serving certificate that ends first ends, in seconds since 1970.",
			Value: float64(c.NotAfter.Unix()),
		})
	}
	all = append(all, w.storageMetrics()...)
	all = append(all, r.auditMetrics()...)
	all = append(all, r.encryptionMetrics()...)
	all = append(all, r.followerMetrics()...)
	all = append(all, r.backupMetrics()...)
	return all
}

// loopChecks has a line for each enabled controller, so that operators see which run. A
// controller that fails retries, which does not make the server unready: the metrics show
// its failures.
func (w *World) loopChecks() []httpapi.Check {
	var all []httpapi.Check
	for _, f := range w.loops.Metrics() {
		all = append(all, httpapi.Check{Name: "controller/" + f.Name, Probe: func() error { return w.loops.Err() }, Note: func() string {
			if paused, led := w.loops.Standby(); paused && led { // its name is in the Lease: clients without credentials read this
				return ", paused: another server leads"
			} else if paused {
				return ", paused: no server leads"
			}
			if f.Paused() > 0 {
				return ", paused: a kube-controller-manager holds its lease"
			}
			return ""
		}})
	}
	return all
}
