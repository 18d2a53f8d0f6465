package httpapi

import (
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/registry"
)

// proxyService returns the address to which a request to a port of a Service would be forwarded: that of a ready endpoint
// in its EndpointSlices, which must be a Pod. The Service itself is only read for a port number.
func (q *request) proxyService(t registry.Target, port string) (host string, err error) {
	if number, err := strconv.ParseInt(port, 10, 64); err == nil {
		o, err := q.h.c.Registry.Read(q.context(), t)
		if err != nil {
			return "", err
		}
		ports := o.(*corev1.Service).Spec.Ports
		i := slices.IndexFunc(ports, func(p corev1.ServicePort) bool { return int64(p.Port) == number })
		if i < 0 {
			return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, t.Name))
		}
		port = ports[i].Name
	}
	left := maxProxiedPods
	of := registry.Target{Type: q.h.c.Catalog().Lookup(discoveryv1.GroupName, "v1", "endpointslices"), Namespace: t.Namespace}
	for o, err := range q.h.c.Registry.ReadAll(q.context(), of) {
		if err != nil {
			return "", err
		}
		s := o.(*discoveryv1.EndpointSlice)
		if s.Labels[discoveryv1.LabelServiceName] != t.Name {
			continue
		}
		if host := q.readyEndpoint(s, port, &left); host != "" {
			return host, nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", t.Name))
}

// maxProxiedPods is how many Pods of a Service are read to find one that has the address of its endpoint.
const maxProxiedPods = 100

// readyEndpoint returns the address of a ready endpoint that has a port with this name; empty: there is none, or no Pod is
// left to read.
func (q *request) readyEndpoint(s *discoveryv1.EndpointSlice, port string, left *int) string {
	for _, p := range s.Ports {
		if p.Name == nil || *p.Name != port || p.Port == nil {
			continue
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if *left == 0 || q.context().Err() != nil {
				return ""
			}
			if (e.Conditions.Ready == nil || *e.Conditions.Ready) && q.isPod(s.Namespace, e, left) {
				return net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port)))
			}
		}
	}
	return ""
}

// isPod reports whether an endpoint is a Pod of the namespace, so that clients do not choose the address.
func (q *request) isPod(namespace string, e *discoveryv1.Endpoint, left *int) bool {
	if e.TargetRef == nil || e.TargetRef.Namespace != namespace || len(e.Addresses) == 0 {
		return false
	}
	*left--
	pods := registry.Target{Type: q.h.c.Catalog().Lookup("", "v1", "pods"), Namespace: namespace, Name: e.TargetRef.Name}
	o, err := q.h.c.Registry.Read(q.context(), pods)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(o.(*corev1.Pod).Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == e.Addresses[0] })
}
