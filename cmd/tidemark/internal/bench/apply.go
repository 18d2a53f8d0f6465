package bench

import (
	"context"
	"fmt"
	"net/http"
)

// applied is a kind that is applied.
type applied struct {
	resource string
	// body returns the applied configuration of an object. Only its member differs from change to change.
	body   func(o objects, name string, number int, change uint64) []byte
	member func(change uint64) string
}

var (
	appliedConfigMap = applied{
		configMapsOf,
		func(o objects, name string, number int, change uint64) []byte {
			return o.configMap(name, uint64(number), int64(change), "")
		},
		func(change uint64) string { return sentMember(int64(change)) },
	}
	appliedDeployment = applied{deploymentsOf, objects.deployment, imageOf}
)

// appliedObjects is how many objects are applied in turn.
const appliedObjects = 1000

// appliedName is the name of an object that is applied.
func appliedName(i int) string { return fmt.Sprintf("applied-%05d", i) }

// apply applies an object; its resource version is the last one of the client then.
func (b *bed) apply(ctx context.Context, c *client, a applied, i int, change uint64) error {
	u := b.object("bench-"+b.suffix+"-applied", a.resource, appliedName(i))
	u.RawQuery = "fieldManager=bench&force=true" // as a controller does
	body := a.body(b.objects, appliedName(i), i, change)
	response, err := c.response(ctx, http.MethodPatch, u, body, false)
	if err != nil {
		return err
	}
	return holds(response, a.member(change))
}

// prepare applies the first state of n objects and returns their resource versions.
func (b *bed) prepare(ctx context.Context, a applied, n int) ([]uint64, error) {
	if _, err := b.namespace(ctx, "applied"); err != nil {
		return nil, err
	}
	versions, header := make([]uint64, n), b.header(benchAgent, applyPatch)
	err := b.each(ctx, n, func(c *client, i int) error {
		c.json, c.revision = header, 0
		err := b.apply(ctx, c, a, i, 0)
		versions[i] = c.revision
		return err
	})
	if hasCode(err, http.StatusUnsupportedMediaType) || hasCode(err, http.StatusNotFound) {
		return nil, &skipError{err.Error()}
	}
	return versions, err
}

// applyRound applies objects in which one field changes each time.
func applyRound(a applied) func(ctx context.Context, b *bed, clients int) ([]row, error) {
	return func(ctx context.Context, b *bed, clients int) ([]row, error) {
		t := b.turns(clients, appliedObjects)
		if _, err := b.prepare(ctx, a, t.objects); err != nil {
			return nil, err
		}
		w := b.crew(clients, func(ctx context.Context, c *client, _ op) error {
			last := c.revision
			err := b.apply(ctx, c, a, t.next(c), b.serial.Add(1))
			if err == nil && c.revision == last {
				err = fmt.Errorf("an apply that changes the object left its resource version at %d", last)
			}
			return err
		}).as(b.header(benchAgent, applyPatch))
		return w.rows(w.measure(ctx))
	}
}

// applyUnchangedRound applies objects as they are: they must stay so. A server may remember an apply that changed nothing, so
// each object is applied so once before the measurement, which is of the repeated applies of a controller that resyncs.
func applyUnchangedRound(a applied) func(ctx context.Context, b *bed) ([]row, error) {
	return func(ctx context.Context, b *bed) ([]row, error) {
		t := b.turns(patchClients, appliedObjects)
		versions, err := b.prepare(ctx, a, t.objects)
		if err != nil {
			return nil, err
		}
		again := func(ctx context.Context, c *client, i int) error {
			c.revision = 0 // another object's says nothing of this one's
			err := b.apply(ctx, c, a, i, 0)
			if err == nil && c.revision != versions[i] {
				err = fmt.Errorf("an unchanged apply made the resource version %d of %d", c.revision, versions[i])
			}
			return err
		}
		header := b.header(benchAgent, applyPatch)
		err = b.each(ctx, t.objects, func(c *client, i int) error {
			c.json = header
			return again(ctx, c, i)
		})
		if err != nil {
			return nil, err
		}
		w := b.crew(patchClients, func(ctx context.Context, c *client, _ op) error { return again(ctx, c, t.next(c)) }).as(header)
		return w.rows(w.measure(ctx))
	}
}

var applyUnchangedVariants = []variant{
	{name: "configmap", round: applyUnchangedRound(appliedConfigMap)},
	{name: "deployment", round: applyUnchangedRound(appliedDeployment)},
}
