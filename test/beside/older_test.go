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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestOlderVersions: values that releases before v1.22 have written are shown alike.
func TestOlderVersions(t *testing.T) {
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
		m.SetNamespace("default")
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
	for range 2 {
		put(&slice, "discovery.k8s.io/v1beta1", "EndpointSlice", "/registry/endpointslices/default/", slices)
	}
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
	// A change of the endpoints drops what is left of their topology.
	var changed []any
	for i, s := range []*server{k, td} {
		o := s.want(http.StatusOK, "GET", fmt.Sprint(slices, "older-", len(values)-2+i), nil)
		endpoints := o["endpoints"].([]any)
		endpoints[0].(map[string]any)["hostname"] = "changed"
		o = s.want(http.StatusOK, "PUT", fmt.Sprint(slices, "older-", len(values)-2+i), o)
		changed = append(changed, o["endpoints"])
	}
	if !reflect.DeepEqual(changed[0], changed[1]) || strings.Contains(fmt.Sprint(changed), "deprecatedTopology") || !strings.Contains(fmt.Sprint(changed[0]), "nodeName:m") {
		t.Errorf("changed endpoints: %v by kube-apiserver, %v by tidemark", changed[0], changed[1])
	}
}
