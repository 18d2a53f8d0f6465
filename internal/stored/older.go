package stored

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// olderVersions read values in versions of earlier releases that differ from the version of the store in fields or
// in defaults. They return objects of that version, to which its defaults apply.
var olderVersions = map[schema.GroupVersionKind]func(source) (runtime.Object, error){
	{Group: "admissionregistration.k8s.io", Version: "v1beta1", Kind: "MutatingWebhookConfiguration"}: sameFields(func(o *admissionregistrationv1.MutatingWebhookConfiguration) {
		for i := range o.Webhooks {
			h := &o.Webhooks[i]
			olderWebhook{&h.FailurePolicy, &h.MatchPolicy, &h.SideEffects, &h.TimeoutSeconds, &h.AdmissionReviewVersions}.setDefaults()
		}
	}),
	{Group: "admissionregistration.k8s.io", Version: "v1beta1", Kind: "ValidatingWebhookConfiguration"}: sameFields(func(o *admissionregistrationv1.ValidatingWebhookConfiguration) {
		for i := range o.Webhooks {
			h := &o.Webhooks[i]
			olderWebhook{&h.FailurePolicy, &h.MatchPolicy, &h.SideEffects, &h.TimeoutSeconds, &h.AdmissionReviewVersions}.setDefaults()
		}
	}),
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta1", Kind: "PriorityLevelConfiguration"}: readPriorityLevel,
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta2", Kind: "PriorityLevelConfiguration"}: readPriorityLevel,
	{Group: "networking.k8s.io", Version: "v1beta1", Kind: "Ingress"}:                               readIngress,
	{Group: "extensions", Version: "v1beta1", Kind: "Ingress"}:                                      readIngress,
	{Group: "discovery.k8s.io", Version: "v1beta1", Kind: "EndpointSlice"}:                          readEndpointSlice,
}

// sameFields reads a value whose fields are those of T, and sets the defaults of its version.
func sameFields[T any, P interface {
	*T
	runtime.Object
}](setDefaults func(P)) func(source) (runtime.Object, error) {
	return func(s source) (runtime.Object, error) {
		o := P(new(T))
		if err := s.into(o); err != nil {
			return nil, err
		}
		setDefaults(o)
		return o, nil
	}
}

// olderWebhook has the fields of a webhook whose defaults are not those of v1beta1.
type olderWebhook struct {
	failure  **admissionregistrationv1.FailurePolicyType
	match    **admissionregistrationv1.MatchPolicyType
	effects  **admissionregistrationv1.SideEffectClass
	timeout  **int32
	versions *[]string
}

func (w olderWebhook) setDefaults() {
	setDefault(w.failure, admissionregistrationv1.Ignore)
	setDefault(w.match, admissionregistrationv1.Exact)
	setDefault(w.effects, admissionregistrationv1.SideEffectClassUnknown)
	setDefault(w.timeout, 30)
	if len(*w.versions) == 0 {
		*w.versions = []string{"v1beta1"}
	}
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// readPriorityLevel reads a priority level whose shares have another name in JSON, and in which zero shares are the
// default. The messages of protobuf are alike.
func readPriorityLevel(s source) (runtime.Object, error) {
	if !s.protobuf {
		return nil, &VersionError{"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", s.kind}
	}
	return sameFields(func(o *flowcontrolv1.PriorityLevelConfiguration) {
		if l := o.Spec.Limited; l != nil && l.NominalConcurrencyShares != nil && *l.NominalConcurrencyShares == 0 {
			l.NominalConcurrencyShares = nil
		}
	})(s)
}

// readIngress reads an Ingress whose backends have the name and the port of a service side by side.
func readIngress(s source) (runtime.Object, error) {
	var old networkingv1beta1.Ingress
	if err := s.into(&old); err != nil {
		return nil, err
	}
	o := &networkingv1.Ingress{ObjectMeta: old.ObjectMeta}
	o.Spec.IngressClassName = old.Spec.IngressClassName
	if b := old.Spec.Backend; b != nil {
		backend := newBackend(b)
		o.Spec.DefaultBackend = &backend
	}
	for _, t := range old.Spec.TLS {
		o.Spec.TLS = append(o.Spec.TLS, networkingv1.IngressTLS(t))
	}
	for _, r := range old.Spec.Rules {
		rule := networkingv1.IngressRule{Host: r.Host}
		if r.HTTP != nil {
			rule.HTTP = new(networkingv1.HTTPIngressRuleValue)
			for _, p := range r.HTTP.Paths {
				path := networkingv1.HTTPIngressPath{Path: p.Path, PathType: (*networkingv1.PathType)(p.PathType), Backend: newBackend(&p.Backend)}
				setDefault(&path.PathType, networkingv1.PathTypeImplementationSpecific)
				rule.HTTP.Paths = append(rule.HTTP.Paths, path)
			}
		}
		o.Spec.Rules = append(o.Spec.Rules, rule)
	}
	for _, b := range old.Status.LoadBalancer.Ingress {
		balancer := networkingv1.IngressLoadBalancerIngress{IP: b.IP, Hostname: b.Hostname}
		for _, p := range b.Ports {
			balancer.Ports = append(balancer.Ports, networkingv1.IngressPortStatus(p))
		}
		o.Status.LoadBalancer.Ingress = append(o.Status.LoadBalancer.Ingress, balancer)
	}
	return o, nil
}

func newBackend(old *networkingv1beta1.IngressBackend) networkingv1.IngressBackend {
	b := networkingv1.IngressBackend{Resource: old.Resource}
	if p := old.ServicePort; old.ServiceName != "" || p != (intstr.IntOrString{}) {
		b.Service = &networkingv1.IngressServiceBackend{Name: old.ServiceName, Port: networkingv1.ServiceBackendPort{Name: p.StrVal, Number: p.IntVal}}
	}
	return b
}

// readEndpointSlice reads an EndpointSlice whose endpoints have their zone in their topology.
func readEndpointSlice(s source) (runtime.Object, error) {
	var old discoveryv1beta1.EndpointSlice
	if err := s.into(&old); err != nil {
		return nil, err
	}
	o := &discoveryv1.EndpointSlice{ObjectMeta: old.ObjectMeta, AddressType: discoveryv1.AddressType(old.AddressType)}
	for _, p := range old.Ports {
		o.Ports = append(o.Ports, discoveryv1.EndpointPort(p))
	}
	for _, e := range old.Endpoints {
		o.Endpoints = append(o.Endpoints, newEndpoint(&e))
	}
	return o, nil
}

func newEndpoint(old *discoveryv1beta1.Endpoint) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses: old.Addresses, Conditions: discoveryv1.EndpointConditions(old.Conditions), Hostname: old.Hostname,
		TargetRef: old.TargetRef, NodeName: old.NodeName,
	}
	if old.Hints != nil {
		e.Hints = new(discoveryv1.EndpointHints)
		for _, z := range old.Hints.ForZones {
			e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone(z))
		}
		for _, n := range old.Hints.ForNodes {
			e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode(n))
		}
	}
	for key, value := range old.Topology {
		switch {
		case key == corev1.LabelTopologyZone:
			e.Zone = &value
		case key == corev1.LabelHostname && old.NodeName != nil && *old.NodeName == value: // the name of the node
		case e.DeprecatedTopology == nil:
			e.DeprecatedTopology = map[string]string{key: value}
		default:
			e.DeprecatedTopology[key] = value
		}
	}
	return e
}
