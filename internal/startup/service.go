//lint:file-ignore SA1019 Endpoints are deprecated, and served.

package startup

import (
	"context"
	"encoding/json"
	"fmt"

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
	if c.Address.Addr().IsValid() && !c.Address.Addr().IsLoopback() {
		steps = append(steps, func() error { return c.putEndpoints(ctx) }, func() error { return c.putSlice(ctx) })
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

func (c Config) putEndpoints(ctx context.Context) error {
	return c.write(ctx, c.target("", "endpoints"), &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName, Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: c.Address.Addr().String()}},
			Ports:     []corev1.EndpointPort{{Name: "https", Port: int32(c.Address.Port()), Protocol: corev1.ProtocolTCP}},
		}},
	})
}

func (c Config) putSlice(ctx context.Context) error {
	kind := discoveryv1.AddressTypeIPv4
	if c.Address.Addr().Is6() {
		kind = discoveryv1.AddressTypeIPv6
	}
	name, port, protocol, ready := "https", int32(c.Address.Port()), corev1.ProtocolTCP, true
	return c.write(ctx, c.target("discovery.k8s.io", "endpointslices"), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: serviceName, Labels: map[string]string{discoveryv1.LabelServiceName: serviceName}},
		AddressType: kind,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{c.Address.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	})
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
