package bench

import (
	"context"
	"crypto/tls"
	"net/http"
)

// connectClients is how many clients open connections at once.
const connectClients = 4

var connectVariants = []variant{
	{name: "full", round: connectRound(func() tls.ClientSessionCache { return nil })},
	{name: "resumed", round: connectRound(func() tls.ClientSessionCache { return tls.NewLRUClientSessionCache(0) })},
}

// connectRound opens a connection for every GET of a small object.
func connectRound(sessions func() tls.ClientSessionCache) func(ctx context.Context, b *bed) ([]row, error) {
	return func(ctx context.Context, b *bed) ([]row, error) {
		ns, err := b.configMaps(ctx, "work", 1)
		if err != nil {
			return nil, err
		}
		u := b.object(ns, configMapsOf, configMapName(0))
		cache := sessions()
		w := b.crew(connectClients, func(ctx context.Context, c *client, _ op) error {
			fresh, err := b.target.dial(cache)
			if err != nil {
				return err
			}
			defer fresh.close()
			shared := c.conn
			defer func() { c.conn = shared }()
			c.conn = fresh
			return c.object(ctx, http.MethodGet, u, nil, false)
		}).closed()
		return w.rows(w.measure(ctx))
	}
}
