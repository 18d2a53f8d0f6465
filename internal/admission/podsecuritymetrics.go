package admission

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/pod-security-admission/api"

	"github.com/tidemark-dev/tidemark/internal/kubeversion"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

// securityMetrics are the metrics of the plugin PodSecurity, with kube-apiserver's names.
type securityMetrics struct {
	evaluations, exemptions, errors *prometheus.CounterVec
}

// newSecurityMetrics makes them.
func newSecurityMetrics() *securityMetrics {
	request := []string{"request_operation", "resource", "subresource"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pod_security_" + name + "_total", Help: help}, append(labels, request...))
	}
	m := &securityMetrics{
		evaluations: counter("evaluations", "Evaluations of Pods and of Pod templates by a pod security level, without exempt and ignored requests.", "decision", "policy_level", "policy_version", "mode"),
		exemptions:  counter("exemptions", "Requests that are exempt from the pod security levels."),
		errors:      counter("errors", "Errors of evaluations. After an error that is not fatal, the strictest level counts.", "fatal"),
	}
	for _, operation := range []string{"create", "update"} {
		m.evaluations.WithLabelValues(allowed, string(api.LevelPrivileged), "latest", modeEnforce, operation, "pod", "")
		for _, resource := range []string{"controller", "pod"} {
			m.exemptions.WithLabelValues(operation, resource, "")
		}
	}
	return m
}

// collectors returns the collectors of the metrics.
func (m *securityMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.evaluations, m.exemptions, m.errors}
}

// Values of labels.
const (
	allowed, denied                  = "allow", "deny"
	modeEnforce, modeAudit, modeWarn = "enforce", "audit", "warn"
)

// newestLevels is the newest version of the Pod Security Standards that the server has.
var newestLevels = api.MajorMinorVersion(kubeversion.Current.Major, kubeversion.Current.Minor)

func (m *securityMetrics) evaluated(a *registry.Attributes, decision string, by api.LevelVersion, mode string) {
	version := by.Version.String()
	switch {
	case by.Version.Latest() || by.Level == api.LevelPrivileged:
		version = "latest"
	case newestLevels.Older(by.Version):
		version = "future"
	}
	operation, resource := requestLabels(a)
	m.evaluations.WithLabelValues(decision, string(by.Level), version, mode, operation, resource, a.Subresource).Inc()
}

func (m *securityMetrics) exempt(a *registry.Attributes) {
	operation, resource := requestLabels(a)
	m.exemptions.WithLabelValues(operation, resource, a.Subresource).Inc()
}

func (m *securityMetrics) failed(a *registry.Attributes, fatal bool) {
	operation, resource := requestLabels(a)
	m.errors.WithLabelValues(strconv.FormatBool(fatal), operation, resource, a.Subresource).Inc()
}

func requestLabels(a *registry.Attributes) (operation, resource string) {
	resource = "controller"
	if a.Type.Collection == pods {
		resource = "pod"
	}
	return strings.ToLower(string(a.Operation)), resource
}
