package peers

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// The names of facts that a kube-apiserver shows too.
const (
	ClusterIPRange = "service-cluster-ip-range"
	NodePortRange  = "service-node-port-range"
)

// kubeLabelValue is the label of a kube-apiserver's Lease.
const kubeLabelValue = "kube-apiserver"

// kubeFacts returns the settings that kube-apiservers have stored about themselves, by the names of
// facts. They allocate from the same ranges at the same time. They store nothing about their keys
// and authorities.
func (p *Peers) kubeFacts(s *store.State) map[string]string {
	all := map[string]string{}
	if o := s.Get("servicecidrs.networking.k8s.io", "kubernetes"); o != nil {
		if c, err := registry.Decode[networkingv1.ServiceCIDR](o); err == nil {
			all[ClusterIPRange] = rangesOf(c.Spec.CIDRs)
		}
	}
	if o := s.Get("ranges", "servicenodeports"); o != nil && o.Unreadable() == "" {
		if a, err := registry.Decode[corev1.RangeAllocation](o); err == nil {
			all[NodePortRange] = a.Range
		}
	}
	return all
}

// rangesOf returns ranges as the value of the fact ClusterIPRange.
func rangesOf(texts []string) string {
	var all []netip.Prefix
	for _, text := range texts {
		if r, err := netip.ParsePrefix(text); err == nil {
			all = append(all, r.Masked())
		}
	}
	return fmt.Sprint(all)
}
