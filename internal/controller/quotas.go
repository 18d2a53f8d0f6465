package controller

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/admission/quota"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// quotas maintains the status of ResourceQuotas: the limits in effect, and the used resources. The
// transaction of a new object charges its use. The loop counts again when objects are deleted or
// use less, and when limits change.
type quotas struct {
	l     *Loops
	queue *queue

	// byNamespace holds the quotas of the namespaces that have any. Only the reader uses
	// it.
	byNamespace map[string]map[string]*corev1.ResourceQuota

	mu    sync.Mutex
	pause map[item]time.Duration // before a quota is counted again, where that is not at once
}

func newQuotas(l *Loops, q *queue) loop {
	return &quotas{l: l, queue: q, pause: map[item]time.Duration{}}
}

func (r *quotas) begin(s *store.State) {
	r.byNamespace = map[string]map[string]*corev1.ResourceQuota{}
	if r.l.c.Quotas == nil {
		return
	}
	for o := range s.Snapshot(quota.Collection).Scan("", "") {
		r.keep(o)
		r.queue.add(item{object: object{quota.Collection, o.Key}})
	}
}

// keep remembers the limits of a quota.
func (r *quotas) keep(o *store.Object) {
	q, err := registry.Decode[corev1.ResourceQuota](o)
	if err != nil {
		return
	}
	if r.byNamespace[q.Namespace] == nil {
		r.byNamespace[q.Namespace] = map[string]*corev1.ResourceQuota{}
	}
	r.byNamespace[q.Namespace][q.Name] = &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: q.Spec.Hard}}
}

func (r *quotas) observe(c *store.CollectionChange) {
	if r.l.c.Quotas == nil {
		return
	}
	if c.Collection == quota.Collection {
		r.observeQuota(c)
	}
	if len(r.byNamespace) == 0 {
		return
	}
	namespace, _, ok := strings.Cut(c.Key(), "/")
	if !ok || r.byNamespace[namespace] == nil || !r.l.c.Quotas.Uncharged && !mayUseLess(c) {
		return
	}
	for name, q := range r.byNamespace[namespace] {
		if quota.Concerns(q, c.Collection) {
			r.add(item{object: object{quota.Collection, namespace + "/" + name}})
		}
	}
}

func (r *quotas) observeQuota(c *store.CollectionChange) {
	namespace, name, _ := strings.Cut(c.Key(), "/")
	i := item{object: object{quota.Collection, c.Key()}}
	if c.After == nil {
		delete(r.byNamespace[namespace], name)
		if len(r.byNamespace[namespace]) == 0 {
			delete(r.byNamespace, namespace)
		}
		r.mu.Lock()
		delete(r.pause, i)
		r.mu.Unlock()
		return
	}
	if c.Before == nil || differ(c, "spec") || differ(c, "status", "hard") {
		// After a change of the limits, this counts the objects that were stored before they were
		// in effect and while they were written.
		r.keep(c.After)
		r.queue.add(i)
	}
}

// differ reports whether a member of an object has changed.
func differ(c *store.CollectionChange, path ...string) bool {
	return !bytes.Equal(registry.Member(c.Before.Bytes(), path...), registry.Member(c.After.Bytes(), path...))
}

// mayUseLess reports, from the bytes of an object, whether it may use less after a change.
func mayUseLess(c *store.CollectionChange) bool {
	switch {
	case c.Before == nil:
		return false // it was charged, or stored before the limit held (observeQuota)
	case c.After == nil:
		return true
	}
	switch c.Collection {
	case "pods":
		return differ(c, "status", "phase") || differ(c, "metadata", "deletionTimestamp") || differ(c, "spec")
	case "services", "resourceclaims.resource.k8s.io":
		return differ(c, "spec")
	case "persistentvolumeclaims":
		return differ(c, "spec") || differ(c, "status")
	}
	return false
}

const (
	// countingShare is how many times longer a quota rests than counting it took: in a
	// series of deletions, counting takes a tenth of the time.
	countingShare = 10
	// A count shorter than shortCount needs no rest.
	shortCount = time.Millisecond
	longestLag = 10 * time.Second
)

// add queues a quota: at once, or after a pause where counting takes long, so that one
// count covers several changes.
func (r *quotas) add(i item) {
	r.mu.Lock()
	pause := r.pause[i]
	r.mu.Unlock()
	if pause == 0 {
		r.queue.add(i)
		return
	}
	r.queue.addAfter(i, pause, true)
}

func (r *quotas) sync(ctx context.Context, i item) error {
	namespace, name, _ := strings.Cut(i.key, "/")
	began := time.Now()
	next, err := r.l.c.Quotas.Recount(ctx, r.l.c.Registry, namespace, name, manager)
	if err != nil {
		return err
	}
	took := time.Since(began)
	r.mu.Lock()
	delete(r.pause, i)
	if took > shortCount && r.l.store.Any().Get(i.collection, i.key) != nil {
		r.pause[i] = min(took*countingShare, longestLag)
	}
	r.mu.Unlock()
	if !next.IsZero() {
		r.l.addAt(r.queue, i, next.Add(time.Second))
	}
	return nil
}
