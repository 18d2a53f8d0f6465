package etcdvalue

import (
	"iter"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// older is how values in a version of an earlier release are read, into an object of the version of the store.
type older struct {
	// inText: JSON, YAML and CBOR are read, too. It needs the same fields.
	inText bool
	// changed are the messages of protobuf that are replaced before.
	changed []changed
	// complete adds the values that the version implies, to which the defaults of the store's
	// version apply; nil: nothing.
	complete func(runtime.Object)
}

// changed are messages that the numbers of fields lead to.
type changed struct {
	replace func([]byte) ([]byte, error)
	path    []protowire.Number
}

// at returns the messages at a path of field numbers.
func at(replace func([]byte) ([]byte, error), path ...protowire.Number) changed {
	return changed{replace, path}
}

// olderVersions differ from the version of the store in fields or in defaults. Those that differ in
// fields are read in protobuf alone, in which kube-apiserver writes them: their API packages would
// add 0.4 MB to the program.
var olderVersions = map[schema.GroupVersionKind]older{
	{Group: "admissionregistration.k8s.io", Version: "v1alpha1", Kind: "MutatingAdmissionPolicyBinding"}: {inText: true, complete: func(o runtime.Object) {
		denyWithoutParams(o.(*admissionregistrationv1.MutatingAdmissionPolicyBinding).Spec.ParamRef)
	}},
	{Group: "admissionregistration.k8s.io", Version: "v1alpha1", Kind: "ValidatingAdmissionPolicyBinding"}: {inText: true, complete: func(o runtime.Object) {
		denyWithoutParams(o.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding).Spec.ParamRef)
	}},
	{Group: "admissionregistration.k8s.io", Version: "v1beta1", Kind: "MutatingWebhookConfiguration"}: {inText: true, complete: func(o runtime.Object) {
		hooks := o.(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks
		for i := range hooks {
			h := &hooks[i]
			olderWebhook{&h.FailurePolicy, &h.MatchPolicy, &h.SideEffects, &h.TimeoutSeconds, &h.AdmissionReviewVersions}.setDefaults()
		}
	}},
	{Group: "admissionregistration.k8s.io", Version: "v1beta1", Kind: "ValidatingWebhookConfiguration"}: {inText: true, complete: func(o runtime.Object) {
		hooks := o.(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks
		for i := range hooks {
			h := &hooks[i]
			olderWebhook{&h.FailurePolicy, &h.MatchPolicy, &h.SideEffects, &h.TimeoutSeconds, &h.AdmissionReviewVersions}.setDefaults()
		}
	}},
	{Group: "apps", Version: "v1beta1", Kind: "Deployment"}: {inText: true, complete: func(o runtime.Object) {
		d := o.(*appsv1.Deployment)
		selectTemplate(&d.ObjectMeta, &d.Spec.Selector, &d.Spec.Template)
		setDefault(&d.Spec.RevisionHistoryLimit, 2)
	}},
	{Group: "apps", Version: "v1beta1", Kind: "StatefulSet"}: {inText: true, complete: func(o runtime.Object) {
		set := o.(*appsv1.StatefulSet)
		selectTemplate(&set.ObjectMeta, &set.Spec.Selector, &set.Spec.Template)
		if set.Spec.UpdateStrategy.Type == "" {
			set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
		}
	}},
	{Group: "discovery.k8s.io", Version: "v1beta1", Kind: "EndpointSlice"}:                          {changed: []changed{at(moveHints, 2)}, complete: takeTopology}, // endpoints
	{Group: "extensions", Version: "v1beta1", Kind: "Ingress"}:                                      olderIngress,
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta1", Kind: "PriorityLevelConfiguration"}: olderPriorityLevel,
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta2", Kind: "PriorityLevelConfiguration"}: olderPriorityLevel,
	{Group: "networking.k8s.io", Version: "v1beta1", Kind: "Ingress"}:                               olderIngress,
	{Group: "policy", Version: "v1beta1", Kind: "PodDisruptionBudget"}:                              {inText: true, complete: selectNone},
	{Group: "rbac.authorization.k8s.io", Version: "v1alpha1", Kind: "ClusterRole"}:                  {changed: []changed{at(newRule, 2)}},                            // rules
	{Group: "rbac.authorization.k8s.io", Version: "v1alpha1", Kind: "ClusterRoleBinding"}:           {changed: []changed{at(newSubject, 2)}},                         // subjects
	{Group: "rbac.authorization.k8s.io", Version: "v1alpha1", Kind: "Role"}:                         {changed: []changed{at(newRule, 2)}},                            // rules
	{Group: "rbac.authorization.k8s.io", Version: "v1alpha1", Kind: "RoleBinding"}:                  {changed: []changed{at(newSubject, 2)}},                         // subjects
	{Group: "resource.k8s.io", Version: "v1beta1", Kind: "ResourceClaim"}:                           {changed: []changed{at(newDeviceRequest, 2, 1, 1)}},             // spec.devices.requests
	{Group: "resource.k8s.io", Version: "v1beta1", Kind: "ResourceClaimTemplate"}:                   {changed: []changed{at(newDeviceRequest, 2, 2, 1, 1)}},          // spec.spec.devices.requests
	{Group: "resource.k8s.io", Version: "v1beta1", Kind: "ResourceSlice"}:                           {changed: []changed{at(newDevice, 2, 6)}, complete: unsetNodes}, // spec.devices
}

// emptySelectorLabel is the label by which a selector of policy/v1 selects the same as an empty one of v1beta1, which selects no
// Pods.
const emptySelectorLabel = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

// selectNone gives a PodDisruptionBudget of v1beta1 the selector of v1 that selects the same Pods.
func selectNone(o runtime.Object) {
	s := o.(*policyv1.PodDisruptionBudget).Spec.Selector
	if s == nil {
		return
	}
	none := len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
	delete(s.MatchLabels, emptySelectorLabel)
	s.MatchExpressions = slices.DeleteFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key == emptySelectorLabel })
	if none {
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: emptySelectorLabel, Operator: metav1.LabelSelectorOpExists}}
	}
}

// olderIngress is an Ingress whose backends have the name and the port of a service side by side.
var olderIngress = older{
	changed: []changed{at(newBackend, 2, 1), at(newBackend, 2, 3, 2, 1, 1, 2)}, // spec.backend, spec.rules.(value).http.paths.backend
	complete: func(o runtime.Object) {
		for _, r := range o.(*networkingv1.Ingress).Spec.Rules {
			if r.HTTP == nil {
				continue
			}
			for i := range r.HTTP.Paths {
				setDefault(&r.HTTP.Paths[i].PathType, networkingv1.PathTypeImplementationSpecific)
			}
		}
	},
}

// olderPriorityLevel is a priority level whose shares have another name in JSON, and in which zero shares are the
// default. The messages of protobuf are alike.
var olderPriorityLevel = older{complete: func(o runtime.Object) {
	l := o.(*flowcontrolv1.PriorityLevelConfiguration).Spec.Limited
	if l != nil && l.NominalConcurrencyShares != nil && *l.NominalConcurrencyShares == 0 {
		l.NominalConcurrencyShares = nil
	}
}}

// read reads a value into an empty object of the version of the store.
func (v *older) read(s source, o runtime.Object) error {
	if len(v.changed) == 0 {
		if err := s.into(o); err != nil {
			return err
		}
	} else if err := v.readChanged(s.message, o); err != nil {
		return err
	}
	if v.complete != nil {
		v.complete(o)
	}
	return nil
}

func (v *older) readChanged(message []byte, o runtime.Object) (err error) {
	for _, c := range v.changed {
		if message, err = rewrite(message, c.replace, c.path...); err != nil {
			return err
		}
	}
	return o.(interface{ Unmarshal([]byte) error }).Unmarshal(message)
}

// selectTemplate makes the labels and the selector of an object those of its template if it has none.
func selectTemplate(o *metav1.ObjectMeta, selector **metav1.LabelSelector, template *corev1.PodTemplateSpec) {
	if len(template.Labels) == 0 {
		return
	}
	if len(o.Labels) == 0 {
		o.Labels = maps.Clone(template.Labels)
	}
	if *selector == nil {
		*selector = &metav1.LabelSelector{MatchLabels: maps.Clone(template.Labels)}
	}
}

// denyWithoutParams sets the default action of a binding whose params are missing.
func denyWithoutParams(r *admissionregistrationv1.ParamRef) {
	if r != nil {
		setDefault(&r.ParameterNotFoundAction, admissionregistrationv1.DenyAction)
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

// takeTopology takes the zone of endpoints from their topology.
func takeTopology(o runtime.Object) {
	endpoints := o.(*discoveryv1.EndpointSlice).Endpoints
	for i := range endpoints {
		e := &endpoints[i]
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
}

// moveHints gives the hints of an endpoint their new number.
func moveHints(old []byte) ([]byte, error) {
	return renumber(old, endpointFields)
}

// newRule renumbers the fields of a rule of RBAC.
func newRule(old []byte) ([]byte, error) {
	return renumber(old, ruleFields)
}

// newSubject makes the group of a subject of RBAC from its API version (2). The user "*" was all users.
func newSubject(old []byte) ([]byte, error) {
	var o rbacv1.Subject
	if err := o.Unmarshal(old); err != nil {
		return nil, err
	}
	o.APIGroup = schema.FromAPIVersionAndKind(o.APIGroup, o.Kind).Group
	switch {
	case o.Kind == rbacv1.UserKind && o.Name == "*":
		o.Kind, o.Name, o.APIGroup = rbacv1.GroupKind, "system:authenticated", rbacv1.GroupName
	case o.Kind == rbacv1.UserKind, o.Kind == rbacv1.GroupKind:
		o.APIGroup = rbacv1.GroupName
	case o.Kind == rbacv1.ServiceAccountKind:
		o.APIGroup = ""
	}
	return o.Marshal()
}

// unsetNodes unsets fields of a ResourceSlice that v1beta1 writes even if they have no value.
func unsetNodes(o runtime.Object) {
	spec := &o.(*resourcev1.ResourceSlice).Spec
	if spec.NodeName != nil && *spec.NodeName == "" {
		spec.NodeName = nil
	}
	if spec.AllNodes != nil && !*spec.AllNodes {
		spec.AllNodes = nil
	}
}

// newDevice moves the fields of a device's message (2) into the device.
func newDevice(old []byte) (d []byte, err error) {
	for f, err := range fields(old) {
		if err != nil {
			return nil, err
		}
		if f.number != 2 {
			d = append(d, f.whole...)
			continue
		}
		for f, err := range fields(f.value) {
			if err != nil {
				return nil, err
			}
			d = f.appendAs(d, f.number+1)
		}
	}
	return d, nil
}

// newDeviceRequest moves the fields of a request for devices that describe exactly one kind of them into a message (2).
func newDeviceRequest(old []byte) (r []byte, err error) {
	var exactly []byte
	for f, err := range fields(old) {
		switch {
		case err != nil:
			return nil, err
		case f.number == 1:
			r = append(r, f.whole...)
		case f.number == 7: // firstAvailable
			alternative, err := renumber(f.value, alternativeFields)
			if err != nil {
				return nil, err
			}
			r = appendMessage(r, 3, alternative)
		case f.empty() && (f.number == 2 || f.number == 4 || f.number == 5): // written even if they have no value
		default:
			if number, ok := exactFields[f.number]; ok {
				exactly = f.appendAs(exactly, number)
			}
		}
	}
	if len(exactly) > 0 {
		r = appendMessage(r, 2, exactly)
	}
	return r, nil
}

// The new numbers of fields, by the old ones.
var (
	endpointFields    = map[protowire.Number]protowire.Number{1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 8}
	ruleFields        = map[protowire.Number]protowire.Number{1: 1, 3: 2, 4: 3, 5: 4, 6: 5}
	alternativeFields = map[protowire.Number]protowire.Number{1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 7: 6, 8: 7} // of a request for devices
	exactFields       = map[protowire.Number]protowire.Number{2: 1, 3: 2, 4: 3, 5: 4, 6: 5, 8: 6, 9: 7} // of one for a kind of them
)

// renumber gives the fields of a message new numbers. Fields without one are dropped.
func renumber(message []byte, numbers map[protowire.Number]protowire.Number) (renumbered []byte, err error) {
	for f, err := range fields(message) {
		if err != nil {
			return nil, err
		}
		if number, ok := numbers[f.number]; ok {
			renumbered = f.appendAs(renumbered, number)
		}
	}
	return renumbered, nil
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

// appendAs appends the field under another number.
func (f *field) appendAs(to []byte, number protowire.Number) []byte {
	_, kind, tag := protowire.ConsumeTag(f.whole)
	return append(protowire.AppendTag(to, number, kind), f.whole[tag:]...)
}

// empty reports whether the value is zero, or has no bytes.
func (f *field) empty() bool { return f.whole[len(f.whole)-1] == 0 && len(f.value) == 0 }

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
