package columns

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// networks are Services and related kinds of the groups core, discovery and networking.
var networks = []kind{
	of(func() []column {
		d := corev1.ServiceSpec{}
		return append(nameAndAge(str("Type", doc(d, "type")), str("Cluster-IP", doc(d, "clusterIP")), str("External-IP", doc(d, "externalIPs")), str("Port(s)", doc(d, "ports"))),
			wide(str("Selector", doc(d, "selector")))...)
	}, service),
	of(func() []column {
		return nameAndAge(str("Endpoints", doc(corev1.Endpoints{}, "subsets"))) //lint:ignore SA1019 it is still served
	}, endpoints),
	of(func() []column {
		d := discoveryv1.EndpointSlice{}
		return nameAndAge(str("AddressType", doc(d, "addressType")), str("Ports", doc(d, "ports")), str("Endpoints", doc(d, "endpoints")))
	}, endpointSlice),
	of(func() []column {
		return nameAndAge(
			str("Class", "The name of the IngressClass resource that should be used for additional configuration"),
			str("Hosts", "Hosts that incoming requests are matched against before the ingress rule"),
			str("Address", "Address is a list containing ingress points for the load-balancer"),
			str("Ports", "Ports of TLS configurations that open"))
	}, ingress),
	of(func() []column {
		return nameAndAge(str("Controller", "Controller that is responsible for handling this class"),
			str("Parameters", "A reference to a resource with additional parameters"))
	}, ingressClass),
	of(func() []column {
		return nameAndAge(str("Pod-Selector", doc(networkingv1.NetworkPolicySpec{}, "podSelector")))
	}, func(o *networkingv1.NetworkPolicy, r *resource.Row) {
		r.String(o.Name)
		selector(r, &o.Spec.PodSelector)
		since(r, o)
	}),
	of(func() []column {
		return nameAndAge(str("CIDRs", doc(networkingv1.ServiceCIDRSpec{}, "cidrs")))
	}, func(o *networkingv1.ServiceCIDR, r *resource.Row) {
		r.String(o.Name)
		joined(r, o.Spec.CIDRs, "")
		since(r, o)
	}),
	// IPAddress has no column for its age, as in kube-apiserver.
	of(func() []column {
		return []column{name, str("ParentRef", doc(networkingv1.IPAddressSpec{}, "parentRef"))}
	}, func(o *networkingv1.IPAddress, r *resource.Row) {
		parent := "<none>"
		if p := o.Spec.ParentRef; p != nil {
			parent = strings.ToLower(schema.GroupResource{Group: p.Group, Resource: p.Resource}.String())
			if p.Namespace != "" {
				parent += "/" + p.Namespace
			}
			parent += "/" + p.Name
		}
		r.String(o.Name)
		r.String(parent)
		since(r, o)
	}),
}

func service(o *corev1.Service, r *resource.Row) {
	ip := "<none>"
	if len(o.Spec.ClusterIPs) > 0 {
		ip = o.Spec.ClusterIPs[0]
	}
	ports := make([]string, len(o.Spec.Ports))
	for i := range ports {
		p := &o.Spec.Ports[i]
		ports[i] = itoa(p.Port)
		if p.NodePort > 0 {
			ports[i] += ":" + itoa(p.NodePort)
		}
		ports[i] += "/" + string(p.Protocol)
	}
	r.String(o.Name)
	r.String(string(o.Spec.Type))
	r.String(ip)
	r.String(external(o))
	joined(r, ports, "<none>")
	since(r, o)
	labels(r, o.Spec.Selector)
}

// external returns the external addresses of a Service.
func external(o *corev1.Service) string {
	ips := o.Spec.ExternalIPs
	switch o.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return o.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		var points []string
		for _, i := range o.Status.LoadBalancer.Ingress {
			points = append(points, point(i.IP, i.Hostname))
		}
		if all := append(distinct(points), ips...); len(all) > 0 {
			return strings.Join(all, ",")
		}
		return "<pending>"
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		if len(ips) == 0 {
			return "<none>"
		}
		return strings.Join(ips, ",")
	}
	return "<unknown>"
}

// point returns the address or the host name of an ingress point of a load balancer.
func point(ip, host string) string {
	if ip != "" {
		return ip
	}
	return host
}

// distinct sorts strings, and removes empty and duplicate ones.
func distinct(s []string) []string {
	slices.Sort(s)
	return slices.DeleteFunc(slices.Compact(s), func(s string) bool { return s == "" })
}

func endpointSlice(o *discoveryv1.EndpointSlice, r *resource.Row) {
	var ports, addresses []string
	for _, p := range o.Ports {
		switch {
		case p.Port != nil:
			ports = append(ports, itoa(*p.Port))
		case p.Name != nil:
			ports = append(ports, *p.Name)
		default:
			ports = append(ports, "*")
		}
	}
	for i := range o.Endpoints {
		addresses = append(addresses, o.Endpoints[i].Addresses...)
	}
	r.String(o.Name)
	r.String(string(o.AddressType))
	r.Or(few(ports, 3, ","), "<unset>")
	r.Or(few(addresses, 3, ","), "<unset>")
	since(r, o)
}

func ingress(o *networkingv1.Ingress, r *resource.Row) {
	var points []string
	for _, i := range o.Status.LoadBalancer.Ingress {
		points = append(points, point(i.IP, i.Hostname))
	}
	ports := "80"
	if len(o.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	r.String(o.Name)
	r.String(deref(o.Spec.IngressClassName, "<none>"))
	r.String(hosts(o.Spec.Rules))
	joined(r, distinct(points), "")
	r.String(ports)
	since(r, o)
}

// hosts returns the hosts of the first rules. Rules without a host count as left out.
func hosts(rules []networkingv1.IngressRule) string {
	const most = 3
	var list []string
	for i := range rules {
		if len(list) == most {
			return strings.Join(list, ",") + " + " + itoa(len(rules)-most) + " more..."
		}
		if rules[i].Host != "" {
			list = append(list, rules[i].Host)
		}
	}
	if len(list) == 0 {
		return "*"
	}
	return strings.Join(list, ",")
}

func ingressClass(o *networkingv1.IngressClass, r *resource.Row) {
	title, parameters := o.Name, "<none>"
	if o.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
		title += " (default)"
	}
	if p := o.Spec.Parameters; p != nil {
		parameters = p.Kind
		if p.APIGroup != nil {
			parameters += "." + *p.APIGroup
		}
		parameters += "/" + p.Name
	}
	r.String(title)
	r.String(o.Spec.Controller)
	r.String(parameters)
	since(r, o)
}
