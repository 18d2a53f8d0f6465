package podspec

import (
	"reflect"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

var (
	protocols           = []corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}
	pullPolicies        = []corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}
	terminationPolicies = []corev1.TerminationMessagePolicy{corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError}
	resizeResources     = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
	resizePolicies      = []corev1.ResourceResizeRestartPolicy{corev1.NotRequired, corev1.RestartContainer}
	containerRestarts   = []corev1.ContainerRestartPolicy{corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure}
	restartActions      = []corev1.ContainerRestartRuleAction{corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers}
	exitCodeOperators   = []corev1.ContainerRestartRuleOnExitCodesOperator{corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn}
)

// The limits of restart rules.
const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

func (r *rules) checkContainers(at *field.Path) {
	all := r.spec.Containers
	if len(all) == 0 {
		r.Required(at, "", "")
		return
	}
	for i := range all {
		c, at := &all[i], at.Index(i)
		r.container(c, at)
		if r.containers.Again(c.Name) {
			r.Duplicate(at, "name", c.Name)
		}
		r.lifecycle(c.Lifecycle, at)
		r.probes(c, at)
		r.restartPolicy(c, at)
	}
	r.hostPorts(all, at)
}

func (r *rules) checkInitContainers(at *field.Path) {
	all := r.spec.InitContainers
	for i := range all {
		c, at, list := &all[i], at.Index(i), at
		r.container(c, at)
		r.initRestartPolicy(c, at)
		if r.containers.Has(c.Name) || c.Name != "" && r.containers.Again(c.Name) {
			r.Duplicate(at, "name", c.Name)
		}
		// Init containers run one after another, and may share ports. As in kube-apiserver, the
		// index in the errors is always 0.
		r.hostPorts(all[i:i+1], list)
		if IsSidecar(c) {
			r.lifecycle(c.Lifecycle, at)
			r.probes(c, at)
			continue
		}
		const only = "may not be set for init containers without restartPolicy=Always"
		if c.Lifecycle != nil {
			r.Forbidden(at, "lifecycle", only)
		}
		if c.LivenessProbe != nil {
			r.Forbidden(at, "livenessProbe", only)
		}
		if c.ReadinessProbe != nil {
			r.Forbidden(at, "readinessProbe", only)
		}
		if c.StartupProbe != nil {
			r.Forbidden(at, "startupProbe", only)
		}
		for j, p := range c.ResizePolicy {
			if p.RestartPolicy == corev1.RestartContainer {
				r.Invalid(at.Child("resizePolicy").Index(j), "restartPolicy", p.RestartPolicy, "must not be set to 'RestartContainer' for non-sidecar initContainers")
			}
		}
	}
}

func (r *rules) checkEphemeral(at *field.Path) {
	all := r.spec.EphemeralContainers
	if len(all) == 0 {
		return
	}
	var names check.Seen[string] // besides r.containers, which they can target
	// As in kube-apiserver, the name of an init container counts even if it is empty.
	for i := range r.spec.InitContainers {
		names.Again(r.spec.InitContainers[i].Name)
	}
	for i := range all {
		e, at := &all[i], at.Index(i)
		c := (*corev1.Container)(&e.EphemeralContainerCommon)
		r.container(c, at)
		ValidateImage(r.Errors, c, at)
		if r.containers.Has(e.Name) || names.Again(e.Name) {
			r.Duplicate(at, "name", e.Name)
		}
		if t := e.TargetContainerName; t != "" && !r.containers.Has(t) {
			r.NotFound(at, "targetContainerName", t)
		}
		r.ephemeralForbidden(c, at)
	}
}

// ephemeralForbidden rejects fields that ephemeral containers do not support.
func (r *rules) ephemeralForbidden(c *corev1.Container, at *field.Path) {
	const never = "cannot be set for an Ephemeral Container"
	for _, part := range [...]struct {
		name string
		set  bool
	}{
		{"ports", c.Ports != nil},
		{"resources", !reflect.DeepEqual(c.Resources, corev1.ResourceRequirements{})},
		{"resizePolicy", c.ResizePolicy != nil},
		{"restartPolicy", c.RestartPolicy != nil},
		{"restartPolicyRules", c.RestartPolicyRules != nil},
		{"livenessProbe", c.LivenessProbe != nil},
		{"readinessProbe", c.ReadinessProbe != nil},
		{"startupProbe", c.StartupProbe != nil},
		{"lifecycle", c.Lifecycle != nil},
	} {
		if part.set {
			r.Forbidden(at, part.name, never)
		}
	}
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].SubPath != "" {
			r.Forbidden(at.Child("volumeMounts").Index(i), "subPath", never)
		}
		if c.VolumeMounts[i].SubPathExpr != "" {
			r.Forbidden(at.Child("volumeMounts").Index(i), "subPathExpr", never)
		}
	}
}

// container checks the fields that all sorts of containers share.
func (r *rules) container(c *corev1.Container, at *field.Path) {
	if c.Name == "" {
		r.Required(at, "name", "")
	} else {
		r.Each(at, "name", c.Name, check.LabelFaults(c.Name))
	}
	if c.Image == "" {
		r.Required(at, "image", "")
	}
	check.RequiredEnum(r.Errors, at, "terminationMessagePolicy", c.TerminationMessagePolicy, terminationPolicies)
	r.ports(c.Ports, at)
	r.env(c.Env, at)
	r.envFrom(c.EnvFrom, at)
	r.mounts(c, at)
	r.devices(c, at)
	check.RequiredEnum(r.Errors, at, "imagePullPolicy", c.ImagePullPolicy, pullPolicies)
	r.resources(&c.Resources, at.Child("resources"), check.ContainerResourceName)
	r.resizePolicy(c, at)
	r.securityContext(c.SecurityContext, at)
}

// ValidateImage checks the image of a container of a Pod. The image of a template is not checked:
// it may be set later.
func ValidateImage(errs *check.Errors, c *corev1.Container, at *field.Path) {
	if strings.TrimSpace(c.Image) != c.Image {
		errs.Invalid(at, "image", c.Image, "must not have leading or trailing whitespace")
	}
}

func (r *rules) ports(all []corev1.ContainerPort, at *field.Path) {
	var names check.Seen[string]
	for i := range all {
		p, at := &all[i], at.Child("ports").Index(i)
		if p.Name != "" {
			if faults := validation.IsValidPortName(p.Name); len(faults) > 0 {
				r.Each(at, "name", p.Name, faults)
			} else if names.Again(p.Name) {
				r.Duplicate(at, "name", p.Name)
			}
		}
		if p.ContainerPort == 0 {
			r.Required(at, "containerPort", "")
		} else {
			r.port(at, "containerPort", p.ContainerPort)
		}
		if p.HostPort != 0 {
			r.port(at, "hostPort", p.HostPort)
		}
		check.RequiredEnum(r.Errors, at, "protocol", p.Protocol, protocols)
	}
}

func (r *rules) port(at *field.Path, name string, n int32) {
	if n < 1 || n > 65535 {
		r.Each(at, name, n, validation.IsValidPortNum(int(n)))
	}
}

// hostPorts checks that host ports are unique.
func (r *rules) hostPorts(all []corev1.Container, at *field.Path) {
	type key struct {
		protocol corev1.Protocol
		ip       string
		port     int32
	}
	var taken map[key]bool
	for i := range all {
		for j := range all[i].Ports {
			p := &all[i].Ports[j]
			if p.HostPort == 0 {
				continue
			}
			k := key{p.Protocol, p.HostIP, p.HostPort}
			if taken[k] {
				shown := string(p.Protocol) + "/" + p.HostIP + "/" + strconv.Itoa(int(p.HostPort))
				r.Duplicate(at.Index(i).Child("ports").Index(j), "hostPort", shown)
				continue
			}
			if taken == nil {
				taken = map[key]bool{}
			}
			taken[k] = true
		}
	}
}

func (r *rules) resizePolicy(c *corev1.Container, at *field.Path) {
	var names check.Seen[string]
	for i, p := range c.ResizePolicy {
		at := at.Child("resizePolicy")
		if names.Again(string(p.ResourceName)) {
			r.Duplicate(at.Index(i), "", p.ResourceName)
		}
		check.RequiredEnum(r.Errors, at, "", p.ResourceName, resizeResources)
		check.RequiredEnum(r.Errors, at, "", p.RestartPolicy, resizePolicies)
		if r.spec.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			r.Invalid(at, "", p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
		}
	}
}

func (r *rules) initRestartPolicy(c *corev1.Container, at *field.Path) {
	if c.RestartPolicy == nil {
		if len(c.RestartPolicyRules) > 0 {
			r.Required(at, "restartPolicy", "must specify restartPolicy when restart rules are used")
		}
		return
	}
	r.restartPolicy(c, at)
}

func (r *rules) restartPolicy(c *corev1.Container, at *field.Path) {
	rules := c.RestartPolicyRules
	switch {
	case c.RestartPolicy != nil:
		check.Enum(r.Errors, at, "restartPolicy", *c.RestartPolicy, containerRestarts)
	case len(rules) == 0:
		return
	default:
		r.Required(at, "restartPolicy", "must specify restartPolicy when restart rules are used")
	}
	if len(rules) > maxRestartRules {
		r.Add(field.TooMany(at.Child("restartPolicyRules"), len(rules), maxRestartRules))
	}
	for i := range rules {
		rule, at := &rules[i], at.Child("restartPolicyRules").Index(i)
		check.Enum(r.Errors, at, "action", rule.Action, restartActions)
		if rule.ExitCodes == nil {
			r.Required(at, "exitCodes", "must be specified")
			continue
		}
		check.Enum(r.Errors, at.Child("exitCodes"), "operator", rule.ExitCodes.Operator, exitCodeOperators)
		if n := len(rule.ExitCodes.Values); n > maxExitCodes {
			r.Add(field.TooMany(at.Child("exitCodes", "values"), n, maxExitCodes))
		}
	}
}
