package aggregation

import (
	"context"
	"net/http"
	"sync/atomic"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Backend is an extension server as one APIService names it. Its methods are safe for concurrent use.
type Backend struct {
	of   *Aggregator
	name string // of the APIService
	entry
	transport *http.Transport // nil: broken says why
	broken    error
	source    *source

	current atomic.Pointer[condition]
	changed chan struct{} // has a value if the backend has to be checked
	ctx     context.Context
	end     context.CancelFunc

	running atomic.Int64 // requests under way that are not long-running
}

// condition is the condition Available of an APIService.
type condition struct {
	status          apiregistrationv1.ConditionStatus
	reason, message string
}

// newBackend returns the backend of an APIService, and begins to check it. The lock is held.
func (a *Aggregator) newBackend(name string, s *read) *Backend {
	b := &Backend{of: a, name: name, entry: s.entry, changed: make(chan struct{}, 1)}
	b.transport, b.broken = a.newTransport(&b.entry)
	b.current.Store(&s.condition) // until it is checked
	b.ctx, b.end = context.WithCancel(a.ctx)
	b.source = a.join(b)
	a.done.Go(b.watch)
	return b
}

// close ends the checks of a backend that is no longer served. The lock of the aggregator is held.
func (b *Backend) close() {
	b.end()
	b.of.leave(b)
	if b.transport != nil {
		b.transport.CloseIdleConnections()
	}
}

// kick starts a check of the backend, after the one under way.
func (b *Backend) kick() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// condition returns the condition by the last check.
func (b *Backend) condition() condition { return *b.current.Load() }

// available reports whether requests are forwarded.
func (b *Backend) available() bool { return b.condition().status == apiregistrationv1.ConditionTrue }

// address returns the host and port of the Service.
func (b *Backend) address() (string, error) { return b.of.resolve(b.service) }
