package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	mixedRate     = 50 // writes a second, when no rate is given
	mixedWatchers = 100
)

// mixedRound runs lists, writes, and writes with watchers one after the other, and then all
// at once. The latencies show how they slow each other down.
func mixedRound(ctx context.Context, b *bed) ([]row, error) {
	l, err := b.lister(ctx, "")
	if err != nil {
		return nil, err
	}
	g, err := b.configs(ctx, "watched", configMapsOf, watchedMaps)
	if err != nil {
		return nil, err
	}
	lists := func() *crew { return b.fixedCrew(1, l.list).closed() }
	var rows []row
	add := func(name string, f Measurements, loop, unit string) {
		rows = append(rows, row{name, loop, unit, f})
	}

	alone := lists()
	f, err := alone.measure(ctx)
	if err != nil {
		return nil, err
	}
	add("list-alone", f, alone.loop(), "list")

	for _, phase := range []struct {
		suffix   string
		watchers int
		lists    bool
	}{{"-alone", 0, false}, {"-watched", b.watchers(mixedWatchers), false}, {"", b.watchers(mixedWatchers), true}} {
		m := mix{configs: g}
		if phase.lists {
			m.lists = lists()
		}
		if err := m.run(ctx, phase.watchers); err != nil {
			return nil, err
		}
		add("write"+phase.suffix, m.written, m.loop, "update")
		if phase.watchers > 0 {
			add("watch"+phase.suffix, m.events, m.loop, "event and watcher")
		}
		if phase.lists {
			add("list", m.listed, m.lists.loop(), "list")
		}
	}
	return rows, nil
}

// mix is a phase: writes, with watchers and lists or without.
type mix struct {
	configs
	lists *crew // nil: none

	loop                    string
	written, events, listed Measurements
}

func (m *mix) run(ctx context.Context, watchers int) error {
	f, err := m.watch(ctx, watchers, jsonEvents)
	if err != nil {
		return err
	}
	defer f.close()
	var count atomic.Int64
	w := m.writers(f, &count)
	if w.rate == 0 {
		w.rate = mixedRate
	}
	m.loop = w.loop()
	if m.lists != nil {
		if err := m.lists.warm(ctx); err != nil {
			return err
		}
	}
	all, err := m.bed.measured(func() (Measurements, error) {
		var wg sync.WaitGroup
		var listErr error
		if m.lists != nil {
			wg.Go(func() { m.listed, listErr = m.lists.run(ctx) })
		}
		begin := time.Now()
		var err error
		m.written, err = w.run(ctx)
		wg.Wait()
		if err == nil {
			err = listErr
		}
		if err == nil {
			err = f.await(ctx, count.Load())
		}
		m.events = Measurements{Ops: f.events.Load(), Seconds: time.Since(begin).Seconds(), Latency: f.latencies.latency(), Bytes: f.bytes.Load(), Items: f.events.Load()}
		return Measurements{}, err
	})
	// The CPU covers the whole mix. Without lists and watchers it is the cost of a write.
	if m.lists == nil && watchers == 0 {
		m.written.ServerCPU, m.written.OwnCPU = all.ServerCPU, all.OwnCPU
	}
	m.written.Memory = all.Memory
	return err
}
