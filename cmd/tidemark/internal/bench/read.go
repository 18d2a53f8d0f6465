package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
)

// readClients is how many clients get single objects.
const readClients = 16

// getRound gets pods, each of them as often as the others.
func getRound(query string) func(ctx context.Context, b *bed) ([]row, error) {
	return func(ctx context.Context, b *bed) ([]row, error) {
		ns, err := b.podsNamespace(ctx)
		if err != nil {
			return nil, err
		}
		base := b.collection(ns, podsOf, query)
		n := uint64(b.options.Objects)
		w := b.crew(readClients, func(ctx context.Context, c *client, o op) error {
			u := *base
			u.Path += "/" + podName(int(spread(uint64(o.number))%n))
			c.revision = 0 // another pod's says nothing of this one's
			return c.object(ctx, http.MethodGet, &u, nil, false)
		})
		return w.rows(w.measure(ctx))
	}
}

// spread scatters neighbours.
func spread(i uint64) uint64 { return i * 0x9E3779B97F4A7C15 >> 20 }

// lister is a LIST that is repeated.
type lister struct {
	bed    *bed
	url    *url.URL
	header http.Header
	// want is the number of items that must be in it.
	want int64
	// binary is set if the resource version cannot be read from the response.
	binary bool
}

func (b *bed) lister(ctx context.Context, query string) (lister, error) {
	ns, err := b.podsNamespace(ctx)
	if err != nil {
		return lister{}, err
	}
	return lister{bed: b, url: b.collection(ns, podsOf, query), header: b.json, want: int64(b.options.Objects)}, nil
}

// fetch gets the list, and reads it to its end.
func (l *lister) fetch(ctx context.Context, c *client) (http.Header, scanned, error) {
	resp, err := c.send(ctx, http.MethodGet, l.url, l.header, nil)
	if err != nil {
		return nil, scanned{}, err
	}
	defer resp.Body.Close()
	s, err := c.scan(resp.Body)
	if err != nil {
		err = fmt.Errorf("GET %s: %w", l.url.RequestURI(), err)
	}
	return resp.Header, s, err
}

// list is the operation.
func (l *lister) list(ctx context.Context, c *client, _ op) error {
	_, s, err := l.fetch(ctx, c)
	if err != nil {
		return err
	}
	if s.marks != l.want {
		return fmt.Errorf("GET %s: %d objects, want %d", l.url.RequestURI(), s.marks, l.want)
	}
	if l.binary {
		return nil
	}
	return c.advance("GET "+l.url.RequestURI(), s.head, false)
}

// listRound lists everything.
func listRound(ctx context.Context, b *bed, clients int) ([]row, error) {
	l, err := b.lister(ctx, "")
	if err != nil {
		return nil, err
	}
	w := b.crew(clients, l.list).closed()
	return w.rows(w.measure(ctx))
}

// pageSize is the page size of client-go's pager.
const pageSize = 500

// pageRound goes through all pages: one operation. The pages must be of one state.
func pageRound(ctx context.Context, b *bed) ([]row, error) {
	l, err := b.lister(ctx, "")
	if err != nil {
		return nil, err
	}
	w := b.crew(1, func(ctx context.Context, c *client, _ op) error {
		var items int64
		var rv uint64
		token := ""
		for first := true; first || token != ""; first = false {
			s, err := l.page(ctx, c, token)
			if err != nil {
				return err
			}
			items += s.marks
			next, _ := textAfter(s.head, continueKey)
			token = string(next)
			at, ok := revisionIn(s.head)
			if !ok || !first && at != rv {
				return fmt.Errorf("a page is of the resource version %d, the first one of %d", at, rv)
			}
			rv = at
		}
		if items != l.want {
			return fmt.Errorf("%d objects in all pages, want %d", items, l.want)
		}
		return nil
	}).closed()
	return w.rows(w.measure(ctx))
}

func (l *lister) page(ctx context.Context, c *client, token string) (scanned, error) {
	u := *l.url
	u.RawQuery = url.Values{"limit": {fmt.Sprint(pageSize)}, "continue": {token}}.Encode()
	page := *l
	page.url = &u
	_, s, err := page.fetch(ctx, c)
	// Items may contain text like a token: only the part before them counts.
	if i := bytes.Index(s.head, []byte(`"items":`)); i >= 0 {
		s.head = s.head[:i]
	}
	return s, err
}

// exactRound reads a state of before one more pod was made.
func exactRound(ctx context.Context, b *bed) ([]row, error) {
	l, err := b.lister(ctx, "")
	if err != nil {
		return nil, err
	}
	ns := "bench-" + b.suffix + "-pods"
	rv, err := b.revision(ctx, ns, podsOf)
	if err != nil {
		return nil, err
	}
	const extra = "made-later"
	if err := b.admin.object(ctx, http.MethodPost, b.collection(ns, podsOf, ""), b.objects.pod(extra, 0), true); err != nil {
		return nil, err
	}
	defer func() {
		b.admin.small(context.WithoutCancel(ctx), http.MethodDelete, b.object(ns, podsOf, extra), nil)
	}()
	l.url.RawQuery = fmt.Sprintf("resourceVersionMatch=Exact&resourceVersion=%d", rv)
	w := b.crew(1, func(ctx context.Context, c *client, o op) error {
		c.revision = 0
		if err := l.list(ctx, c, o); err != nil {
			return err
		}
		if c.revision != rv {
			return fmt.Errorf("GET %s: the list is of %d", l.url.RequestURI(), c.revision)
		}
		return nil
	}).closed()
	return w.rows(w.measure(ctx))
}

func selectorRound(ctx context.Context, b *bed) ([]row, error) {
	const slot = 7
	l, err := b.lister(ctx, fmt.Sprintf("labelSelector=slot%%3D%d", slot))
	if err != nil {
		return nil, err
	}
	l.want = int64(b.options.Objects+slots-1-slot) / slots
	w := b.crew(1, l.list).closed()
	return w.rows(w.measure(ctx))
}
