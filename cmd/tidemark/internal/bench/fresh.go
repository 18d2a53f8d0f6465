package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// freshMaps is how many ConfigMaps the list has.
const freshMaps = 8

// listFreshRound lists ConfigMaps at the other server after each write, most recent. Each list must
// have the written object.
func listFreshRound(ctx context.Context, b *bed) ([]row, error) {
	g, err := b.configs(ctx, "fresh", configMapsOf, freshMaps)
	if err != nil {
		return nil, err
	}
	at := b.elsewhere()
	writer, reader := newClient(b.conns[0], 0, b.json), newClient(at.conns[0], 0, at.json)
	u := at.collection(g.ns, configMapsOf, "")
	list := func() ([]byte, error) {
		response, err := reader.small(ctx, http.MethodGet, u, nil)
		if err != nil {
			return nil, err
		}
		reader.revision = max(reader.revision, writer.revision)
		return response, reader.advance("GET "+u.RequestURI(), response, false)
	}
	if _, err := list(); err != nil { // which opens the connection
		return nil, err
	}
	f, err := b.measured(func() (Measurements, error) {
		var f Measurements
		var h histogram
		end := time.Now().Add(b.options.Duration)
		for f.Ops == 0 || time.Now().Before(end) && f.Ops < b.options.MaxOps {
			serial := b.serial.Add(1)
			name := configMapName(int(serial % freshMaps))
			body := b.objects.configMap(name, serial, int64(serial), "")
			if err := writer.object(ctx, http.MethodPut, b.object(g.ns, configMapsOf, name), body, true); err != nil {
				return f, err
			}
			sent := time.Now()
			response, err := list()
			if err != nil {
				return f, err
			}
			took := time.Since(sent)
			if err := holds(response, sentMember(int64(serial))); err != nil {
				return f, fmt.Errorf("GET %s, after the write at resource version %d: %w", u.RequestURI(), writer.revision, err)
			}
			h.record(took)
			f.Ops++
			f.Seconds += took.Seconds()
		}
		f.Latency = h.latency()
		return f, nil
	})
	if err != nil {
		return nil, err
	}
	return []row{{loop: "closed, 1 client", Measurements: f}}, nil
}
