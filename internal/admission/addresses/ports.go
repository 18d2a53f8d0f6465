package addresses

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
)

// PortRange is the ports from First to Last, both included.
type PortRange struct{ First, Last int32 }

// DefaultPorts is the default of kube-apiserver.
var DefaultPorts = PortRange{30000, 32767}

// ParsePortRange parses "30000-32767", or "30000+100" for 30000 to 30100.
func ParsePortRange(text string) (PortRange, error) {
	wrong := fmt.Errorf("%q is not a range of ports: want one as 30000-32767", text)
	sep := strings.IndexAny(text, "-+")
	if sep < 0 {
		return PortRange{}, wrong
	}
	first, err1 := strconv.ParseInt(strings.TrimSpace(text[:sep]), 10, 32)
	last, err2 := strconv.ParseInt(strings.TrimSpace(text[sep+1:]), 10, 32)
	if err1 != nil || err2 != nil {
		return PortRange{}, wrong
	}
	if text[sep] == '+' {
		last += first
	}
	r := PortRange{int32(first), int32(min(last, 1<<16))}
	if r == (PortRange{}) {
		return r, wrong
	}
	return r, r.check()
}

// String returns the form that ParsePortRange parses.
func (p PortRange) String() string { return fmt.Sprintf("%d-%d", p.First, p.Last) }

func (p PortRange) check() error {
	if p != (PortRange{}) && (p.First < 1 || p.Last > 65535 || p.First > p.Last) {
		return fmt.Errorf("the node ports %s are no range of ports: want one as %s", p, DefaultPorts)
	}
	return nil
}

func (c *choice) hasPort(p int32) bool { return c.ports[p] || c.used.ports[p] > 0 || c.bitmap.has(p) }

func (c *choice) takePort(p int32) error {
	switch {
	case p < c.Allocator.ports.First || p > c.Allocator.ports.Last:
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", c.Allocator.ports)
	case c.hasPort(p):
		return errors.New("provided port is already allocated")
	}
	c.ports[p] = true
	return nil
}

// nextPort chooses a random port. It uses the reserved ports only when no other is free.
func (c *choice) nextPort() (int32, error) {
	first, last := uint64(c.Allocator.ports.First), uint64(c.Allocator.ports.Last)
	band := reservedPorts(last - first + 1)
	free := func(p uint64) bool { return !c.hasPort(int32(p)) }
	p, ok := c.search(first+band, last, free)
	if !ok && band > 0 {
		p, ok = c.search(first, first+band-1, free)
	}
	if !ok {
		return 0, errFull
	}
	c.ports[int32(p)] = true
	return int32(p), nil
}

// reservedPorts returns how many ports at the beginning of a range are reserved for Services that
// name their port.
func reservedPorts(size uint64) uint64 {
	if size < 32 {
		return 0
	}
	return min(max(size/32, 16), 128)
}

// nodePorts returns the node ports of a Service, each once, with the port of its health
// checks; none for nil.
func nodePorts(s *corev1.Service) []int32 {
	if s == nil {
		return nil
	}
	var all []int32
	seen := map[int32]bool{}
	add := func(p int32) {
		if p != 0 && !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}
	for i := range s.Spec.Ports {
		add(s.Spec.Ports[i].NodePort)
	}
	if core.NeedsHealthCheck(s) {
		add(s.Spec.HealthCheckNodePort)
	}
	return all
}

func hasNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// wantsNodePorts reports whether a port that names no node port gets one.
func wantsNodePorts(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeLoadBalancer:
		return s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts
	}
	return false
}

// newPorts sets the node ports of a new Service. Ports with the same number and different
// protocols share one.
func (c *choice) newPorts(s *corev1.Service) error {
	if !hasNodePorts(s) {
		return nil
	}
	ports := s.Spec.Ports
	given := map[int32]int32{}
	named := requested(ports)
	for i := range ports {
		p := &ports[i]
		if p.NodePort == 0 && !wantsNodePorts(s) {
			continue
		}
		want := p.NodePort
		if given[p.Port] == 0 {
			want = named[p.Port]
		} else if want == 0 {
			want = given[p.Port]
		}
		switch {
		case want != 0 && want == given[p.Port]:
		case want != 0:
			if err := c.takePort(want); err != nil {
				return invalid(s, field.Invalid(specPath.Child("ports").Index(i).Child("nodePort"), want, err.Error()))
			}
		default:
			next, err := c.nextPort()
			if err != nil {
				return full("a nodePort", err)
			}
			want = next
		}
		p.NodePort = want
		if given[p.Port] == 0 {
			given[p.Port] = want
		}
	}
	return nil
}

// requested returns the first node port that is named for each port number.
func requested(ports []corev1.ServicePort) map[int32]int32 {
	named := map[int32]int32{}
	for i := range ports {
		if named[ports[i].Port] == 0 && ports[i].NodePort != 0 {
			named[ports[i].Port] = ports[i].NodePort
		}
	}
	return named
}

// updatePorts sets missing node ports, and takes those that an update names and the Service did
// not have.
func (c *choice) updatePorts(s, old *corev1.Service) error {
	if !hasNodePorts(s) {
		return nil
	}
	had := map[int32]bool{}
	for _, p := range nodePorts(old) {
		had[p] = true
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		switch {
		case p.NodePort != 0 && (had[p.NodePort] || c.ports[p.NodePort]):
		case p.NodePort != 0:
			if err := c.takePort(p.NodePort); err != nil {
				return invalid(s, field.Invalid(specPath.Child("ports").Index(i).Child("nodePort"), p.NodePort, err.Error()))
			}
		case wantsNodePorts(s):
			next, err := c.nextPort()
			if err != nil {
				return full("a nodePort", err)
			}
			p.NodePort = next
		}
	}
	return nil
}

// healthPort sets the node port of health checks.
func (c *choice) healthPort(s *corev1.Service) error {
	if p := s.Spec.HealthCheckNodePort; p != 0 {
		if err := c.takePort(p); err != nil {
			return invalid(s, field.Invalid(specPath.Child("healthCheckNodePort"), p, err.Error()))
		}
		return nil
	}
	next, err := c.nextPort()
	if err != nil {
		return full("a HealthCheck NodePort", err)
	}
	s.Spec.HealthCheckNodePort = next
	return nil
}
