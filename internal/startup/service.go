//lint:file-ignore SA1019 Endpoints are deprecated, and served.

package startup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

const (
	// serviceName is the name of the Service by which Pods find the API server, of its
	// endpoints, and of the ServiceCIDR of the server's ranges.
	serviceName = "kubernetes"
	// serverManager is the field manager of these objects and of the namespaces.
	serverManager = "tidemark"
)

// ensureService makes the objects by which clients inside a cluster find its API server.
func (c Config) ensureService(ctx context.Context) error {
	steps := []func() error{
		func() error { return c.createRange(ctx) },
		func() error { return c.createService(ctx) },
	}
	if c.Address.Addr().IsValid() && !c.Address.Addr().IsLoopback() && !c.Shared {
		own := []string{c.Address.Addr().String()}
		steps = append(steps, func() error { return c.write(ctx, c.target("", "endpoints"), c.endpoints(own)) },
			func() error { return c.write(ctx, c.target("discovery.k8s.io", "endpointslices"), c.slice(own)) })
	}
	if err := c.inParallel(steps); err != nil {
		return fmt.Errorf("the server's own Service: %w", err)
	}
	return nil
}

func (c Config) target(group, name string) registry.Target {
	t := registry.Target{Type: c.Catalog.Lookup(group, "v1", name), Name: serviceName}
	if t.Type.Namespaced {
		t.Namespace = metav1.NamespaceDefault
	}
	return t
}

func (c Config) createRange(ctx context.Context) error {
	t := c.target("networking.k8s.io", "servicecidrs")
	if c.stored(t) != nil {
		return nil
	}
	cidr := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: serviceName}}
	for _, r := range c.Ranges {
		cidr.Spec.CIDRs = append(cidr.Spec.CIDRs, r.String())
	}
	if err := c.write(ctx, t, cidr); err != nil {
		return err
	}
	t.Subresource = "status"
	_, err := c.Registry.Edit(ctx, t, serverManager, func(m metav1.Object) error {
		m.(*networkingv1.ServiceCIDR).Status.Conditions = []metav1.Condition{{
			Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue,
			LastTransitionTime: c.now(),
			Message:            "Kubernetes default Service CIDR is ready",
		}}
		return nil
	})
	return err
}

func (c Config) createService(ctx context.Context) error {
	t := c.target("", "services")
	if c.stored(t) != nil {
		return nil
	}
	single := corev1.IPFamilyPolicySingleStack
	return c.write(ctx, t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName, Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"}},
		Spec: corev1.ServiceSpec{
			ClusterIP: c.First.String(), IPFamilyPolicy: &single,
			Ports: []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(int32(c.Address.Port()))}},
		},
	})
}

// PutEndpoints makes the addresses that current returns, in order, the endpoints of the Service `kubernetes`. Without
// addresses the endpoints stay. A port that another server has written stays, too.
//
// PutEndpoints calls current again when another server has written the endpoints meanwhile: then there may be other
// addresses, too.
func (c Config) PutEndpoints(ctx context.Context, current func() []string) error {
	first := current()
	if len(first) == 0 {
		return nil
	}
	putEndpoints := func(m metav1.Object) error {
		e, ips := m.(*corev1.Endpoints), current()
		want := c.endpoints(ips)
		switch {
		case len(ips) == 0:
			return errUnchanged
		case len(e.Subsets) != 1 || len(e.Subsets[0].Ports) != 1 || len(e.Subsets[0].NotReadyAddresses) > 0:
			e.Subsets = want.Subsets
		case slices.EqualFunc(e.Subsets[0].Addresses, ips, func(a corev1.EndpointAddress, ip string) bool { return a.IP == ip }):
			return errUnchanged
		default:
			e.Subsets[0].Addresses = want.Subsets[0].Addresses
		}
		return nil
	}
	putSlice := func(m metav1.Object) error {
		s, ips := m.(*discoveryv1.EndpointSlice), current()
		if len(ips) == 0 {
			return errUnchanged
		}
		slice := c.slice(ips)
		same := slices.EqualFunc(s.Endpoints, ips, func(e discoveryv1.Endpoint, ip string) bool {
			return len(e.Addresses) == 1 && e.Addresses[0] == ip && e.Conditions.Ready != nil && *e.Conditions.Ready
		})
		if same && len(s.Ports) == 1 {
			return errUnchanged
		}
		if s.Endpoints = slice.Endpoints; len(s.Ports) != 1 {
			s.Ports = slice.Ports
		}
		return nil
	}
	return errors.Join(c.Put(ctx, c.target("", "endpoints"), c.endpoints(first), putEndpoints),
		c.Put(ctx, c.target("discovery.k8s.io", "endpointslices"), c.slice(first), putSlice))
}

// Put creates an object, or edits the stored one.
func (c Config) Put(ctx context.Context, t registry.Target, object metav1.Object, edit func(metav1.Object) error) error {
	if c.stored(t) == nil {
		encoded, err := json.Marshal(object)
		if err != nil {
			return err
		}
		collection := t
		collection.Name = ""
		_, err = c.Registry.Create(ctx, collection, registry.Body{Media: wire.JSON, Bytes: encoded}, registry.WriteOptions{FieldManager: serverManager})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return c.edit(ctx, t, serverManager, edit)
}

func (c Config) endpoints(ips []string) *corev1.Endpoints {
	subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "https", Port: int32(c.Address.Port()), Protocol: corev1.ProtocolTCP}}}
	for _, ip := range ips {
		subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: ip})
	}
	return &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName, Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}},
		Subsets:    []corev1.EndpointSubset{subset},
	}
}

func (c Config) slice(ips []string) *discoveryv1.EndpointSlice {
	kind := discoveryv1.AddressTypeIPv4
	if c.Address.Addr().Is6() {
		kind = discoveryv1.AddressTypeIPv6
	}
	name, port, protocol, ready := "https", int32(c.Address.Port()), corev1.ProtocolTCP, true
	made := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: serviceName, Labels: map[string]string{discoveryv1.LabelServiceName: serviceName}},
		AddressType: kind,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	for _, ip := range ips {
		made.Endpoints = append(made.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	return made
}

// write creates an object, or replaces the stored one. It is no error if another client creates it
// first.
func (c Config) write(ctx context.Context, t registry.Target, object any) error {
	encoded, err := json.Marshal(object)
	if err != nil {
		return err
	}
	verb, body := c.Registry.Create, registry.Body{Media: wire.JSON, Bytes: encoded}
	if c.stored(t) != nil {
		verb = c.Registry.Update
	} else {
		t.Name = ""
	}
	_, err = verb(ctx, t, body, registry.WriteOptions{FieldManager: serverManager})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
