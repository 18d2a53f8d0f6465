package addresses

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// ManagedBy is the value of the label managed-by on the IPAddresses of Services.
const ManagedBy = "ipallocator.k8s.io"

// Repair keeps one IPAddress for each address of a Service. Both are written in one
// transaction; but older servers wrote them one after the other, and users delete
// IPAddresses. RepairPorts does the same for the node ports that a kube-apiserver has allocated. Its methods are safe for concurrent use.
type Repair struct {
	Registry *registry.Registry
	// Type is the type of IPAddresses.
	Type *resource.Type

	mu    sync.Mutex    // guards leaks
	leaks map[int32]int // number of consecutive checks that found an allocated node port without a Service
}

// addressesOf returns the addresses of a Service, nil for none.
func addressesOf(s *corev1.Service) (ips []string) {
	if s == nil {
		return nil
	}
	for _, text := range s.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(text); err == nil {
			ips = append(ips, ip.String())
		}
	}
	return ips
}

// ipAddress makes the IPAddress for an address of a Service.
func ipAddress(ip string, of *corev1.Service) *networkingv1.IPAddress {
	family := corev1.IPv4Protocol
	if strings.Contains(ip, ":") {
		family = corev1.IPv6Protocol
	}
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: ip, Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: string(family), networkingv1.LabelManagedBy: ManagedBy,
		}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: services, Namespace: of.Namespace, Name: of.Name}},
	}
}

// isOf reports whether a stored IPAddress was made for a Service and can be removed.
func isOf(o *store.Object, s *corev1.Service) bool {
	a, err := registry.Decode[networkingv1.IPAddress](o)
	return err == nil && a.Labels[networkingv1.LabelManagedBy] == ManagedBy && len(a.Finalizers) == 0 && parentOf(a) == s.Namespace+"/"+s.Name
}

// unusedGrace is how old an IPAddress on a shared log must be to be removed because no Service has the address.
// kube-apiserver creates the IPAddress before the Service, and has the same grace period.
const unusedGrace = time.Minute

// Check removes the IPAddress of an address that its Service does not have. An IPAddress
// that a user made stays. If the IPAddress is too new to be removed, again is the time for the next check;
// otherwise it is zero.
func (r *Repair) Check(ctx context.Context, ip string, now time.Time) (again time.Time, err error) {
	s := r.Registry.Store.Any()
	stored := s.Get(ipAddresses, ip)
	if stored == nil {
		return again, nil
	}
	a, err := registry.Decode[networkingv1.IPAddress](stored)
	if err != nil || a.Labels[networkingv1.LabelManagedBy] != ManagedBy || a.DeletionTimestamp != nil {
		return again, err
	}
	if of := parentOf(a); of != "" {
		if parent := s.Get(services, of); parent != nil {
			service, err := registry.Decode[corev1.Service](parent)
			if err != nil || slices.Contains(addressesOf(service), ip) {
				return again, err
			}
		}
	}
	if end := a.CreationTimestamp.Add(unusedGrace); r.Registry.Store.Shared() && now.Before(end) {
		return end, nil
	}
	version := strconv.FormatUint(uint64(stored.Modified), 10)
	_, err = r.Registry.Delete(ctx, registry.Target{Type: r.Type, Name: ip}, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &a.UID, ResourceVersion: &version}}, nil)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return again, nil
	}
	return again, err
}

// Ensure creates the missing IPAddresses of a Service.
func (r *Repair) Ensure(ctx context.Context, key string) error {
	s := r.Registry.Store.Any()
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
		if s.Get(ipAddresses, ip) != nil {
			continue
		}
		if err := r.create(ctx, ipAddress(ip, service)); err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *Repair) create(ctx context.Context, a *networkingv1.IPAddress) error {
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = r.Registry.Create(ctx, registry.Target{Type: r.Type}, registry.Body{Media: wire.JSON, Bytes: body}, registry.WriteOptions{FieldManager: registry.ServerManager})
	return err
}

// Of returns the addresses of a stored Service.
func Of(o *store.Object) []string {
	s, err := registry.Decode[corev1.Service](o)
	if err != nil {
		return nil
	}
	return addressesOf(s)
}

// ParentOf returns the key of the Service that a stored IPAddress belongs to; empty: none.
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
