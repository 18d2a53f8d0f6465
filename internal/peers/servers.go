package peers

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/statusapi"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Servers returns the servers of this program that live, this one included, in the order of their identities. Leader is
// the identity of the one that leads.
func (p *Peers) Servers(s *store.State, leader string) (all []statusapi.Server) {
	for o := range s.Snapshot(Leases).Scan(LeasePrefix+leaseName, "") {
		lease, err := registry.Decode[coordinationv1.Lease](o)
		if err != nil || lease.Labels[label] != labelValue || p.age(lease).Abs() >= lifetime {
			continue
		}
		one := statusapi.Server{Identity: strings.TrimPrefix(lease.Name, leaseName), Address: lease.Annotations[addressFact]}
		one.Self, one.Leader = one.Identity == p.c.Identity, one.Identity == leader
		if t := lease.Spec.RenewTime; t != nil {
			one.Renewed = t.Time
		}
		all = append(all, one)
	}
	return all
}
