package httpapi

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/tidemark-dev/tidemark/internal/connect"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// proxy forwards a request to a pod, a node or a service. path is the one at the backend.
func (q *request) proxy(t registry.Target, s *resource.Subresource, path string) error {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(t.Name)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid %s request %q", q.typ.Singular, t.Name))
	}
	t.Name = name
	if q.h.c.Connections == nil {
		return q.unconnected(t, s, port)
	}
	to := connect.Backend{Scheme: cmp.Or(scheme, "http"), Path: cleanPath(path)}
	kubelets := q.h.c.Connections.Kubelets()
	to.Route = kubelets.Backend
	switch t.Type.Collection {
	case "services":
		host, err := q.proxyService(t, port)
		if err != nil {
			return err
		}
		to.Host = host
	case "nodes":
		at, err := q.kubelet(name)
		if err != nil {
			return err
		}
		if port == "" || port == at.Port {
			port, to.Scheme, to.Route = at.Port, "https", kubelets.Proxied
		}
		to.Host = net.JoinHostPort(at.Host, port)
	default:
		o, err := q.h.c.Registry.Read(q.context(), t)
		if err != nil {
			return err
		}
		host, err := s.Connect(o, nil)
		if err != nil {
			return err
		}
		to.Host = podHost(o.(*corev1.Pod), host, port)
	}
	base := strings.TrimSuffix(q.r.URL.Path, "/")
	to.Prefix = q.h.c.Prefix + q.prefix + strings.TrimSuffix(strings.TrimSuffix(base, q.info.rest), "/")
	return q.open(func(w http.ResponseWriter, r *http.Request) error { return q.h.c.Connections.Proxy(w, r, to) })
}

// unconnected returns the error of a proxy to which the server does not connect.
func (q *request) unconnected(t registry.Target, s *resource.Subresource, port string) (err error) {
	var host string
	if t.Type.Collection == "services" {
		host, err = q.proxyService(t, port)
	} else if o, failed := q.h.c.Registry.Read(q.context(), t); failed != nil {
		err = failed
	} else {
		host, err = s.Connect(o, nil)
	}
	if err != nil {
		return err
	}
	return registry.NotImplemented("the connection to " + host)
}

// cleanPath returns a path without repeated slashes, "." and "..". A slash at its end stays.
func cleanPath(p string) string {
	if p == "" {
		return ""
	}
	clean := path.Join("/", p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}

// podHost returns the host of a Pod with a port: the requested one, or the first one of its containers.
func podHost(p *corev1.Pod, ip, port string) string {
	for i := range p.Spec.Containers {
		if ports := p.Spec.Containers[i].Ports; port == "" && len(ports) > 0 {
			port = strconv.Itoa(int(ports[0].ContainerPort))
		}
	}
	switch {
	case port != "":
		return net.JoinHostPort(ip, port)
	case strings.Contains(ip, ":"):
		return "[" + ip + "]"
	}
	return ip
}

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
