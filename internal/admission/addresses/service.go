package addresses

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

func invalid(s *corev1.Service, errs ...*field.Error) error {
	return resource.Invalid(schema.GroupKind{Kind: "Service"}, s.Name, errs)
}

// full is the error when no address or port is free. Its code is 500, as in kube-apiserver: no
// other request of the client would succeed.
func full(what string, err error) error {
	return resource.Exhausted{StatusError: apierrors.NewInternalError(fmt.Errorf("failed to allocate %s: %w", what, err))}
}

// create sets the addresses and ports of a new Service.
func (c *choice) create(s *corev1.Service) error {
	if s.Spec.ClusterIP != "" && len(s.Spec.ClusterIPs) == 0 {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
	if errs := c.families(s, nil); len(errs) > 0 {
		return invalid(s, errs...)
	}
	if err := c.allIPs(s); err != nil {
		return err
	}
	if err := c.newPorts(s); err != nil {
		return err
	}
	if core.NeedsHealthCheck(s) {
		return c.healthPort(s)
	}
	return nil
}

// update sets the addresses and ports of a changed Service.
func (c *choice) update(s, old *corev1.Service) error {
	keepAllocated(s, old)
	alignIPs(s, old)
	if errs := c.families(s, old); len(errs) > 0 {
		return invalid(s, errs...)
	}
	if err := c.updateIPs(s, old); err != nil {
		return err
	}
	if err := c.updatePorts(s, old); err != nil {
		return err
	}
	if core.NeedsHealthCheck(s) && !core.NeedsHealthCheck(old) {
		return c.healthPort(s)
	}
	return nil
}

// allIPs sets an address of each family of a Service.
func (c *choice) allIPs(s *corev1.Service) error {
	spec := &s.Spec
	if spec.Type == corev1.ServiceTypeExternalName || slices.Equal(spec.ClusterIPs, []string{corev1.ClusterIPNone}) {
		return nil
	}
	ips := slices.Clone(spec.ClusterIPs)
	for i := range spec.IPFamilies {
		if i == len(ips) {
			ips = append(ips, "")
		}
		if err := c.oneIP(s, ips, i); err != nil {
			return err
		}
	}
	spec.ClusterIPs = ips
	if len(ips) > 0 {
		spec.ClusterIP = ips[0]
	}
	return nil
}

// oneIP allocates the address at an index, or a free one if it is empty.
func (c *choice) oneIP(s *corev1.Service, ips []string, i int) error {
	f := s.Spec.IPFamilies[i]
	if ips[i] != "" {
		if err := c.takeIP(f, ips[i]); err != nil {
			return invalid(s, field.Invalid(ipsPath, s.Spec.ClusterIPs, fmt.Sprintf("failed to allocate IP %s: %v", ips[i], err)))
		}
		return nil
	}
	ip, err := c.nextIP(f)
	if err != nil {
		return full(fmt.Sprintf("a serviceIP for Service %q", s.Name), err)
	}
	ips[i] = ip.String()
	return nil
}

// updateIPs sets the addresses of a Service that had none, and the second address of one that
// becomes dual-stack.
func (c *choice) updateIPs(s, old *corev1.Service) error {
	spec, was := &s.Spec, &old.Spec
	switch {
	case spec.Type == corev1.ServiceTypeExternalName:
		return nil
	case was.Type == corev1.ServiceTypeExternalName, len(was.ClusterIPs) == 0:
		return c.allIPs(s)
	case was.ClusterIPs[0] == corev1.ClusterIPNone, staysPreferred(s, old):
		return nil
	case len(was.IPFamilies) == 1 && len(spec.IPFamilies) == 2:
		ips := slices.Clone(spec.ClusterIPs)
		if len(ips) < 2 {
			ips = append(ips, "")
		}
		if err := c.oneIP(s, ips, 1); err != nil {
			return err
		}
		spec.ClusterIPs = ips
	}
	return nil
}

// keepAllocated restores allocated values that an update omits, so that a client can send its
// original manifest again.
func keepAllocated(s, old *corev1.Service) {
	spec, was := &s.Spec, &old.Spec
	if spec.Type != corev1.ServiceTypeExternalName && was.Type != corev1.ServiceTypeExternalName {
		if spec.ClusterIP == "" {
			spec.ClusterIP = was.ClusterIP
		}
		if len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = slices.Clone(was.ClusterIPs)
		}
	}
	if wantsNodePorts(s) && wantsNodePorts(old) {
		keepPorts(spec.Ports, was.Ports)
	}
	if core.NeedsHealthCheck(s) && core.NeedsHealthCheck(old) && spec.HealthCheckNodePort == 0 {
		spec.HealthCheckNodePort = was.HealthCheckNodePort
	}
}

// keepPorts restores node ports by the names of their ports.
func keepPorts(ports, were []corev1.ServicePort) {
	named := map[int32]bool{} // node ports that the update names
	for _, p := range ports {
		if p.NodePort != 0 {
			named[p.NodePort] = true
		}
	}
	had := map[string]int32{} // by the name of the port
	for _, p := range were {
		if !named[p.NodePort] {
			had[p.Name] = p.NodePort
		}
	}
	for i := range ports {
		if ports[i].NodePort == 0 {
			ports[i].NodePort = had[ports[i].Name]
		}
	}
}

// alignIPs updates clusterIPs for clients that change only clusterIP.
func alignIPs(s, old *corev1.Service) {
	spec, was := &s.Spec, &old.Spec
	same := slices.Equal(spec.ClusterIPs, was.ClusterIPs)
	switch {
	case spec.ClusterIP == was.ClusterIP:
		if len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = slices.Clone(was.ClusterIPs)
		}
	case !same:
	case spec.ClusterIP == "":
		spec.ClusterIPs = nil
	default:
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
}
