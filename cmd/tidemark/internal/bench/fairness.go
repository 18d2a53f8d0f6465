package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The fairness scenarios measure how a client that asks for too much affects others. The clients
// impersonate their users, so that they work with every credential.

const (
	// noisyClients list all pods as fast as they can, as the user bench-noisy. Like client-go, they
	// wait for as long as Retry-After requires when they are rejected.
	noisyClients = 500
	// noisyStreams is how many of them share a connection.
	noisyStreams = 25
	// quietRate is how many requests the other users send in a second, with quietClients each. These
	// are enough that a request seldom waits for the client before it.
	quietRate    = 50
	quietClients = 32
	// slowClients read lists of slowObjects ConfigMaps of slowBytes, slowBytes in each slowPause.
	slowClients = 10
	slowObjects = 1000
	slowBytes   = 100 << 10
	slowPause   = 100 * time.Millisecond
)

// asUser returns a header of requests of another user.
func (b *bed) asUser(name, group string) http.Header {
	h := b.json.Clone()
	h["Impersonate-User"], h["Impersonate-Group"] = []string{name}, []string{group, "system:authenticated"}
	return h
}

// allow gives two users rights in a namespace.
func (b *bed) allow(ctx context.Context, ns string) error {
	return b.each(ctx, 1, func(c *client, _ int) error {
		for resource, body := range map[string]string{
			rolesOf: `{"metadata":{"name":"fairness"},"rules":[{"apiGroups":[""],"resources":["pods","configmaps"],"verbs":["*"]}]}`,
			roleBindingsOf: `{"metadata":{"name":"fairness"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"fairness"},
				"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"bench-noisy"},{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"bench-quiet"}]}`,
		} {
			_, err := c.small(ctx, http.MethodPost, b.collection(ns, resource, ""), []byte(body))
			var refused *responseError
			if err != nil && !(errors.As(err, &refused) && refused.code == http.StatusConflict) {
				return err
			}
		}
		return nil
	})
}

// overloadRound measures small writes of one user, and small reads of a member of system:masters:
// alone, and while another user lists all pods with many clients.
func overloadRound(ctx context.Context, b *bed) ([]row, error) {
	l, err := b.lister(ctx, "")
	if err != nil {
		return nil, err
	}
	pods, err := b.podsNamespace(ctx)
	if err != nil {
		return nil, err
	}
	maps, err := b.configMaps(ctx, "quiet", watchedMaps)
	if err != nil {
		return nil, err
	}
	for _, ns := range []string{pods, maps} {
		if err := b.allow(ctx, ns); err != nil {
			return nil, err
		}
	}
	var rows []row
	for _, phase := range []struct {
		suffix string
		noisy  int
	}{{"-alone", 0}, {"", b.noisyClients()}} {
		o := overload{bed: b, lister: l, noisy: phase.noisy, maps: maps, pods: pods}
		if err := o.run(ctx); err != nil {
			return nil, err
		}
		rows = append(rows, row{"write" + phase.suffix, o.loop, "create", o.written}, row{"exempt" + phase.suffix, o.loop, "get", o.exempt})
		if phase.noisy > 0 {
			rows = append(rows, row{"list", fmt.Sprintf("closed, %d clients %s", phase.noisy, b.floodProcess()), "list", o.listed})
			compareWith(rows[0].Latency, &rows[2].Measurements)
			compareWith(rows[1].Latency, &rows[3].Measurements)
		}
	}
	return rows, b.empty(ctx, maps, configMapsOf)
}

// compareWith adds how many times the p99 without load the p99 under load is.
func compareWith(alone *Latency, m *Measurements) {
	if alone == nil || m.Latency == nil || alone.P99 == 0 {
		return
	}
	if m.Extra == nil {
		m.Extra = map[string]float64{}
	}
	m.Extra["p99TimesAlone"] = m.Latency.P99 / alone.P99
}

// noisyClients is how many clients list: as many as the options say, otherwise noisyClients.
func (b *bed) noisyClients() int {
	if b.options.Clients > 0 {
		return b.options.Clients
	}
	return int(min(noisyClients, b.options.MaxOps))
}

// overload is a phase.
type overload struct {
	bed        *bed
	lister     lister
	noisy      int // clients
	maps, pods string

	loop                    string
	written, exempt, listed Measurements
}

// run measures the phase.
func (o *overload) run(ctx context.Context) error {
	b := o.bed
	created := b.collection(o.maps, configMapsOf, "")
	quiet, master := b.asUser("bench-quiet", "bench"), b.asUser("bench-master", "system:masters")
	var rejected atomic.Int64
	writers := b.fixedCrew(quietClients, func(ctx context.Context, c *client, p op) error {
		c.json = quiet
		err := c.object(ctx, http.MethodPost, created, b.objects.configMap(fmt.Sprintf("quiet-%09d", b.serial.Add(1)), uint64(p.number), 0, ""), true)
		if isRejected(err) {
			rejected.Add(1)
			return nil
		}
		return err
	})
	readers := b.fixedCrew(quietClients, func(ctx context.Context, c *client, p op) error {
		c.json, c.revision = master, 0
		return c.object(ctx, http.MethodGet, b.object(o.pods, podsOf, podName(int(spread(uint64(p.number))%uint64(b.options.Objects)))), nil, false)
	})
	if writers.rate == 0 {
		writers.rate = quietRate
	}
	readers.rate = writers.rate
	o.loop = writers.loop()
	for _, w := range []*crew{writers, readers} {
		if err := w.warm(ctx); err != nil {
			return err
		}
	}
	noise, err := b.startFlood(ctx, o.lister.url, o.noisy)
	if err != nil {
		return err
	}
	if o.noisy > 0 {
		sleepUntil(ctx, time.Now().Add(min(time.Second, b.options.Duration))) // until the server is overloaded
	}
	all, err := b.measured(func() (Measurements, error) {
		var wg sync.WaitGroup
		var readErr error
		wg.Go(func() { o.exempt, readErr = readers.run(ctx) })
		var err error
		o.written, err = writers.run(ctx)
		wg.Wait()
		return Measurements{}, errors.Join(err, readErr)
	})
	o.written.Extra = map[string]float64{"rejected": float64(rejected.Load())}
	var floodErr error
	o.listed, floodErr = noise.end()
	o.listed.ServerCPU, o.listed.Memory = all.ServerCPU, all.Memory
	o.written.Memory, o.exempt.Memory = all.Memory, all.Memory
	return errors.Join(err, floodErr)
}

// isRejected reports whether a request was rejected for a moment.
func isRejected(err error) bool {
	var refused *responseError
	return errors.As(err, &refused) && refused.code == http.StatusTooManyRequests
}

// slowRound measures the memory of a server whose clients read large lists slowly.
func slowRound(ctx context.Context, b *bed) ([]row, error) {
	ns, err := b.namespace(ctx, "large")
	if err != nil {
		return nil, err
	}
	pad := strings.Repeat("x", slowBytes)
	objects := b.collection(ns, configMapsOf, "")
	err = b.each(ctx, int(min(slowObjects, b.options.MaxOps)), func(c *client, i int) error {
		_, err := c.small(ctx, http.MethodPost, objects, fmt.Appendf(nil, `{"metadata":{"name":"large-%d"},"data":{"k":%q}}`, i, pad))
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := b.allow(ctx, ns); err != nil {
		return nil, err
	}
	header := b.asUser("bench-noisy", "bench")
	var bytes, rejected atomic.Int64
	var latencies histogram
	m, err := b.measured(func() (Measurements, error) {
		until, stop := context.WithTimeout(ctx, b.options.Duration)
		defer stop()
		var wg sync.WaitGroup
		for i := range slowClients {
			wg.Go(func() {
				one, err := b.target.dial(nil)
				if err != nil {
					rejected.Add(1)
					return
				}
				defer one.close()
				begin := time.Now()
				resp, err := newClient(one, i, header).send(until, http.MethodGet, objects, header, nil)
				latencies.record(time.Since(begin)) // until the headers, or a rejection
				if err != nil {
					rejected.Add(1)
					return
				}
				defer resp.Body.Close()
				for err == nil {
					var n int64
					n, err = io.CopyN(io.Discard, resp.Body, slowBytes)
					bytes.Add(n)
					sleepUntil(until, time.Now().Add(slowPause))
				}
			})
		}
		wg.Wait()
		return Measurements{Ops: slowClients, Bytes: bytes.Load(), Seconds: b.options.Duration.Seconds(), Latency: latencies.latency(), Extra: map[string]float64{"rejected": float64(rejected.Load())}}, ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	return []row{{loop: fmt.Sprintf("%d clients, each 1 MB/s", slowClients), unit: "client", Measurements: m}}, b.empty(ctx, ns, configMapsOf)
}
