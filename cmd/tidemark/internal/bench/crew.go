package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// crew is a number of clients that repeat one operation. Its loop is closed, or open if
// the options give a rate.
type crew struct {
	bed     *bed
	clients []*client
	do      func(ctx context.Context, c *client, o op) error
	// rate is the number of intended starts per second. Zero means a closed loop.
	rate float64
	// duration is the length of a measured round.
	duration time.Duration

	count     atomic.Int64 // operations begun, warm-up included
	latencies histogram
}

// op is one operation of a crew.
type op struct {
	// number counts the operations of all clients, warm-up included.
	number int64
	// intended is the intended start. In a closed loop it is the actual start.
	intended time.Time
}

// crew returns a crew of n clients, or of as many as the options say.
func (b *bed) crew(n int, do func(ctx context.Context, c *client, o op) error) *crew {
	if b.options.Clients > 0 {
		n = b.options.Clients
	}
	return b.fixedCrew(n, do)
}

// fixedCrew returns a crew of n clients.
func (b *bed) fixedCrew(n int, do func(ctx context.Context, c *client, o op) error) *crew {
	w := &crew{bed: b, do: do, rate: b.options.Rate, duration: b.options.Duration}
	for i := range n {
		w.clients = append(w.clients, newClient(b.conns[i%len(b.conns)], i, b.json))
	}
	return w
}

// closed makes the loop closed, whatever the options are.
func (w *crew) closed() *crew {
	w.rate = 0
	return w
}

// loop describes the load.
func (w *crew) loop() string { return loopName(w.rate, len(w.clients)) }

func loopName(rate float64, clients int) string {
	if rate > 0 {
		return fmt.Sprintf("open, %.4g/s", rate)
	}
	if clients == 1 {
		return "closed, 1 client"
	}
	return fmt.Sprintf("closed, %d clients", clients)
}

// warm has every client do the operation once, which opens the connections.
func (w *crew) warm(ctx context.Context) error {
	err := w.all(ctx, func(ctx context.Context, c *client) error {
		return w.do(ctx, c, op{w.count.Add(1) - 1, time.Now()})
	})
	for _, c := range w.clients {
		c.bytes, c.items = 0, 0
	}
	return err
}

// run repeats the operation for the duration, and sums up the results. It does at least
// one operation, however busy the machine is.
func (w *crew) run(ctx context.Context) (Measurements, error) {
	var started, finished atomic.Int64
	begin := time.Now()
	deadline := begin.Add(w.duration)
	err := w.all(ctx, func(ctx context.Context, c *client) error {
		for ctx.Err() == nil {
			i := started.Add(1) - 1
			intended := time.Now()
			if w.rate > 0 {
				intended = begin.Add(time.Duration(float64(i) / w.rate * float64(time.Second)))
				sleepUntil(ctx, earlier(intended, deadline))
			}
			if i >= w.bed.options.MaxOps || i > 0 && !intended.Before(deadline) {
				return ctx.Err()
			}
			if err := w.do(ctx, c, op{w.count.Add(1) - 1, intended}); err != nil {
				return err
			}
			w.latencies.record(time.Since(intended))
			finished.Add(1)
		}
		return ctx.Err()
	})
	f := Measurements{Ops: finished.Load(), Seconds: time.Since(begin).Seconds(), Latency: w.latencies.latency()}
	for _, c := range w.clients {
		f.Bytes += c.bytes
		f.Items += c.items
	}
	return f, err
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// sleepUntil waits until t, or until the context ends.
func sleepUntil(ctx context.Context, t time.Time) {
	d := time.Until(t)
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// all calls do for every client at once, and waits for all. The first error cancels the
// others.
func (w *crew) all(ctx context.Context, do func(ctx context.Context, c *client) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, c := range w.clients {
		wg.Go(func() {
			if err := do(ctx, c); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// measure warms the crew up, and runs it while it measures the server.
func (w *crew) measure(ctx context.Context) (Measurements, error) {
	if err := w.warm(ctx); err != nil {
		return Measurements{}, err
	}
	return w.bed.measured(func() (Measurements, error) { return w.run(ctx) })
}

// settle is the longest pause before a measurement, in which the server finishes the
// work of the last one. Short measurements have a shorter pause.
const settle = 100 * time.Millisecond

// measured runs work, and adds the CPU and memory of the server to its measurements.
func (b *bed) measured(work func() (Measurements, error)) (Measurements, error) {
	time.Sleep(min(settle, b.options.Duration))
	earlier := b.goRuntime(context.Background())
	pids := b.server.PIDs
	reset := resetPeaks(pids)
	before, err := readUsage(pids)
	if err != nil {
		return Measurements{}, err
	}
	f, err := work()
	if err != nil {
		return Measurements{}, err
	}
	after, err := readUsage(pids)
	if err != nil {
		return Measurements{}, err
	}
	if len(after.processes) > 0 {
		cpu := after.since(before)
		f.ServerCPU = &cpu
	}
	if after.own >= 0 {
		own := after.own - before.own
		f.OwnCPU = &own
	}
	if f.Memory, err = readMemory(pids); f.Memory != nil {
		f.Memory.PeakOfRound = reset
	}
	if later := b.goRuntime(context.Background()); later != nil && earlier != nil {
		f.GoRuntime = &GoRuntime{
			LiveHeap: int64(later.live), GOGC: int64(later.gogc), GOMEMLIMIT: later.memoryLimit, MarkCPU: later.mark - earlier.mark,
		}
	}
	return f, err
}
