package bench

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"time"
)

var gzipVariants = []variant{
	{name: "unchanged", round: gzipRound},
	{name: "changed-1%", round: func(ctx context.Context, b *bed) ([]row, error) { return gzipChangedRound(ctx, b, slots) }},
	{name: "changed-all", round: func(ctx context.Context, b *bed) ([]row, error) { return gzipChangedRound(ctx, b, 1) }},
}

// gzipLister requests compressed lists. It decompresses and checks one response before the
// measurement. For the others it checks only the decompressed size in the gzip trailer,
// because decompressing costs more CPU than some servers need.
type gzipLister struct {
	lister
	decompressed int64
}

func (b *bed) gzipLister(ctx context.Context) (*gzipLister, error) {
	l, err := b.lister(ctx, "")
	if err != nil {
		return nil, err
	}
	return l.gzip(ctx, acceptJSON)
}

// gzip is the same list compressed, in a representation.
func (l lister) gzip(ctx context.Context, accept string) (*gzipLister, error) {
	l.header = l.bed.target.header(accept, "gzip")
	g := &gzipLister{lister: l}
	return g, g.decompress(ctx)
}

// list is the operation.
func (g *gzipLister) list(ctx context.Context, c *client, _ op) error {
	header, s, err := g.fetch(ctx, c)
	if err != nil {
		return err
	}
	got := binary.LittleEndian.Uint32(s.tail[4:])
	differs := int64(int32(got - uint32(g.decompressed)))
	// Each resource version may have become longer by some digits.
	if longer := 8 * (g.want + 1); differs < -longer || differs > longer || header.Get("Content-Encoding") != "gzip" {
		return fmt.Errorf("GET %s: a gzip trailer says %d bytes, want about %d", g.url.RequestURI(), got, g.decompressed)
	}
	c.items += g.want
	return nil
}

// decompress checks one response.
func (g *gzipLister) decompress(ctx context.Context) error {
	resp, err := g.bed.admin.send(ctx, http.MethodGet, g.url, g.header, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Encoding") != "gzip" {
		io.Copy(io.Discard, resp.Body)
		return &skipError{"the server does not compress this list"}
	}
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		return fmt.Errorf("GET %s: %w", g.url.RequestURI(), err)
	}
	s, err := g.bed.admin.scan(z)
	if err == nil && s.marks != g.want {
		err = fmt.Errorf("%d objects, want %d", s.marks, g.want)
	}
	if err != nil {
		return fmt.Errorf("GET %s: compressed: %w", g.url.RequestURI(), err)
	}
	g.decompressed = s.bytes
	return nil
}

func (g *gzipLister) rows(rows []row, err error) ([]row, error) {
	for i := range rows {
		rows[i].Extra = map[string]float64{"decompressedBytes": float64(g.decompressed)}
	}
	return rows, err
}

// gzipRound lists unchanged pods.
func gzipRound(ctx context.Context, b *bed) ([]row, error) {
	g, err := b.gzipLister(ctx)
	if err != nil {
		return nil, err
	}
	w := b.crew(1, g.list).closed()
	return g.rows(w.rows(w.measure(ctx)))
}

// gzipChangedRound changes every nth pod before each list, and measures only the lists. It
// repeats until lists and changes together have taken the duration.
func gzipChangedRound(ctx context.Context, b *bed, every int) ([]row, error) {
	g, err := b.gzipLister(ctx)
	if err != nil {
		return nil, err
	}
	return g.rows(b.changing(ctx, g.list, func() error { return b.changePods(ctx, every) }))
}

// changing repeats an unmeasured change and a measured list until both together have taken
// the duration.
func (b *bed) changing(ctx context.Context, list func(context.Context, *client, op) error, change func() error) ([]row, error) {
	var sum Measurements
	var h histogram
	c := newClient(b.conns[0], 0, b.json)
	for end := time.Now().Add(b.options.Duration); sum.Ops == 0 || time.Now().Before(end) && sum.Ops < b.options.MaxOps; {
		if err := change(); err != nil {
			return nil, err
		}
		f, err := b.measured(func() (Measurements, error) {
			begin := time.Now()
			err := list(ctx, c, op{})
			h.record(time.Since(begin))
			return Measurements{Ops: 1, Seconds: time.Since(begin).Seconds()}, err
		})
		if err != nil {
			return nil, err
		}
		sum.Ops++
		sum.Seconds += f.Seconds
		sum.ServerCPU, sum.OwnCPU = plus(sum.ServerCPU, f.ServerCPU), plus(sum.OwnCPU, f.OwnCPU)
		sum.Memory = f.Memory
	}
	sum.Latency, sum.Bytes, sum.Items = h.latency(), c.bytes, c.items
	return []row{{loop: "closed, 1 client", Measurements: sum}}, nil
}

// plus adds two measurements. Each may be missing.
func plus(a, b *float64) *float64 {
	if a == nil || b == nil {
		return b
	}
	sum := *a + *b
	return &sum
}

// changePods updates every nth pod of the read scenarios.
func (b *bed) changePods(ctx context.Context, every int) error {
	ns, err := b.podsNamespace(ctx)
	if err != nil {
		return err
	}
	n := b.options.Objects
	return b.each(ctx, (n+every-1)/every, func(c *client, i int) error {
		return b.changePod(ctx, c, ns, i*every)
	})
}

func (b *bed) changePod(ctx context.Context, c *client, ns string, i int) error {
	return c.object(ctx, http.MethodPut, b.object(ns, podsOf, podName(i)), b.objects.changedPod(podName(i), i, b.serial.Add(1)), false)
}
