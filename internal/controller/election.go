package controller

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// # One leader
//
// Servers that share a log elect one of them, whose loops work. It holds a Lease, as the controllers of
// kube-controller-manager do, and by the same rules:
//
//   - The holder renews the Lease every retryElection. If it has not succeeded for renewDeadline, it
//     stops its loops.
//   - The others take the Lease if they have not seen it change for electionDuration, or if it has no
//     holder. Clocks need not agree.
//   - A server that stops gives it up.
//
// The loops compare the state with the desired one, and the log decides on writes. So two leaders for a
// moment repeat work, and do no harm.
//
// The loops of the other servers follow the changes too, with queues that drop everything. A new leader
// begins with a look at every object.

// The Lease of the leader.
const (
	electionNamespace = metav1.NamespaceSystem
	electionName      = "tidemark"
)

var electionKey = object{leaderLease.collection, electionNamespace + "/" + electionName}

// LeaderLease returns the collection and the key of the Lease of the leader.
func LeaderLease() (collection, key string) { return electionKey.collection, electionKey.key }

// These are the defaults of kube-controller-manager.
const (
	electionDuration = 15 * time.Second
	renewDeadline    = 10 * time.Second
	retryElection    = 2 * time.Second
)

// election is the part of a server in an election. The goroutine of run has the fields; others use wake.
type election struct {
	l    *Loops
	self string
	wake chan struct{} // has a value when the Lease has no holder any more

	leading bool
	renewed time.Time // when this server wrote the Lease last
	seen    store.Revision
	changed time.Time // when this server saw the Lease at seen first
}

func newElection(l *Loops) *election {
	return &election{l: l, self: l.c.Identity, wake: make(chan struct{}, 1)}
}

// observe receives a change, from the reader.
func (e *election) observe(c *store.CollectionChange) {
	if e == nil || c.Collection != electionKey.collection || c.Key() != electionKey.key {
		return
	}
	if lease := leaseOf(c.After); lease != nil && holder(lease) != "" {
		return
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// run takes part in the election until the context ends.
func (e *election) run(ctx context.Context) {
	ctx = registry.WithLoop(ctx, "leader-election")
	ticker := time.NewTicker(retryElection)
	defer ticker.Stop()
	for ctx.Err() == nil {
		e.round(ctx)
		select {
		case <-ticker.C:
		case <-e.wake:
		case <-ctx.Done():
		}
	}
	if e.leading {
		e.lead(false)
		e.release(context.WithoutCancel(ctx))
	}
}

// round renews the Lease, or tries to take it.
func (e *election) round(ctx context.Context) {
	limit := time.Now().Add(renewDeadline)
	if e.leading {
		limit = e.renewed.Add(renewDeadline)
	}
	trying, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	began := time.Now()
	switch err := e.write(trying); {
	case err == nil:
		e.renewed = began
		e.lead(true)
	case errors.Is(err, errHeld):
		e.lead(false)
	case time.Since(e.renewed) >= renewDeadline:
		if e.leading {
			e.l.c.Log.Warn("this server could not renew its lease, and leads no more: its controllers pause", "lease", electionKey.key, "err", err)
		}
		e.lead(false)
	}
}

// errHeld means that another server is the leader.
var errHeld = errors.New("another server leads")

// write writes the Lease with this server as the holder, unless another one holds it.
func (e *election) write(ctx context.Context) error {
	r := e.l.c.Registry
	t := registry.Target{Type: e.l.c.Catalog().Lookup("coordination.k8s.io", "v1", "leases"), Namespace: electionNamespace, Name: electionName}
	if o := e.l.store.Any().Get(electionKey.collection, electionKey.key); o == nil {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: electionName, Namespace: electionNamespace}}
		e.take(lease)
		body, err := json.Marshal(lease)
		if err != nil {
			return err
		}
		collection := t
		collection.Name = ""
		_, err = r.Create(ctx, collection, registry.Body{Media: wire.JSON, Bytes: body}, registry.WriteOptions{FieldManager: registry.ServerManager})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	_, err := r.Edit(ctx, t, registry.ServerManager, func(m metav1.Object) error {
		lease := m.(*coordinationv1.Lease)
		if e.held(lease) {
			return errHeld
		}
		e.take(lease)
		return nil
	})
	return err
}

// held reports whether another server holds the Lease. This server waits for electionDuration after it
// has seen a change.
func (e *election) held(lease *coordinationv1.Lease) bool {
	now := time.Now()
	o := e.l.store.Any().Get(electionKey.collection, electionKey.key)
	if o != nil && o.Modified != e.seen {
		e.seen, e.changed = o.Modified, now
	}
	by := holder(lease)
	return by != "" && by != e.self && now.Sub(e.changed) < electionDuration
}

// take makes this server the holder.
func (e *election) take(lease *coordinationv1.Lease) {
	s, now := &lease.Spec, metav1.NewMicroTime(e.l.now())
	if by := holder(lease); by != e.self {
		if s.AcquireTime != nil {
			turns := int32(1)
			if s.LeaseTransitions != nil {
				turns += *s.LeaseTransitions
			}
			s.LeaseTransitions = &turns
		}
		s.AcquireTime = &now
	}
	seconds := int32(electionDuration / time.Second)
	s.HolderIdentity, s.LeaseDurationSeconds, s.RenewTime = &e.self, &seconds, &now
}

// release gives the Lease up.
func (e *election) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	t := registry.Target{Type: e.l.c.Catalog().Lookup("coordination.k8s.io", "v1", "leases"), Namespace: electionNamespace, Name: electionName}
	_, err := e.l.c.Registry.Edit(ctx, t, registry.ServerManager, func(m metav1.Object) error {
		lease := m.(*coordinationv1.Lease)
		if holder(lease) != e.self {
			return errHeld
		}
		none, second := "", int32(1)
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &none, &second
		return nil
	})
	if err != nil {
		e.l.c.Log.Debug("the lease of the leader was not given up", "err", err)
	}
}

// lead lets the loops work, or stops them.
func (e *election) lead(on bool) {
	if on == e.leading {
		return
	}
	e.leading = on
	for _, r := range e.l.running {
		r.queue.halt(!on)
	}
	e.l.standby.Store(!on)
	if on {
		e.l.c.Log.Info("this server leads: its controllers work", "lease", electionKey.key, "identity", e.self)
		select {
		case e.l.anew <- struct{}{}:
		default:
		}
	} else {
		e.l.c.Log.Info("this server does not lead any more: its controllers pause", "lease", electionKey.key)
	}
	e.l.settling.announce()
}

// leaseOf decodes a Lease; nil: there is none that can be read.
func leaseOf(o *store.Object) *coordinationv1.Lease {
	if o == nil {
		return nil
	}
	lease, err := registry.Decode[coordinationv1.Lease](o)
	if err != nil {
		return nil
	}
	return lease
}

// holder returns the holder of a Lease; empty: it has none.
func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}
