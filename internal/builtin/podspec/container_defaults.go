package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// defaultEphemeral sets the defaults of an ephemeral container.
func defaultEphemeral(c *corev1.EphemeralContainer) {
	defaultContainer((*corev1.Container)(&c.EphemeralContainerCommon))
}

func defaultContainer(c *corev1.Container) {
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = pullPolicy(c.Image)
	}
	check.SetIfZero(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	check.SetIfZero(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		check.SetIfZero(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from == nil {
			continue
		}
		defaultFieldRef(from.FieldRef)
		if from.FileKeyRef != nil && from.FileKeyRef.Optional == nil {
			from.FileKeyRef.Optional = ptr.To(false)
		}
	}
	check.RoundUp(c.Resources.Limits)
	check.RoundUp(c.Resources.Requests)
	defaultProbe(c.LivenessProbe)
	defaultProbe(c.ReadinessProbe)
	defaultProbe(c.StartupProbe)
	if l := c.Lifecycle; l != nil {
		if l.PostStart != nil {
			defaultHTTPGet(l.PostStart.HTTPGet)
		}
		if l.PreStop != nil {
			defaultHTTPGet(l.PreStop.HTTPGet)
		}
	}
}

// pullPolicy returns the default pull policy of an image: Always for a tag that may move.
func pullPolicy(image string) corev1.PullPolicy {
	if isLatest(image) {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultFieldRef(f *corev1.ObjectFieldSelector) {
	if f != nil {
		check.SetIfZero(&f.APIVersion, "v1")
	}
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	check.SetIfZero(&p.TimeoutSeconds, 1)
	check.SetIfZero(&p.PeriodSeconds, 10)
	check.SetIfZero(&p.SuccessThreshold, 1)
	check.SetIfZero(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil && p.GRPC.Service == nil {
		p.GRPC.Service = ptr.To("")
	}
}

func defaultHTTPGet(h *corev1.HTTPGetAction) {
	if h != nil {
		check.SetIfZero(&h.Path, "/")
		check.SetIfZero(&h.Scheme, corev1.URISchemeHTTP)
	}
}
