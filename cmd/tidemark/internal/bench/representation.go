package bench

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// representation is how a list is asked for.
type representation struct {
	accept, query string
}

// variants are the list as clients ask for it, compressed, and not compressed; each
// unchanged between lists, and read for the first time after all pods have changed.
func (r representation) variants() []variant {
	return []variant{
		{name: "gzip", round: func(ctx context.Context, b *bed) ([]row, error) { return r.round(ctx, b, true, false) }},
		{name: "gzip-changed", round: func(ctx context.Context, b *bed) ([]row, error) { return r.round(ctx, b, true, true) }},
		{name: "identity", round: func(ctx context.Context, b *bed) ([]row, error) { return r.round(ctx, b, false, false) }},
		{name: "identity-changed", round: func(ctx context.Context, b *bed) ([]row, error) { return r.round(ctx, b, false, true) }},
	}
}

func (r representation) round(ctx context.Context, b *bed, compressed, changed bool) ([]row, error) {
	l, err := r.lister(ctx, b)
	if err != nil {
		return nil, err
	}
	list, rows := l.list, func(rows []row, err error) ([]row, error) { return rows, err }
	if compressed {
		g, err := l.gzip(ctx, r.accept)
		if err != nil {
			return nil, err
		}
		list, rows = g.list, g.rows
	}
	if changed {
		ns, err := b.representedPods(ctx)
		if err != nil {
			return nil, err
		}
		return rows(b.changing(ctx, list, func() error { return b.touch(ctx, ns) }))
	}
	w := b.crew(1, list).closed()
	return rows(w.rows(w.measure(ctx)))
}

// lister lists such pods in the representation, if the server has it.
func (r representation) lister(ctx context.Context, b *bed) (lister, error) {
	ns, err := b.representedPods(ctx)
	if err != nil {
		return lister{}, err
	}
	media, form, _ := strings.Cut(r.accept, ";")
	l := lister{
		bed: b, url: b.collection(ns, podsOf, r.query), header: b.target.header(r.accept, "identity"),
		want: int64(b.options.Objects), binary: media == acceptProtobuf,
	}
	resp, err := b.admin.send(ctx, http.MethodGet, l.url, l.header, nil)
	if notServed(err) {
		return l, &skipError{fmt.Sprintf("%s: %v", r.accept, err)}
	}
	if err != nil {
		return l, err
	}
	defer resp.Body.Close()
	s, err := b.admin.scan(resp.Body)
	if err != nil {
		return l, err
	}
	// Some servers fall back to another kind.
	kind := "PodList"
	for _, k := range []string{"Table", "PartialObjectMetadataList"} {
		if strings.HasPrefix(form, "as="+k) {
			kind = k
		}
	}
	got := resp.Header.Get("Content-Type")
	if !strings.HasPrefix(got, media) || !strings.Contains(string(s.head[:min(len(s.head), eventHead)]), kind) {
		return l, &skipError{fmt.Sprintf("asked for %s, the server sends another: %s", r.accept, got)}
	}
	return l, nil
}

// representedPods returns the namespace with the pods; it makes them the first time.
func (b *bed) representedPods(ctx context.Context) (string, error) {
	const role = "represented"
	ns, err := b.namespace(ctx, role)
	if err != nil || b.filled[ns] > 0 {
		return ns, err
	}
	if _, err := b.fillRunning(ctx, role, b.options.Objects); err != nil {
		return "", err
	}
	// Later changes do not make them larger any more.
	return ns, b.touch(ctx, ns)
}

// touch changes all pods of a namespace: a label of each.
func (b *bed) touch(ctx context.Context, ns string) error {
	header := b.header(controllerAgent, mergePatch)
	return b.each(ctx, b.filled[ns], func(c *client, i int) error {
		c.json = header
		label := fmt.Sprintf(`"touched":"t%d"`, b.serial.Add(1))
		c.revision = 0 // another pod's says nothing of this one's
		_, err := c.change(ctx, http.MethodPatch, b.object(ns, podsOf, podName(i)), []byte(`{"metadata":{"labels":{`+label+`}}}`), label)
		return err
	})
}
