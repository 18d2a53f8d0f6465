//lint:file-ignore SA1019 Endpoints are deprecated, and served.

package peers

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Addresses is the collection of the addresses of servers. It is not served. Its objects are Endpoints
// without a name; the key is the IP address. Each write renews the 15 seconds for which one is valid.
const Addresses = "masterleases"

// shown reports whether this server has an address for others.
func (p *Peers) shown() bool {
	ip := p.c.Startup.Address.Addr()
	return ip.IsValid() && !ip.IsLoopback()
}

// publish renews the address of this server, and brings the endpoints of the Service up to date.
func (p *Peers) publish(ctx context.Context) error {
	if !p.shown() {
		return nil
	}
	if err := p.renewAddress(ctx); err != nil {
		return fmt.Errorf("the address of this server: %w", err)
	}
	return p.putEndpoints(ctx)
}

func (p *Peers) putEndpoints(ctx context.Context) error {
	// The last server keeps its address there, as in kube-apiserver.
	current := func() []string { return addresses(p.c.Startup.Registry.Store.Any()) }
	if err := p.c.Startup.PutEndpoints(ctx, current); err != nil {
		return fmt.Errorf("the endpoints of the Service kubernetes: %w", err)
	}
	return nil
}

// renewAddress writes the address. Its generation makes each write a change, as in kube-apiserver.
func (p *Peers) renewAddress(ctx context.Context) error {
	ip, objects := p.c.Startup.Address.Addr().String(), p.c.Startup.Registry.Store
	for {
		next := &corev1.Endpoints{Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: ip}}}}}
		w := store.Write{Collection: Addresses, Key: ip}
		if o := objects.Any().Get(Addresses, ip); o != nil {
			w.If = o.Modified
			if was, err := registry.Decode[corev1.Endpoints](o); err == nil {
				next.Generation = was.Generation
			}
		}
		next.Generation++
		e, err := wire.Encode(p.kind("", "endpoints"), next)
		if err != nil {
			return err
		}
		w.Value, w.RevisionAt = e.Bytes, e.RevisionAt
		_, err = objects.Apply(ctx, &store.Txn{Writes: []store.Write{w}})
		if changed(err) && ctx.Err() == nil {
			continue // it has ended, or another server has the same address
		}
		return err
	}
}

func changed(err error) bool {
	return errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict)
}

// withdraw deletes the address of this server.
func (p *Peers) withdraw(ctx context.Context) error {
	if !p.shown() {
		return nil
	}
	ip, objects := p.c.Startup.Address.Addr().String(), p.c.Startup.Registry.Store
	o := objects.Any().Get(Addresses, ip)
	if o == nil {
		return nil
	}
	_, err := objects.Apply(ctx, &store.Txn{Writes: []store.Write{{Collection: Addresses, Key: ip, If: o.Modified}}})
	if err != nil && !changed(err) {
		return err
	}
	return p.putEndpoints(ctx)
}
