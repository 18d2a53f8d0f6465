package controller

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/tidemark-dev/tidemark/internal/clock"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// leaderLease is the Lease that a kube-controller-manager holds while it works.
var leaderLease = object{"leases.coordination.k8s.io", "kube-system/kube-controller-manager"}

// defaultLease is how long a lease without leaseDurationSeconds is valid.
const defaultLease = 15 * time.Second

// yielding pauses the loops that kube-controller-manager also runs, while one holds its
// lease. Two of them do no harm, but each undoes what the other decides (whose certificate
// kube-root-ca.crt holds), and works for nothing.
//
// A lease is valid for its duration since this server saw it renewed, as for each client
// that waits for a lease: clocks need not agree. Only a lease that was stored before the
// start is judged by its own renewTime.
type yielding struct {
	l *Loops

	mu      sync.Mutex
	paused  bool
	expiry  *clock.Timer // of the lease; nil: none was held yet
	stopped bool
}

func newYielding(l *Loops) *yielding { return &yielding{l: l} }

func (y *yielding) begin(s *store.State) {
	if o := s.Get(leaderLease.collection, leaderLease.key); o != nil {
		y.seen(o, true)
	}
}

func (y *yielding) observe(c *store.CollectionChange) {
	if c.Collection == leaderLease.collection && c.Key() == leaderLease.key {
		y.seen(c.After, false)
	}
}

// seen pauses the loops for as long as the lease is valid; nil: it was deleted.
func (y *yielding) seen(o *store.Object, before bool) {
	valid := y.validFor(o, before)
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.stopped {
		return
	}
	if y.expiry != nil {
		y.expiry.Stop()
	}
	if valid > 0 {
		var expiry *clock.Timer
		expiry = y.l.c.Clock.At(y.l.c.Clock.Now().Add(valid), func() {
			y.mu.Lock()
			defer y.mu.Unlock()
			if y.expiry == expiry && !y.stopped { // it was not renewed meanwhile
				y.pause(0)
			}
		})
		y.expiry = expiry
	}
	y.pause(valid)
}

// validFor returns how long a lease is still valid; before: it was stored before the start.
func (y *yielding) validFor(o *store.Object, before bool) time.Duration {
	if o == nil {
		return 0
	}
	lease, err := registry.Decode[coordinationv1.Lease](o)
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return 0
	}
	valid := defaultLease
	if s := lease.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		valid = time.Duration(*s) * time.Second
	}
	if renewed := lease.Spec.RenewTime; before && renewed != nil {
		valid -= max(0, y.l.now().Sub(renewed.Time))
	}
	return valid
}

// pause pauses the loops, or resumes them where a lease is not valid any longer. The
// caller holds mu.
func (y *yielding) pause(valid time.Duration) {
	paused := valid > 0
	if paused == y.paused {
		return
	}
	y.paused = paused
	if paused {
		y.l.c.Log.Warn("a kube-controller-manager holds its lease: the controllers that it runs pause", "lease", "kube-system/kube-controller-manager", "for", valid)
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

func (y *yielding) stop() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.stopped = true
	if y.expiry != nil {
		y.expiry.Stop()
	}
}
