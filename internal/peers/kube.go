package peers

import (
	"fmt"
	"net/netip"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// checkKube returns an error if a kube-apiserver that lives has other ranges: it allocates from them at the
// same time. It writes nothing about its keys and authorities.
func (p *Peers) checkKube(s *store.State) error {
	theirs := p.kubeFacts(s)
	if len(theirs) == 0 {
		return nil
	}
	for o := range s.Snapshot(leaseCollection).Scan(metav1.NamespaceSystem+"/", "") {
		lease, err := registry.Decode[coordinationv1.Lease](o)
		if err != nil || lease.Labels[label] != kubeLabelValue || p.age(lease) >= lifetime {
			continue
		}
		for _, f := range p.c.Facts {
			if value, ok := theirs[f.Name]; ok && !f.agrees(value) {
				return fmt.Errorf("the kube-apiserver %s on the same etcd has %s: %s there, and %s here; %s", of(lease), f.What, value, f.Value, f.Remedy)
			}
		}
	}
	return nil
}

// kubeFacts returns what a kube-apiserver has stored about itself, by the names of facts.
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
