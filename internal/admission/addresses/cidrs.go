package addresses

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// rangesOf returns the ranges of a family: the server's own, then those of the ServiceCIDRs
// that are ready and not being deleted, by name.
func (a *Allocator) rangesOf(f corev1.IPFamily) []*ipRange {
	own := a.ranges[f]
	all := []*ipRange{own}
	for o := range a.store.Any().Snapshot(serviceCIDRs).Scan("", "") {
		c, err := registry.Decode[networkingv1.ServiceCIDR](o)
		if err != nil || !isReady(c) {
			continue
		}
		for _, p := range prefixes(c) {
			if familyOf(p.Addr()) == f && !slices.ContainsFunc(all, func(r *ipRange) bool { return r.prefix == p }) {
				all = append(all, newRange(p))
			}
		}
	}
	return all
}

// isReady reports whether addresses of a ServiceCIDR are allocated.
func isReady(c *networkingv1.ServiceCIDR) bool {
	if c.DeletionTimestamp != nil {
		return false
	}
	for _, condition := range c.Status.Conditions {
		if condition.Type == networkingv1.ServiceCIDRConditionReady {
			return condition.Status == metav1.ConditionTrue
		}
	}
	return true
}

func prefixes(c *networkingv1.ServiceCIDR) (all []netip.Prefix) {
	for _, text := range c.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, p.Masked())
		}
	}
	return all
}

// Needed reports whether a ServiceCIDR contains addresses of Services that no other ServiceCIDR
// contains.
func Needed(s *store.State, c *networkingv1.ServiceCIDR) (bool, error) {
	var others []netip.Prefix
	for o := range s.Snapshot(serviceCIDRs).Scan("", "") {
		if o.Key == c.Name {
			continue
		}
		other, err := registry.Decode[networkingv1.ServiceCIDR](o)
		if err != nil {
			return false, err
		}
		others = append(others, prefixes(other)...)
	}
	for _, p := range prefixes(c) {
		if slices.ContainsFunc(others, func(o netip.Prefix) bool { return o.Bits() <= p.Bits() && o.Contains(p.Addr()) }) {
			continue
		}
		for o := range s.Snapshot(ipAddresses).Scan("", "") {
			ip, err := netip.ParseAddr(o.Key)
			if err != nil || !p.Contains(ip) || slices.ContainsFunc(others, func(o netip.Prefix) bool { return o.Contains(ip) }) {
				continue
			}
			a, err := registry.Decode[networkingv1.IPAddress](o)
			if err != nil {
				return false, err
			}
			if a.Labels[networkingv1.LabelManagedBy] == ManagedBy {
				return true, nil
			}
		}
	}
	return false, nil
}
