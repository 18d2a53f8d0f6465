package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

var schemes = []corev1.URIScheme{corev1.URISchemeHTTP, corev1.URISchemeHTTPS}

func (r *rules) probes(c *corev1.Container, at *field.Path) {
	if p := c.LivenessProbe; p != nil {
		r.probe(p, at.Child("livenessProbe"))
		r.onceIsEnough(p, at, "livenessProbe")
	}
	if p := c.ReadinessProbe; p != nil {
		r.probe(p, at.Child("readinessProbe"))
		if p.TerminationGracePeriodSeconds != nil {
			r.Invalid(at.Child("readinessProbe"), "terminationGracePeriodSeconds", p.TerminationGracePeriodSeconds, "must not be set for readinessProbes")
		}
	}
	if p := c.StartupProbe; p != nil {
		r.probe(p, at.Child("startupProbe"))
		r.onceIsEnough(p, at, "startupProbe")
	}
}

func (r *rules) onceIsEnough(p *corev1.Probe, at *field.Path, name string) {
	if p.SuccessThreshold != 1 {
		r.Invalid(at.Child(name), "successThreshold", p.SuccessThreshold, "must be 1")
	}
}

func (r *rules) probe(p *corev1.Probe, at *field.Path) {
	r.handler(handler{exec: p.Exec, httpGet: p.HTTPGet, tcpSocket: p.TCPSocket, grpc: p.GRPC}, at)
	r.NonNegative(at, "initialDelaySeconds", int64(p.InitialDelaySeconds))
	r.NonNegative(at, "timeoutSeconds", int64(p.TimeoutSeconds))
	r.NonNegative(at, "periodSeconds", int64(p.PeriodSeconds))
	r.NonNegative(at, "successThreshold", int64(p.SuccessThreshold))
	r.NonNegative(at, "failureThreshold", int64(p.FailureThreshold))
	if s := p.TerminationGracePeriodSeconds; s != nil && *s <= 0 {
		r.Invalid(at, "terminationGracePeriodSeconds", *s, "must be greater than 0")
	}
}

func (r *rules) lifecycle(l *corev1.Lifecycle, at *field.Path) {
	if l == nil {
		return
	}
	for _, on := range [...]struct {
		name string
		do   *corev1.LifecycleHandler
	}{{"postStart", l.PostStart}, {"preStop", l.PreStop}} {
		if h := on.do; h != nil {
			r.handler(handler{exec: h.Exec, httpGet: h.HTTPGet, tcpSocket: h.TCPSocket, sleep: h.Sleep}, at.Child("lifecycle", on.name))
		}
	}
}

// handler is the action of a probe or of a lifecycle hook.
type handler struct {
	exec      *corev1.ExecAction
	httpGet   *corev1.HTTPGetAction
	tcpSocket *corev1.TCPSocketAction
	grpc      *corev1.GRPCAction
	sleep     *corev1.SleepAction
}

func (r *rules) handler(h handler, at *field.Path) {
	found := false
	first := func(set bool, name string) bool {
		if set && found {
			r.Forbidden(at, name, "may not specify more than 1 handler type")
			return false
		}
		found = found || set
		return set
	}
	if first(h.exec != nil, "exec") && len(h.exec.Command) == 0 {
		r.Required(at.Child("exec"), "command", "")
	}
	if first(h.httpGet != nil, "httpGet") {
		r.httpGet(h.httpGet, at.Child("httpGet"))
	}
	if first(h.tcpSocket != nil, "tcpSocket") {
		r.portOrName(at.Child("tcpSocket"), "port", h.tcpSocket.Port)
	}
	if first(h.grpc != nil, "grpc") {
		r.portOrName(at.Child("grpc"), "port", intstr.FromInt32(h.grpc.Port))
	}
	if first(h.sleep != nil, "sleep") {
		if s, most := h.sleep.Seconds, r.spec.TerminationGracePeriodSeconds; s < 0 || s > *most {
			r.Invalid(at, "sleep", s, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *most))
		}
	}
	if !found {
		r.Required(at, "", "must specify a handler type")
	}
}

func (r *rules) httpGet(h *corev1.HTTPGetAction, at *field.Path) {
	if h.Path == "" {
		r.Required(at, "path", "")
	}
	r.portOrName(at, "port", h.Port)
	check.Enum(r.Errors, at, "scheme", h.Scheme, schemes)
	for i := range h.HTTPHeaders {
		r.Each(at, "httpHeaders", h.HTTPHeaders[i].Name, validation.IsHTTPHeaderName(h.HTTPHeaders[i].Name))
	}
}

func (r *rules) portOrName(at *field.Path, name string, p intstr.IntOrString) {
	if p.Type == intstr.Int {
		if p.IntVal < 1 || p.IntVal > 65535 {
			r.Each(at, name, int(p.IntVal), validation.IsValidPortNum(int(p.IntVal)))
		}
		return
	}
	r.Each(at, name, p.StrVal, validation.IsValidPortName(p.StrVal))
}
