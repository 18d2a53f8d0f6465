//lint:file-ignore SA1019 Endpoints are deprecated, and served.

package tidemark

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// createOwn makes the namespaces and the objects by which clients find the server.
func (s *Server) createOwn(ctx context.Context, r *running, verbs *registry.Registry, at netip.AddrPort) error {
	catalog := builtin.Catalog()
	if err := createNamespaces(ctx, verbs, catalog); err != nil {
		return err
	}
	o := &own{verbs: verbs, catalog: catalog, ranges: r.addresses.Ranges(), first: r.addresses.First(), at: at}
	return o.create(ctx)
}

// own makes the objects by which clients inside a cluster find its API server.
type own struct {
	verbs   *registry.Registry
	catalog *resource.Catalog
	ranges  []netip.Prefix
	first   netip.Addr // the server's own cluster IP
	at      netip.AddrPort
}

// create makes the objects that are not there: the range of cluster IPs, the
// Service `kubernetes`, and its endpoint, unless the server listens on the loopback
// interface alone, which no other machine reaches.
func (o *own) create(ctx context.Context) error {
	steps := []func(context.Context) error{o.createRange, o.createService}
	if o.at.Addr().IsValid() && !o.at.Addr().IsLoopback() {
		steps = append(steps, o.putEndpoints, o.putSlice)
	}
	errs := make([]error, len(steps))
	var wg sync.WaitGroup
	for i, step := range steps {
		wg.Go(func() { errs[i] = step(ctx) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("the server's own Service cannot be made: %w", err)
		}
	}
	return nil
}

// ownName is the name of all of them.
const ownName = "kubernetes"

func (o *own) target(group, name string) registry.Target {
	t := registry.Target{Type: o.catalog.Lookup(group, "v1", name), Name: ownName}
	if t.Type.Namespaced {
		t.Namespace = metav1.NamespaceDefault
	}
	return t
}

func (o *own) createRange(ctx context.Context) error {
	t := o.target("networking.k8s.io", "servicecidrs")
	if o.stored(t) {
		return nil
	}
	c := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: ownName}}
	for _, r := range o.ranges {
		c.Spec.CIDRs = append(c.Spec.CIDRs, r.String())
	}
	if err := o.write(ctx, t, c); err != nil {
		return err
	}
	t.Subresource = "status"
	_, err := o.verbs.Edit(ctx, t, manager, func(m metav1.Object) error {
		m.(*networkingv1.ServiceCIDR).Status.Conditions = []metav1.Condition{{
			Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(time.Now().UTC().Truncate(time.Second)),
			Message:            "Kubernetes default Service CIDR is ready",
		}}
		return nil
	})
	return err
}

func (o *own) createService(ctx context.Context) error {
	t := o.target("", "services")
	if o.stored(t) {
		return nil
	}
	single := corev1.IPFamilyPolicySingleStack
	return o.write(ctx, t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: ownName, Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"}},
		Spec: corev1.ServiceSpec{
			ClusterIP: o.first.String(), IPFamilyPolicy: &single,
			Ports: []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(int32(o.at.Port()))}},
		},
	})
}

func (o *own) putEndpoints(ctx context.Context) error {
	return o.write(ctx, o.target("", "endpoints"), &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: ownName, Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: o.at.Addr().String()}},
			Ports:     []corev1.EndpointPort{{Name: "https", Port: int32(o.at.Port()), Protocol: corev1.ProtocolTCP}},
		}},
	})
}

func (o *own) putSlice(ctx context.Context) error {
	kind := discoveryv1.AddressTypeIPv4
	if o.at.Addr().Is6() {
		kind = discoveryv1.AddressTypeIPv6
	}
	name, port, protocol, ready := "https", int32(o.at.Port()), corev1.ProtocolTCP, true
	return o.write(ctx, o.target("discovery.k8s.io", "endpointslices"), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: ownName, Labels: map[string]string{discoveryv1.LabelServiceName: ownName}},
		AddressType: kind,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{o.at.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	})
}

// manager is the field manager of what the server makes for itself.
const manager = "tidemark"

// write creates an object, or makes the stored one like it.
func (o *own) write(ctx context.Context, t registry.Target, object any) error {
	encoded, err := json.Marshal(object)
	if err != nil {
		return err
	}
	verb, body := o.verbs.Create, registry.Body{Media: wire.JSON, Bytes: encoded}
	if o.stored(t) {
		verb = o.verbs.Update
	} else {
		t.Name = ""
	}
	_, err = verb(ctx, t, body, registry.WriteOptions{FieldManager: manager})
	return err
}

func (o *own) stored(t registry.Target) bool {
	key := t.Name
	if t.Namespace != "" {
		key = t.Namespace + "/" + t.Name
	}
	return o.verbs.Store.Any().Get(t.Type.Collection, key) != nil
}

// reached is where others reach a listener: its address, or, where it is on all of
// them, the first one that is not of this machine alone. Only its port is valid when
// there is none.
func reached(l net.Listener) netip.AddrPort {
	a := l.Addr().(*net.TCPAddr).AddrPort()
	if !a.Addr().IsUnspecified() {
		return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return netip.AddrPortFrom(netip.Addr{}, a.Port())
	}
	for _, i := range all {
		n, ok := i.(*net.IPNet)
		if !ok || !n.IP.IsGlobalUnicast() {
			continue
		}
		if ip, ok := netip.AddrFromSlice(n.IP); ok && (ip.Unmap().Is4() || a.Addr().Is6()) {
			return netip.AddrPortFrom(ip.Unmap(), a.Port())
		}
	}
	return netip.AddrPortFrom(netip.Addr{}, a.Port())
}
