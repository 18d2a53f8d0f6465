package controller

import (
	"context"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const (
	serviceCollection = "services"
	addressCollection = "ipaddresses.networking.k8s.io"
	cidrCollection    = "servicecidrs.networking.k8s.io"
)

// serviceAddresses repairs the IPAddresses of Services. A transaction stores both; but older
// servers wrote them one after the other, and users delete IPAddresses.
type serviceAddresses struct {
	l     *Loops
	queue *queue
}

func newServiceAddresses(l *Loops, q *queue) loop { return &serviceAddresses{l, q} }

func (r *serviceAddresses) begin(s *store.State) {
	if r.l.c.Addresses == nil {
		return
	}
	for _, collection := range []string{serviceCollection, addressCollection} {
		for o := range s.Snapshot(collection).Scan("", "") {
			r.queue.add(item{object: object{collection, o.Key}})
		}
	}
	if s.Get(addresses.Bitmaps, addresses.NodePorts) != nil {
		r.queue.add(bitmapItem)
	}
}

// bitmapItem is the bitmap in which a kube-apiserver beside this server allocates node ports.
var bitmapItem = item{object: object{addresses.Bitmaps, addresses.NodePorts}}

// bitmapPause is the time between two repairs of the bitmap, as in kube-apiserver.
const bitmapPause = 3 * time.Minute

func (r *serviceAddresses) observe(c *store.CollectionChange) {
	switch {
	case r.l.c.Addresses == nil:
	case c.Collection == addresses.Bitmaps && c.Key() == addresses.NodePorts && c.Before == nil:
		r.queue.add(bitmapItem) // it was made while Services were written
	case c.Collection == serviceCollection && c.After != nil && (c.Before == nil || differ(c, "spec")):
		r.queue.add(item{object: object{serviceCollection, c.Key()}})
	case c.Collection == serviceCollection && c.After == nil:
		for _, ip := range addresses.Of(c.Before) {
			r.queue.add(item{object: object{addressCollection, ip}})
		}
	case c.Collection == addressCollection && c.After != nil:
		r.queue.add(item{object: object{addressCollection, c.Key()}})
	case c.Collection == addressCollection:
		if service := addresses.ParentOf(c.Before); service != "" {
			r.queue.add(item{object: object{serviceCollection, service}})
		}
	}
}

func (r *serviceAddresses) sync(ctx context.Context, i item) error {
	switch i.collection {
	case serviceCollection:
		return r.l.c.Addresses.Ensure(ctx, i.key)
	case addresses.Bitmaps:
		found, err := r.l.c.Addresses.RepairPorts(ctx)
		if found && err == nil {
			r.l.addAt(r.queue, i, r.l.now().Add(bitmapPause))
		}
		return err
	}
	again, err := r.l.c.Addresses.Check(ctx, i.key, r.l.now())
	if !again.IsZero() {
		r.l.addAt(r.queue, i, again)
	}
	return err
}

const (
	cidrFinalizer = "networking.k8s.io/service-cidr-finalizer"
	// cidrStays is how long a range stays after its deletion, for writes in progress that
	// have taken an address of it.
	cidrStays = 10 * time.Second
)

// cidrs keeps a finalizer on ServiceCIDRs while Services use their addresses, and maintains
// the condition Ready.
type cidrs struct{ follower }

func newCIDRs(l *Loops, q *queue) loop {
	return &cidrs{follower{l: l, queue: q, collection: cidrCollection}}
}

// observe queues all ranges when a range changes or an address is deleted: there are few.
func (r *cidrs) observe(c *store.CollectionChange) {
	if c.Collection == cidrCollection || c.Collection == addressCollection && c.After == nil {
		r.begin(r.l.store.Any())
	}
}

func (r *cidrs) sync(ctx context.Context, i item) error {
	s := r.l.store.Any()
	o := s.Get(i.collection, i.key)
	if o == nil {
		return nil
	}
	c, err := registry.Decode[networkingv1.ServiceCIDR](o)
	if err != nil {
		return err
	}
	if c.DeletionTimestamp == nil {
		if err := r.protect(ctx, i.object, c); err != nil {
			return err
		}
		return r.setReady(ctx, i.object, c, metav1.Condition{Status: metav1.ConditionTrue, Message: "Kubernetes Service CIDR is ready"})
	}
	needed, err := addresses.Needed(s, c)
	if err != nil {
		return err
	}
	if needed {
		return r.setReady(ctx, i.object, c, metav1.Condition{
			Status: metav1.ConditionFalse, Reason: networkingv1.ServiceCIDRReasonTerminating,
			Message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
		})
	}
	if left := c.DeletionTimestamp.Add(cidrStays).Sub(r.l.now()); left > 0 {
		r.l.addAt(r.queue, i, r.l.now().Add(left))
		return nil
	}
	return r.l.removeFinalizer(ctx, i.object, c.UID, cidrFinalizer)
}

func (r *cidrs) protect(ctx context.Context, o object, c *networkingv1.ServiceCIDR) error {
	if slices.Contains(c.Finalizers, cidrFinalizer) {
		return nil
	}
	return r.l.edit(ctx, o, "", func(m metav1.Object) error {
		if m.GetDeletionTimestamp() != nil || slices.Contains(m.GetFinalizers(), cidrFinalizer) {
			return errLeave
		}
		m.SetFinalizers(append(m.GetFinalizers(), cidrFinalizer))
		return nil
	})
}

// setReady sets the condition Ready.
func (r *cidrs) setReady(ctx context.Context, o object, c *networkingv1.ServiceCIDR, wanted metav1.Condition) error {
	wanted.Type = networkingv1.ServiceCIDRConditionReady
	have := meta.FindStatusCondition(c.Status.Conditions, wanted.Type)
	if have != nil && have.Status == wanted.Status && have.Reason == wanted.Reason && have.Message == wanted.Message {
		return nil
	}
	wanted.LastTransitionTime = metav1.NewTime(r.l.now().UTC().Truncate(time.Second))
	return r.l.edit(ctx, o, "status", func(m metav1.Object) error {
		c := m.(*networkingv1.ServiceCIDR)
		c.Status.Conditions = append(slices.DeleteFunc(slices.Clone(c.Status.Conditions), func(have metav1.Condition) bool { return have.Type == wanted.Type }), wanted)
		return nil
	})
}
