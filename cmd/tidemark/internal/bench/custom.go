package bench

import (
	"context"
	"fmt"
	"net/http"
)

// customVariants are the same for ConfigMaps and for custom objects with their data.
func customVariants(round func(ctx context.Context, b *bed, resource string) ([]row, error)) []variant {
	return []variant{
		{name: "built-in", round: func(ctx context.Context, b *bed) ([]row, error) { return round(ctx, b, configMapsOf) }},
		{name: "custom", round: func(ctx context.Context, b *bed) ([]row, error) { return round(ctx, b, settingsOf) }},
	}
}

// alike returns as many objects as pods are read.
func (b *bed) alike(ctx context.Context, resource string) (configs, error) {
	return b.configs(ctx, "alike", resource, b.options.Objects)
}

func getAlike(ctx context.Context, b *bed, resource string) ([]row, error) {
	g, err := b.alike(ctx, resource)
	if err != nil {
		return nil, err
	}
	base, n := g.url(""), uint64(b.options.Objects)
	w := b.crew(readClients, func(ctx context.Context, c *client, o op) error {
		u := *base
		u.Path += "/" + configMapName(int(spread(uint64(o.number))%n))
		c.revision = 0 // another object's says nothing of this one's
		return c.object(ctx, http.MethodGet, &u, nil, false)
	})
	return w.rows(w.measure(ctx))
}

func (g configs) lister() lister {
	return lister{bed: g.bed, url: g.url(""), header: g.bed.json, want: int64(g.bed.options.Objects)}
}

func listAlike(ctx context.Context, b *bed, resource string) ([]row, error) {
	g, err := b.alike(ctx, resource)
	if err != nil {
		return nil, err
	}
	l := g.lister()
	w := b.crew(1, l.list).closed()
	return w.rows(w.measure(ctx))
}

func listAlikeGzip(ctx context.Context, b *bed, resource string) ([]row, error) {
	g, err := b.alike(ctx, resource)
	if err != nil {
		return nil, err
	}
	z, err := g.lister().gzip(ctx, acceptJSON)
	if err != nil {
		return nil, err
	}
	w := b.crew(1, z.list).closed()
	return z.rows(w.rows(w.measure(ctx)))
}

// alikeWatchers is how many watch.
const alikeWatchers = 100

func watchAlike(ctx context.Context, b *bed, resource string) ([]row, error) {
	g, err := b.configs(ctx, "watched", resource, watchedMaps)
	if err != nil {
		return nil, err
	}
	g.patched = true
	return g.watchRound(ctx, alikeWatchers, jsonEvents)
}

func createGadgets(ctx context.Context, b *bed, clients int) ([]row, error) {
	if err := b.define(ctx, gadgetDefinition); err != nil {
		return nil, err
	}
	// The server prunes members that the schema does not have, so the stored object shows
	// that it used the schema.
	ns, err := b.namespace(ctx, "made")
	if err != nil {
		return nil, err
	}
	probe, err := b.admin.small(ctx, http.MethodPost, b.collection(ns, gadgetsOf, "dryRun=All"), b.gadget("probe", 1))
	if err == nil {
		err = holds(probe, `"policy":"Delete"`)
	}
	if err != nil {
		return nil, fmt.Errorf("an object with a default: %w", err)
	}
	return b.create(ctx, clients, gadgetsOf, b.gadget)
}
