package admission

import (
	"fmt"
	"slices"

	admissionapi "k8s.io/pod-security-admission/admission/api"
	"k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/admission/api/validation"
	"k8s.io/pod-security-admission/api"

	"github.com/tidemark-dev/tidemark/internal/registry"
)

// PodSecurity is the configuration of the plugin PodSecurity. The zero value allows everything in
// namespaces without labels, and exempts nothing.
type PodSecurity struct {
	// Defaults are the levels that labels of a namespace do not name; nil: everything is allowed.
	Defaults *api.Policy
	// The requests of Usernames, in Namespaces, and for Pods with RuntimeClasses are not checked.
	Usernames, Namespaces, RuntimeClasses []string
}

// parsePodSecurity reads a PodSecurityConfiguration of pod-security.admission.config.k8s.io/v1,
// v1beta1 or v1alpha1, as YAML or JSON. Nil is an empty one.
func parsePodSecurity(text []byte) (PodSecurity, error) {
	read, err := load.LoadFromData(text)
	if err != nil {
		return PodSecurity{}, err
	}
	return securityOf(read)
}

func securityOf(c *admissionapi.PodSecurityConfiguration) (PodSecurity, error) {
	defaults, err := admissionapi.ToPolicy(c.Defaults)
	if err != nil {
		return PodSecurity{}, &initError{fmt.Errorf("PodSecurity configuration error: %w", err)}
	}
	if errs := validation.ValidatePodSecurityConfiguration(c); len(errs) > 0 {
		return PodSecurity{}, &initError{fmt.Errorf("PodSecurity invalid: %w", errs.ToAggregate())}
	}
	e := c.Exemptions
	return PodSecurity{Defaults: &defaults, Usernames: e.Usernames, Namespaces: e.Namespaces, RuntimeClasses: e.RuntimeClasses}, nil
}

func (c *PodSecurity) defaults() api.Policy {
	if c.Defaults == nil {
		return privileged
	}
	return *c.Defaults
}

// exempts reports whether requests may be exempt.
func (c *PodSecurity) exempts() bool { return len(c.Usernames) > 0 || len(c.Namespaces) > 0 }

func (c *PodSecurity) exemptsNamespace(name string) bool { return slices.Contains(c.Namespaces, name) }

// exemption returns why a request is exempt, by the value of its audit annotation; empty: it is not.
func (c *PodSecurity) exemption(a *registry.Attributes) string {
	switch {
	case c.exemptsNamespace(a.Namespace):
		return "namespace"
	case a.User != nil && a.User.Name != "" && slices.Contains(c.Usernames, a.User.Name):
		return "user"
	}
	return ""
}
