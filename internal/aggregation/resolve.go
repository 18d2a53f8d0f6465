package aggregation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/webhook"
)

const (
	services       = "services"
	endpointSlices = "endpointslices.discovery.k8s.io"
	// sliceService is the label of EndpointSlices with the name of their Service.
	sliceService = discoveryv1.LabelServiceName
)

// resolve returns the host and port of a Service at this moment.
func (a *Aggregator) resolve(k serviceKey) (string, error) {
	if !a.c.Endpoints {
		return webhook.Services(a.c.Store)(k.namespace, k.name, k.port)
	}
	s := a.c.Store.Any()
	service, err := readStored(s, k)
	switch {
	case err != nil:
		return "", err
	case service == nil:
		return "", fmt.Errorf("service %q not found", k.name)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return "", fmt.Errorf("unsupported service type %q", service.Spec.Type)
	}
	i := portOf(service, k.port)
	if i < 0 {
		return "", fmt.Errorf("no service port %d found for service %q", k.port, k.name)
	}
	family := ""
	if len(service.Spec.IPFamilies) > 0 {
		family = string(service.Spec.IPFamilies[0])
	}
	return randomEndpoint(slicesOf(s, k), service.Spec.Ports[i].Name, family, k.name)
}

// readStored returns a Service, nil if it does not exist.
func readStored(s *store.State, k serviceKey) (*corev1.Service, error) {
	o := s.Get(services, k.key())
	if o == nil {
		return nil, nil
	}
	service := new(corev1.Service)
	if err := json.Unmarshal(o.Bytes(), service); err != nil {
		return nil, err
	}
	return service, nil
}

// portOf returns the index of a port of a Service, -1 if it does not have it.
func portOf(s *corev1.Service, port int32) int {
	return slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
}

// readSlice reads an EndpointSlice.
func readSlice(o *store.Object) (*discoveryv1.EndpointSlice, error) {
	s := new(discoveryv1.EndpointSlice)
	return s, json.Unmarshal(o.Bytes(), s)
}

// mayBelong reports whether an EndpointSlice may be one of a Service. It is cheap, and false is certain.
func mayBelong(o *store.Object, service string) bool {
	return bytes.Contains(o.Bytes(), []byte(`"`+sliceService+`":"`+service+`"`))
}

// slicesOf yields the EndpointSlices of a Service.
func slicesOf(s *store.State, k serviceKey) iter.Seq[*discoveryv1.EndpointSlice] {
	return func(yield func(*discoveryv1.EndpointSlice) bool) {
		for o := range s.Snapshot(endpointSlices).Scan(k.namespace+"/", "") {
			if !mayBelong(o, k.name) {
				continue
			}
			if slice, err := readSlice(o); err == nil && slice.Labels[sliceService] == k.name && !yield(slice) {
				return
			}
		}
	}
}

func isReady(e *discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// hasPort returns the number of the port with a name; nil: the slice does not have it.
func hasPort(s *discoveryv1.EndpointSlice, name string) *int32 {
	for _, p := range s.Ports {
		if p.Name != nil && *p.Name == name && p.Port != nil {
			return p.Port
		}
	}
	return nil
}

// randomEndpoint returns the address of a ready endpoint, of the address family if there is one of it.
func randomEndpoint(all iter.Seq[*discoveryv1.EndpointSlice], port, family, service string) (string, error) {
	var preferred, others []string
	for s := range all {
		number := hasPort(s, port)
		if number == nil {
			continue
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if !isReady(e) || len(e.Addresses) == 0 {
				continue
			}
			address := net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*number)))
			if family == "" || strings.EqualFold(string(s.AddressType), family) {
				preferred = append(preferred, address)
			} else {
				others = append(others, address)
			}
		}
	}
	if len(preferred) == 0 {
		preferred = others
	}
	if len(preferred) == 0 {
		return "", fmt.Errorf("no endpoints available for service %q", service)
	}
	return preferred[rand.IntN(len(preferred))], nil
}
