package bench

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

func createConfigMaps(ctx context.Context, b *bed, clients int) ([]row, error) {
	return b.create(ctx, clients, configMapsOf, func(name string, i int64) []byte {
		return b.objects.configMap(name, uint64(i), 0, "")
	})
}

func createPods(ctx context.Context, b *bed, clients int) ([]row, error) {
	return b.create(ctx, clients, podsOf, func(name string, i int64) []byte {
		return b.objects.pod(name, int(i))
	})
}

// create makes objects, and removes them after the measurement.
func (b *bed) create(ctx context.Context, clients int, resource string, body func(name string, i int64) []byte) ([]row, error) {
	ns, err := b.namespace(ctx, "made")
	if err != nil {
		return nil, err
	}
	u := b.collection(ns, resource, "")
	w := b.crew(clients, func(ctx context.Context, c *client, o op) error {
		name := fmt.Sprintf("made-%09d", b.serial.Add(1))
		return c.object(ctx, http.MethodPost, u, body(name, o.number), true)
	})
	rows, err := w.rows(w.measure(ctx))
	if err != nil {
		return nil, err
	}
	return rows, b.empty(ctx, ns, resource)
}

// updated is how many ConfigMaps are updated in turn.
const updated = 1000

// updateRound updates ConfigMaps without a resource version.
func updateRound(ctx context.Context, b *bed, clients int) ([]row, error) {
	n := min(updated, b.options.Objects)
	g, err := b.configs(ctx, "work", configMapsOf, n)
	if err != nil {
		return nil, err
	}
	w := b.crew(clients, func(ctx context.Context, c *client, o op) error {
		return g.update(ctx, c, int(spread(uint64(o.number))%uint64(n)), o.intended)
	})
	return w.rows(w.measure(ctx))
}

// overwrites is how often each pod is updated.
const overwrites = 10

// overwriteRound updates all pods of the read scenarios several times, however long it
// takes. It measures the memory of a collection whose objects have all been replaced.
func overwriteRound(ctx context.Context, b *bed) ([]row, error) {
	ns, err := b.podsNamespace(ctx)
	if err != nil {
		return nil, err
	}
	f, err := b.measured(func() (Measurements, error) {
		var h histogram
		n, begin := overwrites*b.options.Objects, time.Now()
		err := b.each(ctx, n, func(c *client, i int) error {
			sent := time.Now()
			err := b.changePod(ctx, c, ns, i%b.options.Objects)
			h.record(time.Since(sent))
			return err
		})
		return Measurements{Ops: int64(n), Seconds: time.Since(begin).Seconds(), Latency: h.latency()}, err
	})
	return []row{{loop: "closed, 16 clients", Measurements: f}}, err
}

// contenders is how many clients update one object.
const contenders = 8

// contendedRound counts the conflicts of clients that update one object, each from the version that
// it has read.
func contendedRound(ctx context.Context, b *bed) ([]row, error) {
	ns, err := b.configMaps(ctx, "work", 1)
	if err != nil {
		return nil, err
	}
	name := configMapName(0)
	u := b.object(ns, configMapsOf, name)
	var conflicts atomic.Int64
	w := b.crew(contenders, func(ctx context.Context, c *client, _ op) error {
		for {
			if err := c.object(ctx, http.MethodGet, u, nil, false); err != nil {
				return err
			}
			body := b.objects.configMap(name, b.serial.Add(1), 0, strconv.FormatUint(c.revision, 10))
			err := c.object(ctx, http.MethodPut, u, body, true)
			if !hasCode(err, http.StatusConflict) {
				return err
			}
			conflicts.Add(1)
		}
	}).closed()
	if err := w.warm(ctx); err != nil {
		return nil, err
	}
	conflicts.Store(0)
	rows, err := w.rows(b.measured(func() (Measurements, error) { return w.run(ctx) }))
	for i := range rows {
		rows[i].Extra = map[string]float64{"conflicts": float64(conflicts.Load())}
	}
	return rows, err
}
