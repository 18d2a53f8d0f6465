package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// definitionsOfRound bounds how many definitions are made one after the other in a
// round: they are removed after it.
const definitionsOfRound = 200

// oneByOne repeats an operation on a new definition for the duration, and removes the
// definitions of the role. The operation returns when its measured part began; it ends
// with the operation.
func (b *bed) oneByOne(ctx context.Context, role string, p provider, do func(ctx context.Context, d definition) (began time.Time, err error)) (f Measurements, err error) {
	b.roles[role] = true
	defer func() { err = errors.Join(err, b.undefine(ctx, role)) }()
	limit := min(definitionsOfRound, b.options.MaxOps)
	return b.measured(func() (Measurements, error) {
		var h histogram
		var ops int64
		begin := time.Now()
		for ops < limit && (ops == 0 || time.Since(begin) < b.options.Duration) {
			d := providerDefinition(role, b.serial.Add(1), p)
			d.group = fmt.Sprintf("%s%d", role, b.serial.Add(1)) // of its own
			began, err := do(ctx, d)
			if err != nil {
				return Measurements{}, err
			}
			h.record(time.Since(began))
			ops++
		}
		return Measurements{Ops: ops, Seconds: time.Since(begin).Seconds(), Latency: h.latency()}, nil
	})
}

// firstObjectVariants are definitions of two sizes, small ones without a rule too.
var firstObjectVariants = []variant{
	{name: "small", round: firstObject{provider: smallProvider}.round},
	{name: "small-rule", round: firstObject{provider: ruledProvider}.round},
	{name: "large", round: firstObject{provider: largeProvider}.round},
}

// otherServerRound is the same with the object at the other server, without the time of
// the definition's create.
func otherServerRound(ctx context.Context, b *bed) ([]row, error) {
	if b.other == nil {
		return nil, &skipError{"no --other-kubeconfig is given"}
	}
	return firstObject{provider: smallProvider, elsewhere: true}.round(ctx, b)
}

// firstObject is a round that creates definitions, and an object of each as soon as that
// is accepted.
type firstObject struct {
	provider provider
	// elsewhere: the object is created at the other server. The time counts from the response
	// to the definition's create, not from its start.
	elsewhere bool
}

// round measures once.
func (r firstObject) round(ctx context.Context, b *bed) ([]row, error) {
	role, at, pause := "first", b, servePause
	if r.elsewhere {
		role, at, pause = "elsewhere", b.elsewhere(), serveQuickly
	}
	definer, c := newClient(b.conns[0], 0, b.json), newClient(at.conns[0], 0, at.json)
	var tries, definitions int
	f, err := b.oneByOne(ctx, role, r.provider, func(ctx context.Context, d definition) (began time.Time, err error) {
		began = time.Now()
		if err := b.store(ctx, definer, d); err != nil {
			return began, err
		}
		if r.elsewhere {
			began = time.Now()
		}
		c.revision = max(c.revision, definer.revision)
		body := b.thing(d, "first")
		n, err := until(ctx, pause, func() (bool, error) {
			response, err := c.response(ctx, http.MethodPost, at.instances(d, ""), body, true)
			if hasCode(err, http.StatusNotFound) {
				return false, nil
			}
			if err == nil {
				err = holds(response, `"deletionPolicy":"Delete"`)
			}
			return err == nil, err
		})
		tries += n
		definitions++
		return began, err
	})
	if err != nil {
		return nil, err
	}
	f.Extra = map[string]float64{"triesPerObject": float64(tries) / float64(definitions)}
	return []row{{loop: "closed, 1 client", Measurements: f}}, nil
}

// appliers is how many clients apply definitions.
const appliers = 8

// applyDefinitionsRound applies definitions, and removes them.
func applyDefinitionsRound(ctx context.Context, b *bed) (rows []row, err error) {
	const role = "applied"
	b.roles[role] = true
	defer func() { err = errors.Join(err, b.undefine(ctx, role)) }()
	if b.before == nil { // as with watches that wait: see idleRound
		if b.before, err = readMemory(b.server.PIDs); err != nil {
			return nil, err
		}
	}
	all := make([]definition, b.options.Definitions)
	for i := range all {
		all[i] = providerDefinition(role, b.serial.Add(1), largeProvider)
	}
	var written Measurements
	served, err := b.measured(func() (Measurements, error) {
		before, err := readUsage(b.server.PIDs)
		if err != nil {
			return Measurements{}, err
		}
		begin := time.Now()
		if written, err = b.applyAll(ctx, all); err != nil {
			return Measurements{}, err
		}
		after, err := readUsage(b.server.PIDs)
		if err != nil {
			return Measurements{}, err
		}
		if len(after.processes) > 0 {
			cpu := after.since(before)
			written.ServerCPU = &cpu
		}
		var h histogram
		for _, d := range all {
			if err := b.awaitServed(ctx, b.admin, d); err != nil {
				return Measurements{}, err
			}
		}
		h.record(time.Since(begin))
		return Measurements{Ops: int64(len(all)), Seconds: time.Since(begin).Seconds(), Latency: h.latency()}, nil
	})
	if hasCode(err, http.StatusUnsupportedMediaType) || hasCode(err, http.StatusNotFound) {
		return nil, &skipError{err.Error()}
	}
	if err != nil {
		return nil, err
	}
	written.Memory = served.Memory
	served.Extra, err = b.growth(ctx, len(all))
	loop := fmt.Sprintf("closed, %d clients", appliers)
	return []row{{name: "written", loop: loop, Measurements: written}, {name: "served", loop: loop, Measurements: served}}, err
}

// applyAll applies definitions and measures the latency of each.
func (b *bed) applyAll(ctx context.Context, all []definition) (Measurements, error) {
	var clients [appliers]*client
	header := b.header(benchAgent, applyPatch)
	for k := range clients {
		clients[k] = newClient(b.conns[k%len(b.conns)], k, header)
	}
	var h histogram
	begin := time.Now()
	err := inParallel(ctx, appliers, len(all), func(k, i int) error {
		u := b.target.url(definitionsPath+"/"+all[i].plural+"."+all[i].group+"."+b.domain(), "fieldManager=bench&force=true")
		sent := time.Now()
		err := clients[k].object(ctx, http.MethodPatch, u, b.definitionBody(all[i]), true)
		h.record(time.Since(sent))
		return err
	})
	return Measurements{Ops: int64(len(all)), Seconds: time.Since(begin).Seconds(), Latency: h.latency()}, err
}

// growth is how much memory n definitions have added, after a while: a server may
// have more to do for them than before it served them.
func (b *bed) growth(ctx context.Context, n int) (map[string]float64, error) {
	extra := map[string]float64{"definitions": float64(n)}
	if b.before == nil {
		return extra, nil
	}
	sleepUntil(ctx, time.Now().Add(min(idleSettle, b.options.Duration)))
	m, err := readMemory(b.server.PIDs)
	if err != nil {
		return nil, err
	}
	extra["kibPerDefinitionRSS"] = float64(m.RSS-b.before.RSS) / 1024 / float64(n)
	extra["kibPerDefinitionAnon"] = float64(m.Anon-b.before.Anon) / 1024 / float64(n)
	return extra, nil
}

// acceptAggregated is discovery in one response, as client-go asks for it.
const acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

var indexVariants = []variant{
	{name: "discovery", round: func(ctx context.Context, b *bed) ([]row, error) {
		return indexRound(ctx, b, "/apis", func(d definition) string { return `"` + d.plural + `"` })
	}},
	{name: "openapi", round: func(ctx context.Context, b *bed) ([]row, error) {
		return indexRound(ctx, b, "/openapi/v3", func(d definition) string { return `"apis/` + d.group + "." + b.domain() + `/v1"` })
	}},
}

// indexRound creates one more definition when many exist, and waits until an index names it.
func indexRound(ctx context.Context, b *bed, path string, name func(d definition) string) ([]row, error) {
	if err := b.manyDefinitions(ctx); err != nil {
		return nil, err
	}
	writer, reader := newClient(b.conns[0], 0, b.json), newClient(b.conns[0], 0, b.target.header(acceptAggregated, "identity"))
	var reads, definitions int
	f, err := b.oneByOne(ctx, "index", largeProvider, func(ctx context.Context, d definition) (began time.Time, err error) {
		began = time.Now()
		if err := b.store(ctx, writer, d); err != nil {
			return began, err
		}
		n, err := until(ctx, servePause, func() (bool, error) {
			index, err := reader.small(ctx, http.MethodGet, b.target.url(path, ""), nil)
			if notServed(err) {
				err = &skipError{err.Error()}
			}
			return bytes.Contains(index, []byte(name(d))), err
		})
		reads += n
		definitions++
		return began, err
	})
	if err != nil {
		return nil, err
	}
	f.Bytes = reader.bytes
	f.Extra = map[string]float64{"readsPerDefinition": float64(reads) / float64(definitions), "beside": float64(b.options.Definitions)}
	return []row{{loop: "closed, 1 client", Measurements: f}}, nil
}

// manyDefinitions creates many definitions on first use, and waits until all are served.
func (b *bed) manyDefinitions(ctx context.Context) error {
	const role = "beside"
	if b.roles[role] {
		return nil
	}
	b.roles[role] = true
	all := make([]definition, b.options.Definitions)
	for i := range all {
		all[i] = providerDefinition(role, b.serial.Add(1), largeProvider)
	}
	err := b.each(ctx, len(all), func(c *client, i int) error { return b.store(ctx, c, all[i]) })
	if err != nil {
		return err
	}
	return b.each(ctx, len(all), func(c *client, i int) error { return b.awaitServed(ctx, c, all[i]) })
}
