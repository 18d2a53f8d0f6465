package aggregation

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/upgrade"
)

// Config configures an Aggregator. A field is required unless its comment describes its zero value.
type Config struct {
	Store *store.Store
	// EditStatus changes the status of an APIService. The edit returns false to leave it as it is, and may be called several
	// times. An APIService that does not exist is no error.
	EditStatus func(ctx context.Context, name string, edit func(*apiregistrationv1.APIService) bool) error
	// Writes reports whether this server writes the conditions of APIServices; otherwise another one does. It is safe for
	// concurrent use. Nil: it does.
	Writes func() bool
	// Endpoints: requests go to the endpoints of a Service instead of its cluster IP.
	Endpoints bool
	// ForwardRedirects: clients get the redirects of extension servers.
	ForwardRedirects bool
	// Certificate returns the client certificate of the server, by which extension servers trust the user that it names; it is
	// called for each connection, and is safe for concurrent use. Nil: there is none.
	Certificate func() *tls.Certificate
	// MaxConnections is how many connections to extension servers may be open; zero: there is no limit.
	MaxConnections int
	// Own reports whether a server listens at an address that is part of this one. It is safe for concurrent use. Nil: it
	// does not listen.
	Own func(netip.AddrPort) bool
	// Identity is a secret text by which the server recognizes requests that it forwarded itself.
	Identity string
	// IdentityHeaders and IdentityPrefixes are further headers, and beginnings of headers, in which clients name users. They
	// are not forwarded. Empty: X-Remote-* alone.
	IdentityHeaders, IdentityPrefixes []string
	// Now is the wall clock; nil: time.Now.
	Now func() time.Time
	// Log gets changes of availability; nil: nothing is logged.
	Log *slog.Logger
}

// Aggregator knows the extension servers of a store. Its methods are safe for concurrent use.
type Aggregator struct {
	c     Config
	table atomic.Pointer[Table]
	// generation counts the changes of fetched documents.
	generation atomic.Uint64
	merged     atomic.Pointer[Merged]
	failures   failures
	limit      upgrade.Limit
	checks     chan struct{} // a value for each check under way
	// rechecks is checks for extension servers whose last check failed. Such a check may take long, and the others do not wait
	// for it.
	rechecks chan struct{}

	ctx  context.Context //nolint:containedctx // of the goroutines
	stop context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex          // held to make the next table; guards the rest
	backends map[string]*Backend // by the name of their APIService
	sources  map[sourceKey]*source
	closed   bool
	cursors  []*store.Cursor
}

// maxChecks is how many APIServices are checked at a time, and maxRechecks how many of those whose last check failed.
const (
	maxChecks   = 32
	maxRechecks = 32
)

// New returns an aggregator that knows the APIServices of the newest state. It follows the store until Close.
func New(c Config) *Aggregator {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	a := &Aggregator{c: c, backends: map[string]*Backend{}, sources: map[sourceKey]*source{}, checks: make(chan struct{}, maxChecks), rechecks: make(chan struct{}, maxRechecks)}
	a.limit.Most, a.limit.Relieve = int64(c.MaxConnections), a.closeIdle
	a.ctx, a.stop = context.WithCancel(context.Background())
	a.table.Store(emptyTable)
	a.follow(Collection, nil, a.update)
	a.update()
	a.follow(services, a.touchesService, nil)
	a.follow(endpointSlices, a.touchesSlice, nil)
	return a
}

// closeIdle closes the connections that are not in use.
func (a *Aggregator) closeIdle() {
	for _, b := range a.table.Load().remote {
		if b.transport != nil {
			b.transport.CloseIdleConnections()
		}
	}
}

// Close ends the checks. Requests under way go on.
func (a *Aggregator) Close() {
	a.stop()
	a.mu.Lock()
	a.closed = true
	for _, c := range a.cursors {
		c.Wake()
	}
	for _, b := range a.backends {
		b.close()
	}
	a.mu.Unlock()
	a.done.Wait()
}

// Backend returns the backend of a group and version; nil: no extension server serves them.
func (a *Aggregator) Backend(group, version string) *Backend {
	if a == nil {
		return nil
	}
	t := a.table.Load()
	if len(t.remote) == 0 {
		return nil
	}
	return t.backend(groupVersion{group, version})
}

// follow calls touched for each change of a collection, and then changed, until the aggregator is closed. Each of both may
// be nil. After a gap in the history, it calls changed and touches all backends.
func (a *Aggregator) follow(collection string, touched func(*store.Change), changed func()) {
	var cursor *store.Cursor
	begin := func() bool {
		next, err := a.c.Store.Watch(collection, "", a.c.Store.Any().Revision())
		a.mu.Lock()
		defer a.mu.Unlock()
		if err != nil || a.closed {
			return false
		}
		a.cursors = append(a.cursors[:len(a.cursors):len(a.cursors)], next)
		cursor = next
		return true
	}
	if !begin() {
		return
	}
	a.done.Go(func() {
		defer func() { cursor.Close() }()
		buf := make([]*store.Change, 16)
		for a.ctx.Err() == nil {
			n, err := cursor.TryNext(a.ctx, buf)
			switch {
			case errors.Is(err, store.ErrClosed), a.ctx.Err() != nil:
				return
			case err != nil: // the changes in between cannot be read: begin again with the newest state
				old := cursor
				if !begin() {
					return
				}
				old.Close()
				a.Recheck()
			}
			if touched != nil {
				for _, c := range buf[:n] {
					touched(c)
				}
			}
			clear(buf[:n])
			if changed != nil && (n > 0 || err != nil) {
				changed()
			}
			if n == 0 && err == nil {
				cursor.Wait()
			}
		}
	})
}

// update makes the table of the newest APIServices.
func (a *Aggregator) update() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	before, now := a.table.Load(), a.c.Store.Any().Snapshot(Collection)
	next := &Table{services: make(map[string]read, now.Len())}
	for o := range now.Scan("", "") {
		if known, ok := before.services[o.Key]; ok && known.of == o {
			next.services[o.Key] = known
			continue
		}
		s, err := readService(o)
		if err != nil {
			a.c.Log.Error("an APIService cannot be read, and is not served", "name", o.Key, "err", err)
			continue
		}
		next.services[o.Key] = s
	}
	for name, b := range a.backends {
		if s, ok := next.services[name]; !ok || !sameSpec(&s.entry, &b.entry) {
			delete(a.backends, name)
			b.close()
			if !ok || !s.remote {
				a.failures.forget(name)
			}
		}
	}
	for name, s := range next.services {
		if !s.remote {
			continue
		}
		b := a.backends[name]
		if b == nil {
			b = a.newBackend(name, &s)
			a.backends[name] = b
		} else if s.condition != b.condition() { // another client or server wrote it
			b.kick()
		}
		if next.remote == nil {
			next.remote = map[groupVersion]*Backend{}
		}
		next.remote[s.groupVersion] = b
	}
	a.table.Store(next)
}

// Recheck starts checks of all extension servers. For a nil Aggregator it is a no-op.
func (a *Aggregator) Recheck() {
	if a == nil {
		return
	}
	for _, b := range a.table.Load().remote {
		b.kick()
	}
}

// touchesService starts checks of the backends of a Service that has changed.
func (a *Aggregator) touchesService(c *store.Change) { a.kickService(c.Key()) }

// touchesSlice starts checks of the backends of the Service of an EndpointSlice.
func (a *Aggregator) touchesSlice(c *store.Change) {
	if len(a.table.Load().remote) == 0 {
		return
	}
	namespace, _, _ := strings.Cut(c.Key(), "/")
	for _, o := range []*store.Object{c.Before, c.After} {
		if o == nil {
			continue
		}
		for _, b := range a.table.Load().remote {
			if b.service.namespace != namespace || !mayBelong(o, b.service.name) {
				continue
			}
			if s, err := readSlice(o); err == nil && s.Labels[sliceService] == b.service.name {
				b.kick()
			}
		}
	}
}

// kickService starts checks of the backends of a Service.
func (a *Aggregator) kickService(key string) {
	for _, b := range a.table.Load().remote {
		if b.service.key() == key {
			b.kick()
		}
	}
}
