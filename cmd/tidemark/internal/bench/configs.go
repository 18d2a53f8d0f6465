package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// configs are the ConfigMaps of a namespace, or as many custom objects with the same
// data.
type configs struct {
	bed      *bed
	ns       string
	resource string // configMapsOf or settingsOf
	// patched is set if updates are merge patches of the changed fields. An update of a custom
	// object would have to repeat the other fields.
	patched bool
}

// configs returns n objects or more in the namespace of a role; it makes those that
// are not there.
func (b *bed) configs(ctx context.Context, role, resource string, n int) (configs, error) {
	if resource == settingsOf {
		role += "-custom"
		if err := b.define(ctx, settingDefinition); err != nil {
			return configs{}, err
		}
	}
	ns, err := b.namespace(ctx, role)
	g := configs{bed: b, ns: ns, resource: resource}
	have := b.filled[ns]
	if err != nil || have >= n {
		return g, err
	}
	if err = g.fill(ctx, have, n); err == nil {
		b.filled[ns] = n
	}
	return g, err
}

// fill makes those with the numbers from have up to n.
func (g configs) fill(ctx context.Context, have, n int) error {
	u := g.url("")
	return g.bed.each(ctx, n-have, func(c *client, i int) error {
		i += have
		return c.object(ctx, http.MethodPost, u, g.body(configMapName(i), uint64(i), 0), true)
	})
}

// url returns the URL of the collection.
func (g configs) url(query string) *url.URL { return g.bed.collection(g.ns, g.resource, query) }

// body is an object.
func (g configs) body(name string, number uint64, sent int64) []byte {
	if g.resource == settingsOf {
		return g.bed.setting(name, number, sent)
	}
	return g.bed.objects.configMap(name, number, sent, "")
}

// update writes an object, with a time in it that watchers read.
func (g configs) update(ctx context.Context, c *client, i int, sent time.Time) error {
	u := g.url("")
	name := configMapName(i)
	u.Path += "/" + name
	if g.patched {
		return c.object(ctx, http.MethodPatch, u, fmt.Appendf(nil, `{"data":{%s}}`, sentMember(g.bed.sinceEpoch(sent))), true)
	}
	return c.object(ctx, http.MethodPut, u, g.body(name, g.bed.serial.Add(1), g.bed.sinceEpoch(sent)), true)
}

// watch opens n watches of all objects, from now on.
func (g configs) watch(ctx context.Context, n int, as eventForm) (*fanout, error) {
	rv, err := g.bed.revision(ctx, g.ns, g.resource)
	if err != nil {
		return nil, err
	}
	u := g.url(fmt.Sprintf("watch=1&resourceVersion=%d%s", rv, as.query))
	return g.bed.watch(ctx, as, n, g.bed.options.WatchesPerConnection, func(int) *url.URL { return u })
}

// writers update objects for watchers. In a closed loop a write waits until all but a
// number of those before it have reached all watchers.
func (g configs) writers(f *fanout, writes *atomic.Int64) *crew {
	var w *crew
	w = g.bed.fixedCrew(watchWriters, func(ctx context.Context, c *client, o op) error {
		intended := o.intended
		if w.rate == 0 {
			if err := f.room(ctx, writes); err != nil {
				return err
			}
			intended = time.Now()
		}
		// Each writer has objects of its own.
		err := g.update(ctx, c, (c.number+int(o.number)*watchWriters)%watchedMaps, intended)
		if err == nil {
			writes.Add(1)
		}
		return err
	})
	if g.patched {
		w.as(g.bed.header(benchAgent, mergePatch))
	}
	return w
}
