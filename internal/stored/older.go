package stored

import (
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// older is how values in a version of an earlier release are read.
type older struct {
	// read returns an object of the version of the store, to which its defaults apply.
	read func(source) (runtime.Object, error)
	// inText: read also takes JSON, YAML and CBOR.
	inText bool
}

// olderVersions differ from the version of the store in fields or in defaults. Those that differ in fields are read in
// protobuf alone, which is what kube-apiserver writes: their API packages would add 0.4 MB to the program.
var olderVersions = map[schema.GroupVersionKind]older{
	{Group: "admissionregistration.k8s.io", Version: "v1beta1", Kind: "MutatingWebhookConfiguration"}: {inText: true, read: sameFields(func(o *admissionregistrationv1.MutatingWebhookConfiguration) {
		for i := range o.Webhooks {
			h := &o.Webhooks[i]
			olderWebhook{&h.FailurePolicy, &h.MatchPolicy, &h.SideEffects, &h.TimeoutSeconds, &h.AdmissionReviewVersions}.setDefaults()
		}
	})},
	{Group: "admissionregistration.k8s.io", Version: "v1beta1", Kind: "ValidatingWebhookConfiguration"}: {inText: true, read: sameFields(func(o *admissionregistrationv1.ValidatingWebhookConfiguration) {
		for i := range o.Webhooks {
			h := &o.Webhooks[i]
			olderWebhook{&h.FailurePolicy, &h.MatchPolicy, &h.SideEffects, &h.TimeoutSeconds, &h.AdmissionReviewVersions}.setDefaults()
		}
	})},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta1", Kind: "PriorityLevelConfiguration"}: {read: readPriorityLevel},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta2", Kind: "PriorityLevelConfiguration"}: {read: readPriorityLevel},
	{Group: "networking.k8s.io", Version: "v1beta1", Kind: "Ingress"}:                               {read: readIngress},
	{Group: "extensions", Version: "v1beta1", Kind: "Ingress"}:                                      {read: readIngress},
	{Group: "discovery.k8s.io", Version: "v1beta1", Kind: "EndpointSlice"}:                          {read: readEndpointSlice},
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
var readPriorityLevel = sameFields(func(o *flowcontrolv1.PriorityLevelConfiguration) {
	if l := o.Spec.Limited; l != nil && l.NominalConcurrencyShares != nil && *l.NominalConcurrencyShares == 0 {
		l.NominalConcurrencyShares = nil
	}
})

// readIngress reads an Ingress whose backends have the name and the port of a service side by side.
func readIngress(s source) (runtime.Object, error) {
	message, err := rewrite(s.message, newBackend, 2, 1) // spec.backend
	if err == nil {
		message, err = rewrite(message, newBackend, 2, 3, 2, 1, 1, 2) // spec.rules.(value).http.paths.backend
	}
	if err != nil {
		return nil, err
	}
	o := new(networkingv1.Ingress)
	if err := o.Unmarshal(message); err != nil {
		return nil, err
	}
	for _, r := range o.Spec.Rules {
		if r.HTTP == nil {
			continue
		}
		for i := range r.HTTP.Paths {
			setDefault(&r.HTTP.Paths[i].PathType, networkingv1.PathTypeImplementationSpecific)
		}
	}
	return o, nil
}

// newBackend moves the name (1) and the port (2) of a service into a message (4).
func newBackend(old []byte) (b []byte, err error) {
	var service networkingv1.IngressServiceBackend
	var port intstr.IntOrString
	for f, err := range fields(old) {
		if err != nil {
			return nil, err
		}
		switch f.number {
		case 1:
			service.Name = string(f.value)
		case 2:
			if err := port.Unmarshal(f.value); err != nil {
				return nil, err
			}
		case 3: // the resource
			b = append(b, f.whole...)
		}
	}
	if service.Name == "" && port == (intstr.IntOrString{}) {
		return b, nil
	}
	service.Port = networkingv1.ServiceBackendPort{Name: port.StrVal, Number: port.IntVal}
	message, err := service.Marshal()
	return appendMessage(b, 4, message), err
}

// readEndpointSlice reads an EndpointSlice whose endpoints have their zone in their topology.
func readEndpointSlice(s source) (runtime.Object, error) {
	message, err := rewrite(s.message, moveHints, 2) // endpoints
	if err != nil {
		return nil, err
	}
	o := new(discoveryv1.EndpointSlice)
	if err := o.Unmarshal(message); err != nil {
		return nil, err
	}
	for i := range o.Endpoints {
		e := &o.Endpoints[i]
		topology := e.DeprecatedTopology
		if zone, ok := topology[corev1.LabelTopologyZone]; ok {
			e.Zone = &zone
			delete(topology, corev1.LabelTopologyZone)
		}
		if node, ok := topology[corev1.LabelHostname]; ok && e.NodeName != nil && *e.NodeName == node {
			delete(topology, corev1.LabelHostname)
		}
		if len(topology) == 0 {
			e.DeprecatedTopology = nil
		}
	}
	return o, nil
}

// moveHints gives the hints of an endpoint their new number.
func moveHints(old []byte) (e []byte, err error) {
	for f, err := range fields(old) {
		switch {
		case err != nil:
			return nil, err
		case f.number == 7:
			e = appendMessage(e, 8, f.value)
		case f.number < 7:
			e = append(e, f.whole...)
		}
	}
	return e, nil
}

// rewrite replaces the messages in a message that the numbers of fields lead to.
func rewrite(message []byte, replace func([]byte) ([]byte, error), path ...protowire.Number) (rewritten []byte, err error) {
	if len(path) == 0 {
		return replace(message)
	}
	for f, err := range fields(message) {
		if err != nil {
			return nil, err
		}
		if f.number != path[0] || f.value == nil {
			rewritten = append(rewritten, f.whole...)
			continue
		}
		inner, err := rewrite(f.value, replace, path[1:]...)
		if err != nil {
			return nil, err
		}
		rewritten = appendMessage(rewritten, f.number, inner)
	}
	return rewritten, nil
}

// field is a field of a message of protobuf.
type field struct {
	number protowire.Number
	whole  []byte // with its tag
	value  []byte // of a message, bytes or text; nil for numbers
}

// fields yields the fields of a message.
func fields(message []byte) iter.Seq2[field, error] {
	return func(yield func(field, error) bool) {
		for len(message) > 0 {
			number, kind, n := protowire.ConsumeField(message)
			if n < 0 {
				yield(field{}, protowire.ParseError(n))
				return
			}
			f := field{number: number, whole: message[:n]}
			if kind == protowire.BytesType {
				_, _, tag := protowire.ConsumeTag(f.whole)
				f.value, _ = protowire.ConsumeBytes(f.whole[tag:])
			}
			if message = message[n:]; !yield(f, nil) {
				return
			}
		}
	}
}

func appendMessage(to []byte, number protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), message)
}
