package controller

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// leader is the Lease that a kube-controller-manager holds while it works.
var leader = object{"leases.coordination.k8s.io", "kube-system/kube-controller-manager"}

// defaultLease is how long a lease without leaseDurationSeconds is good for.
const defaultLease = 15 * time.Second

// yielding pauses the loops whose work kube-controller-manager does, while one
// holds its lease: two that do the same are no harm, but each undoes the other's
// choices (whose certificate kube-root-ca.crt has), and does work for nothing.
//
// A lease is good for its duration from when we saw it renewed, as with all who wait
// for one: clocks need not agree. Only of one that was there before we began, its
// own renewTime counts.
type yielding struct {
	l *Loops

	mu      sync.Mutex
	paused  bool
	until   time.Time   // the lease is good until then; zero: it is not held
	timer   *time.Timer // for until
	stopped bool
}

func newYielding(l *Loops) *yielding { return &yielding{l: l} }

func (y *yielding) begin(s *store.State) {
	if o := s.Get(leader.collection, leader.key); o != nil {
		y.seen(o, true)
	}
}

func (y *yielding) observe(c *store.CollectionChange) {
	if c.Collection != leader.collection || c.Key() != leader.key {
		return
	}
	y.seen(c.After, false)
}

// seen takes the lease as it is now; nil: it was deleted.
func (y *yielding) seen(o *store.Object, before bool) {
	var until time.Time
	if o != nil {
		until = y.goodUntil(o, before)
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.until = until
	y.decide()
}

func (y *yielding) goodUntil(o *store.Object, before bool) time.Time {
	decoded, err := registry.Decode[coordinationv1.Lease](o)
	if err != nil {
		return time.Time{}
	}
	spec := &decoded.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" {
		return time.Time{}
	}
	lasts := defaultLease
	if spec.LeaseDurationSeconds != nil && *spec.LeaseDurationSeconds > 0 {
		lasts = time.Duration(*spec.LeaseDurationSeconds) * time.Second
	}
	now := y.l.now()
	if before && spec.RenewTime != nil && spec.RenewTime.Time.Before(now) {
		now = spec.RenewTime.Time
	}
	return now.Add(lasts)
}

// decide pauses the loops or has them go on, and comes back when the lease ends.
// The caller holds mu.
func (y *yielding) decide() {
	if y.stopped {
		return
	}
	left := time.Duration(0)
	if !y.until.IsZero() {
		left = y.until.Sub(y.l.now())
	}
	if y.timer != nil {
		y.timer.Stop()
	}
	if left > 0 {
		y.timer = time.AfterFunc(left, func() {
			y.mu.Lock()
			defer y.mu.Unlock()
			y.decide()
		})
	}
	if paused := left > 0; paused != y.paused {
		y.paused = paused
		if paused {
			y.l.c.Log.Warn("a kube-controller-manager holds its lease: the controllers that it runs pause", "lease", "kube-system/kube-controller-manager", "for", left)
		} else {
			y.l.c.Log.Info("no kube-controller-manager holds its lease any more: the controllers go on")
		}
		for _, r := range y.l.running {
			if r.yields {
				r.queue.pause(paused)
			}
		}
		y.l.settling.announce()
	}
}

func (y *yielding) stop() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.stopped = true
	if y.timer != nil {
		y.timer.Stop()
	}
}
