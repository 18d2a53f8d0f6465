package addresses

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Where IPAddresses and ServiceCIDRs are stored.
const (
	ipAddresses  = "ipaddresses.networking.k8s.io"
	serviceCIDRs = "servicecidrs.networking.k8s.io"
)

// ManagedBy is what the IPAddresses of Services are labelled with.
const ManagedBy = "ipallocator.k8s.io"

// Objects keep an IPAddress for each address that a Service has: it is there before the
// Service is stored, and goes when the Service does. Their methods are safe for concurrent
// use.
type Objects struct {
	Registry *registry.Registry
	// Type is that of IPAddresses.
	Type *resource.Type

	mu       sync.Mutex
	underWay map[string]int // addresses that writes are about
}

// Wants is the Wants of the step.
func (o *Objects) Wants(t registry.Target, _ string) bool {
	return t.Type.Collection == services && t.Subresource == ""
}

// Admit is the Admit of the step.
func (o *Objects) Admit(ctx context.Context, a *registry.Admission) error {
	now, was := addressesOf(a.Object), addressesOf(a.Old)
	changed := slices.DeleteFunc(slices.Concat(now, was), func(ip string) bool { return slices.Contains(now, ip) && slices.Contains(was, ip) })
	if old, ok := a.Old.(*corev1.Service); ok && old.DeletionTimestamp != nil {
		changed = slices.Concat(changed, was) // it may go with this write
	}
	if a.DryRun || len(changed) == 0 {
		return nil
	}
	o.note(changed, 1)
	if s, ok := a.Object.(*corev1.Service); ok && a.Old == nil {
		name := s.Name
		a.OnEnd(func(stored bool) {
			if stored && s.Name != name { // the generated one was taken
				o.rename(context.WithoutCancel(ctx), now, s.Name)
			}
		})
	}
	a.OnEnd(func(bool) {
		o.note(changed, -1)
		for _, ip := range changed {
			_ = o.Check(context.WithoutCancel(ctx), ip) // what stays too long, the loop finds
		}
	})
	for _, ip := range now {
		if slices.Contains(was, ip) {
			continue
		}
		s := a.Object.(*corev1.Service)
		err := o.create(ctx, ip, s.Namespace, s.Name)
		if apierrors.IsAlreadyExists(err) {
			return invalid(s, field.Invalid(ipsPath, s.Spec.ClusterIPs, fmt.Sprintf("failed to allocate IP %s: %v", ip, errTaken)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addressesOf are those of a Service, nil of nothing.
func addressesOf(o runtime.Object) (ips []string) {
	s, ok := o.(*corev1.Service)
	if !ok {
		return nil
	}
	for _, text := range s.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(text); err == nil {
			ips = append(ips, ip.String())
		}
	}
	return ips
}

func (o *Objects) note(ips []string, by int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.underWay == nil {
		o.underWay = map[string]int{}
	}
	for _, ip := range ips {
		if o.underWay[ip] += by; o.underWay[ip] <= 0 {
			delete(o.underWay, ip)
		}
	}
}

func (o *Objects) isUnderWay(ip string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.underWay[ip] > 0
}

func (o *Objects) create(ctx context.Context, ip, namespace, name string) error {
	parsed, err := netip.ParseAddr(ip)
	if err != nil {
		return err
	}
	body, err := json.Marshal(&networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: ip, Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: string(familyOf(parsed)), networkingv1.LabelManagedBy: ManagedBy,
		}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: services, Namespace: namespace, Name: name}},
	})
	if err != nil {
		return err
	}
	_, err = o.Registry.Create(ctx, registry.Target{Type: o.Type}, registry.Body{Media: wire.JSON, Bytes: body}, registry.WriteOptions{FieldManager: registry.ServerManager})
	return err
}

// rename has the IPAddresses of a Service say another name of it, which no client may.
// Those that cannot be changed Check removes, and Ensure makes again.
func (o *Objects) rename(ctx context.Context, ips []string, name string) {
	for _, ip := range ips {
		_, _ = o.Registry.Alter(ctx, registry.Target{Type: o.Type, Name: ip}, registry.Alteration{Change: func(a runtime.Object) error {
			a.(*networkingv1.IPAddress).Spec.ParentRef.Name = name
			return nil
		}})
	}
}

// Check removes the IPAddress of an address that its Service does not have. One that
// writes are about is left to them, and one that somebody else made to them.
func (o *Objects) Check(ctx context.Context, ip string) error {
	if o.isUnderWay(ip) {
		return nil
	}
	s := o.Registry.Store.Any()
	stored := s.Get(ipAddresses, ip)
	if stored == nil {
		return nil
	}
	a, err := registry.Decode[networkingv1.IPAddress](stored)
	if err != nil || a.Labels[networkingv1.LabelManagedBy] != ManagedBy || a.DeletionTimestamp != nil {
		return err
	}
	if of := parentOf(a); of != "" {
		if parent := s.Get(services, of); parent != nil {
			service, err := registry.Decode[corev1.Service](parent)
			if err != nil || slices.Contains(addressesOf(service), ip) {
				return err
			}
		}
	}
	version := strconv.FormatUint(uint64(stored.Modified), 10)
	_, err = o.Registry.Delete(ctx, registry.Target{Type: o.Type, Name: ip}, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &a.UID, ResourceVersion: &version}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// Ensure makes the IPAddresses of a Service that are not there.
func (o *Objects) Ensure(ctx context.Context, key string) error {
	s := o.Registry.Store.Any()
	stored := s.Get(services, key)
	if stored == nil {
		return nil
	}
	service, err := registry.Decode[corev1.Service](stored)
	if err != nil {
		return err
	}
	var errs []error
	for _, ip := range addressesOf(service) {
		if s.Get(ipAddresses, ip) != nil || o.isUnderWay(ip) {
			continue
		}
		if err := o.create(ctx, ip, service.Namespace, service.Name); err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Of are the addresses of a stored Service.
func Of(o *store.Object) []string {
	s, err := registry.Decode[corev1.Service](o)
	if err != nil {
		return nil
	}
	return addressesOf(s)
}

// ParentOf is the key of the Service that a stored IPAddress is of; empty: of none.
func ParentOf(o *store.Object) string {
	a, err := registry.Decode[networkingv1.IPAddress](o)
	if err != nil {
		return ""
	}
	return parentOf(a)
}

func parentOf(a *networkingv1.IPAddress) string {
	p := a.Spec.ParentRef
	if p == nil || p.Group != "" || p.Resource != services {
		return ""
	}
	return p.Namespace + "/" + p.Name
}
