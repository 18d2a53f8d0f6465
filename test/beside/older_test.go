package beside

import (
	"bytes"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	rbacv1alpha1 "k8s.io/api/rbac/v1alpha1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestOlderVersions: values that earlier releases have written are shown alike.
func TestOlderVersions(t *testing.T) {
	tier.Full(t)
	c := newCluster(t)
	exact, node, other, yes := networkingv1beta1.PathTypeExact, "n", "m", true
	group := "beside.example.com"
	backends := []networkingv1beta1.IngressBackend{
		{}, {ServiceName: "s"}, {ServiceName: "s", ServicePort: intstr.FromInt32(80)}, {ServiceName: "s", ServicePort: intstr.FromString("http")},
		{ServicePort: intstr.FromString("")}, {ServicePort: intstr.FromInt32(7)}, {Resource: &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "Kind", Name: "x"}},
	}
	ingress := networkingv1beta1.Ingress{Spec: networkingv1beta1.IngressSpec{
		Rules: []networkingv1beta1.IngressRule{{Host: "none.example.com"}, {IngressRuleValue: networkingv1beta1.IngressRuleValue{HTTP: &networkingv1beta1.HTTPIngressRuleValue{}}}},
		TLS:   []networkingv1beta1.IngressTLS{{Hosts: []string{"a.example.com"}, SecretName: "s"}, {}},
	}}
	ingress.Status.LoadBalancer.Ingress = []networkingv1beta1.IngressLoadBalancerIngress{{IP: "192.0.2.1", Ports: []networkingv1beta1.IngressPortStatus{{Port: 80, Protocol: "TCP"}}}, {Hostname: "h"}}
	for i, b := range backends {
		p := networkingv1beta1.HTTPIngressPath{Path: fmt.Sprint("/", i), Backend: b}
		if i%2 == 0 {
			p.PathType = &exact
		}
		ingress.Spec.Rules[1].HTTP.Paths = append(ingress.Spec.Rules[1].HTTP.Paths, p)
	}
	slice := discoveryv1beta1.EndpointSlice{AddressType: "IPv4", Ports: []discoveryv1beta1.EndpointPort{{}}}
	for i, topology := range []map[string]string{
		nil, {}, {corev1.LabelTopologyZone: "z"}, {corev1.LabelHostname: node}, {corev1.LabelHostname: other}, {"a": "b", corev1.LabelTopologyZone: "z", corev1.LabelHostname: node},
	} {
		e := discoveryv1beta1.Endpoint{Addresses: []string{fmt.Sprint("192.0.2.", i+1)}, Topology: topology}
		if i%2 == 1 {
			e.NodeName = &node
			e.Conditions.Ready = &yes
			e.Hints = &discoveryv1beta1.EndpointHints{ForZones: []discoveryv1beta1.ForZone{{Name: "z"}}}
		}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	values := map[string]string{} // the keys in etcd by the paths
	put := func(o runtime.Object, apiVersion, kind, key, path string) {
		t.Helper()
		name := fmt.Sprint("older-", len(values))
		m := o.(metav1.Object)
		m.SetName(name)
		if strings.Contains(path, "/namespaces/") {
			m.SetNamespace("default")
		}
		m.SetUID("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee")
		m.SetCreationTimestamp(metav1.Unix(1600000000, 0))
		o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
		var value bytes.Buffer
		c.must(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &value))
		_, err := c.db.Put(t.Context(), key+name, value.String())
		c.must(err)
		values[path+name] = key + name
	}
	const ingresses, slices = "/apis/networking.k8s.io/v1/namespaces/default/ingresses/", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/"
	for i := range backends {
		o := ingress.DeepCopy()
		o.Spec.Backend = &backends[i]
		put(o, "networking.k8s.io/v1beta1", "Ingress", "/registry/ingress/default/", ingresses)
	}
	put(&networkingv1beta1.Ingress{}, "networking.k8s.io/v1beta1", "Ingress", "/registry/ingress/default/", ingresses)
	before := ingress.DeepCopy()
	put(before, "extensions/v1beta1", "Ingress", "/registry/ingress/default/", ingresses) // the same messages
	firstSlice := len(values)
	for range 2 {
		put(&slice, "discovery.k8s.io/v1beta1", "EndpointSlice", "/registry/endpointslices/default/", slices)
	}
	for _, o := range olderDevices() {
		plural := strings.ToLower(reflect.TypeOf(o).Elem().Name()) + "s"
		if plural == "resourceslices" {
			put(o, "resource.k8s.io/v1beta1", "ResourceSlice", "/registry/resourceslices/", "/apis/resource.k8s.io/v1/resourceslices/")
			continue
		}
		put(o, "resource.k8s.io/v1beta1", reflect.TypeOf(o).Elem().Name(), "/registry/"+plural+"/default/", "/apis/resource.k8s.io/v1/namespaces/default/"+plural+"/")
	}
	put(&rbacv1alpha1.RoleBinding{RoleRef: rbacv1alpha1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "r"}, Subjects: []rbacv1alpha1.Subject{
		{Kind: "User", Name: "*"}, {Kind: "User", Name: "u"}, {Kind: "Group", APIVersion: "rbac.authorization.k8s.io/v1alpha1", Name: "g"},
		{Kind: "ServiceAccount", APIVersion: "v1", Name: "s", Namespace: "default"}, {Kind: "ServiceAccount", Name: "*", Namespace: "default"},
		{Kind: "ServiceAccount", APIVersion: "rbac.authorization.k8s.io/v1alpha1", Name: "t", Namespace: "default"},
	}}, "rbac.authorization.k8s.io/v1alpha1", "RoleBinding", "/registry/rolebindings/default/", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/")
	k, td := c.serve(kube, "192.0.2.1"), c.serve(tidemark, "192.0.2.2")
	for at, key := range values {
		same(t, k, td, at)
		stored, _ := c.value(key)
		if code, body := td.send("PUT", at, td.want(http.StatusOK, "GET", at, nil)); code == http.StatusOK {
			if now, _ := c.value(key); bytes.Equal(now, stored) {
				t.Errorf("an update of %s does not write the newest version", at)
			}
			same(t, k, td, at)
			unchanged(t, k, at, key)
		} else if kube, _ := k.send("PUT", at, k.want(http.StatusOK, "GET", at, nil)); kube != code {
			t.Errorf("PUT %s: %d, and %d by kube-apiserver: %s", at, code, kube, body)
		}
	}
	// A change of the endpoints drops the rest of their topology.
	var changed []any
	for i, s := range []*server{k, td} {
		o := s.want(http.StatusOK, "GET", fmt.Sprint(slices, "older-", firstSlice+i), nil)
		endpoints := o["endpoints"].([]any)
		endpoints[0].(map[string]any)["hostname"] = "changed"
		o = s.want(http.StatusOK, "PUT", fmt.Sprint(slices, "older-", firstSlice+i), o)
		changed = append(changed, o["endpoints"])
	}
	if !reflect.DeepEqual(changed[0], changed[1]) || strings.Contains(fmt.Sprint(changed), "deprecatedTopology") || !strings.Contains(fmt.Sprint(changed[0]), "nodeName:m") {
		t.Errorf("changed endpoints: %v by kube-apiserver, %v by tidemark", changed[0], changed[1])
	}
}

// olderDevices returns claims, templates and slices as v1.32 and v1.33 stored them.
func olderDevices() []runtime.Object {
	yes, node := true, "n"
	selectors := []resourcev1beta1.DeviceSelector{{CEL: &resourcev1beta1.CELDeviceSelector{Expression: "true"}}}
	tolerations := []resourcev1beta1.DeviceToleration{{Key: "a", Operator: "Exists", Effect: "NoExecute"}}
	size := map[resourcev1beta1.QualifiedName]resource.Quantity{"memory": resource.MustParse("10Gi")}
	requests := [][]resourcev1beta1.DeviceRequest{
		{{Name: "all", DeviceClassName: "c", AllocationMode: "All", Selectors: selectors}},
		{{Name: "two", DeviceClassName: "c", AllocationMode: "ExactCount", Count: 2}, {Name: "admin", DeviceClassName: "c", AllocationMode: "ExactCount", Count: 1, AdminAccess: new(bool), Tolerations: tolerations}},
		{{Name: "sparse", DeviceClassName: "c"}},
		{{Name: "large", DeviceClassName: "c", AllocationMode: "ExactCount", Count: 1, Capacity: &resourcev1beta1.CapacityRequirements{Requests: size}}},
		{{Name: "first", FirstAvailable: []resourcev1beta1.DeviceSubRequest{
			{Name: "a", DeviceClassName: "c", AllocationMode: "ExactCount", Count: 3, Selectors: selectors, Tolerations: tolerations, Capacity: &resourcev1beta1.CapacityRequirements{Requests: size}},
			{Name: "b", DeviceClassName: "d"},
		}}},
	}
	var all []runtime.Object
	for _, r := range requests {
		spec := resourcev1beta1.ResourceClaimSpec{Devices: resourcev1beta1.DeviceClaim{
			Requests:    r,
			Constraints: []resourcev1beta1.DeviceConstraint{{Requests: []string{r[0].Name}, MatchAttribute: new(resourcev1beta1.FullyQualifiedName("d.example.com/a"))}},
			Config:      []resourcev1beta1.DeviceClaimConfiguration{{DeviceConfiguration: resourcev1beta1.DeviceConfiguration{Opaque: &resourcev1beta1.OpaqueDeviceConfiguration{Driver: "d.example.com", Parameters: runtime.RawExtension{Raw: []byte(`{"a":1}`)}}}}},
		}}
		claim := &resourcev1beta1.ResourceClaim{Spec: spec}
		claim.Status.Allocation = &resourcev1beta1.AllocationResult{Devices: resourcev1beta1.DeviceAllocationResult{Results: []resourcev1beta1.DeviceRequestAllocationResult{
			{Request: r[0].Name, Driver: "d.example.com", Pool: "p", Device: "x", AdminAccess: &yes, Tolerations: tolerations},
		}}}
		claim.Status.Devices = []resourcev1beta1.AllocatedDeviceStatus{{Driver: "d.example.com", Pool: "p", Device: "x", NetworkData: &resourcev1beta1.NetworkDeviceData{InterfaceName: "eth0", IPs: []string{"192.0.2.1/24"}}}}
		all = append(all, claim, &resourcev1beta1.ResourceClaimTemplate{Spec: resourcev1beta1.ResourceClaimTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: spec}})
	}
	text := "t"
	device := resourcev1beta1.Device{Name: "x", Basic: &resourcev1beta1.BasicDevice{
		Attributes: map[resourcev1beta1.QualifiedName]resourcev1beta1.DeviceAttribute{"a": {StringValue: &text}, "d.example.com/b": {BoolValue: &yes}},
		Capacity:   map[resourcev1beta1.QualifiedName]resourcev1beta1.DeviceCapacity{"memory": {Value: resource.MustParse("40Gi")}},
	}}
	shared := *device.DeepCopy()
	shared.Name, shared.Basic.NodeName = "y", &node
	shared.Basic.ConsumesCounters = []resourcev1beta1.DeviceCounterConsumption{{CounterSet: "s", Counters: map[string]resourcev1beta1.Counter{"memory": {Value: resource.MustParse("1Gi")}}}}
	shared.Basic.Taints = []resourcev1beta1.DeviceTaint{{Key: "a", Effect: "NoSchedule", TimeAdded: new(metav1.Unix(1600000000, 0))}}
	pool := resourcev1beta1.ResourcePool{Name: "p", Generation: 1, ResourceSliceCount: 1}
	for _, spec := range []resourcev1beta1.ResourceSliceSpec{
		{Driver: "d.example.com", Pool: pool, NodeName: node, Devices: []resourcev1beta1.Device{device, {Name: "none"}}},
		{Driver: "d.example.com", Pool: pool, AllNodes: true, Devices: []resourcev1beta1.Device{device}},
		{Driver: "d.example.com", Pool: pool, PerDeviceNodeSelection: &yes, Devices: []resourcev1beta1.Device{shared}},
		{Driver: "d.example.com", Pool: pool, AllNodes: true, SharedCounters: []resourcev1beta1.CounterSet{{Name: "s", Counters: map[string]resourcev1beta1.Counter{"memory": {Value: resource.MustParse("80Gi")}}}}},
	} {
		all = append(all, &resourcev1beta1.ResourceSlice{Spec: spec})
	}
	return all
}
