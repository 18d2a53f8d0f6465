package core

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// ValidatePodStatus checks an update of a Pod's status.
func ValidatePodStatus(p, old *corev1.Pod) field.ErrorList {
	r := podRules{spec: &p.Spec}
	r.annotationUpdates(p, old)
	s, at := &p.Status, field.NewPath("status")
	for i := range s.Conditions {
		c, at := &s.Conditions[i], at.Child("conditions").Index(i)
		r.generation(at, c.ObservedGeneration)
		switch c.Type {
		case corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized:
		default:
			r.QualifiedName(at, "Type", string(c.Type))
		}
	}
	if n := s.NominatedNodeName; n != old.Status.NominatedNodeName && n != "" {
		r.Each(at, "nominatedNodeName", n, check.SubdomainFaults(n))
		if old.Spec.NodeName != "" {
			r.Forbidden(at, "nominatedNodeName", "may not be set on pods that are already bound to a node")
		}
	}
	r.generation(at, s.ObservedGeneration)
	if s.QOSClass != old.Status.QOSClass {
		r.Invalid(at, "qosClass", s.QOSClass, apivalidation.FieldImmutableErrorMsg)
	}
	r.transitions(s.ContainerStatuses, old.Status.ContainerStatuses, old.Spec.Containers, at.Child("containerStatuses"))
	r.transitions(s.InitContainerStatuses, old.Status.InitContainerStatuses, old.Spec.InitContainers, at.Child("initContainerStatuses"))
	r.ended(s.EphemeralContainerStatuses, old.Status.EphemeralContainerStatuses, at.Child("ephemeralContainerStatuses"), func(string, int32) bool { return false })
	r.claimStatuses(s.ResourceClaimStatuses, at.Child("resourceClaimStatuses"))
	r.extendedClaimStatus(s.ExtendedResourceClaimStatus, at.Child("extendedResourceClaimStatus"))
	r.addresses(s, &old.Status, at)
	for _, part := range [...]struct {
		name     string
		statuses []corev1.ContainerStatus
	}{
		{"containerStatuses", s.ContainerStatuses},
		{"initContainerStatuses", s.InitContainerStatuses},
		{"ephemeralContainerStatuses", s.EphemeralContainerStatuses},
	} {
		r.statusUsers(part.statuses, at.Child(part.name))
	}
	r.health(s, s.ContainerStatuses, p.Spec.Containers, at.Child("containerStatuses"))
	r.health(s, s.InitContainerStatuses, p.Spec.InitContainers, at.Child("initContainerStatuses"))
	for i := range s.EphemeralContainerStatuses {
		if len(s.EphemeralContainerStatuses[i].AllocatedResourcesStatus) > 0 {
			r.Forbidden(at.Child("ephemeralContainerStatuses").Index(i), "allocatedResourcesStatus", "must not be specified in container status")
		}
	}
	return r.List()
}

func (r *podRules) generation(at *field.Path, n int64) {
	if n < 0 {
		r.Invalid(at, "observedGeneration", n, "must be a non-negative integer")
	}
}

// transitions checks that an ended container runs again only if its restart policy allows it.
func (r *podRules) transitions(next, old []corev1.ContainerStatus, all []corev1.Container, at *field.Path) {
	for _, part := range [...][]corev1.Container{r.spec.InitContainers, r.spec.Containers} {
		for i := range part {
			for _, rule := range part[i].RestartPolicyRules {
				if rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
					return
				}
			}
		}
	}
	named := byName(all)
	r.ended(next, old, at, func(name string, code int32) bool {
		c := named[name]
		return c != nil && restarts(c, r.spec, code)
	})
}

// byName maps names to containers; of several with one name, to the first.
func byName(all []corev1.Container) map[string]*corev1.Container {
	named := make(map[string]*corev1.Container, len(all))
	for i := range all {
		if named[all[i].Name] == nil {
			named[all[i].Name] = &all[i]
		}
	}
	return named
}

// ended reports containers that had ended and run again against their restart policy.
func (r *podRules) ended(next, old []corev1.ContainerStatus, at *field.Path, may func(name string, code int32) bool) {
	runs := map[string]bool{}
	for i := range next {
		if _, ok := runs[next[i].Name]; !ok {
			runs[next[i].Name] = next[i].State.Terminated == nil
		}
	}
	for i := range old {
		if end := old[i].State.Terminated; end != nil && runs[old[i].Name] && !may(old[i].Name, end.ExitCode) {
			r.Forbidden(at.Index(i), "state", "may not be transitioned to non-terminated state")
		}
	}
}

// restarts reports whether the kubelet restarts a container that exited with code.
func restarts(c *corev1.Container, spec *corev1.PodSpec, code int32) bool {
	policy := spec.RestartPolicy
	if c.RestartPolicy != nil {
		for _, rule := range c.RestartPolicyRules {
			if codes := rule.ExitCodes; codes != nil && slices.Contains(codes.Values, code) == (codes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
				return true
			}
		}
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	}
	return true
}

func (r *podRules) claimStatuses(all []corev1.PodResourceClaimStatus, at *field.Path) {
	var names, claims check.Seen[string]
	for i := range r.spec.ResourceClaims {
		claims.Again(r.spec.ResourceClaims[i].Name)
	}
	for i := range all {
		s, at := &all[i], at.Index(i)
		if !claims.Has(s.Name) {
			r.Invalid(at, "name", s.Name, "must match the name of an entry in `spec.resourceClaims`")
		}
		if names.Again(s.Name) {
			r.Duplicate(at, "name", s.Name)
		}
		if n := s.ResourceClaimName; n != nil {
			r.Each(at, "resourceClaimName", n, check.SubdomainFaults(*n))
		}
	}
}

// extendedClaimStatus checks the mapping of extended resources to devices of a claim.
func (r *podRules) extendedClaimStatus(s *corev1.PodExtendedResourceClaimStatus, at *field.Path) {
	if s == nil {
		return
	}
	if len(s.RequestMappings) == 0 {
		r.Required(at, "requestMappings", "at least one request mapping is required")
	}
	taken := map[corev1.ContainerExtendedResourceRequest]bool{}
	containers, inits := byName(r.spec.Containers), byName(r.spec.InitContainers)
	for i, m := range s.RequestMappings {
		one := at.Child("requestMappings").Index(i)
		if c := cmp.Or(containers[m.ContainerName], inits[m.ContainerName]); c == nil {
			r.Invalid(one, "containerName", m.ContainerName, "must match the name of an entry in spec.initContainers.name or spec.containers.name")
		} else if _, ok := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]; !ok {
			r.Invalid(one, "resourceName", m.ResourceName, "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests")
		}
		r.Each(at, "requestName", m.RequestName, check.LabelFaults(m.RequestName))
		if taken[m] {
			r.Duplicate(one, "containerName", m.ContainerName)
			r.Duplicate(one, "resourceName", m.ResourceName)
			r.Duplicate(one, "requestName", m.RequestName)
		}
		taken[m] = true
	}
	if s.ResourceClaimName == "" {
		r.Required(at, "resourceClaimName", "")
		return
	}
	r.Each(at, "resourceClaimName", s.ResourceClaimName, check.SubdomainFaults(s.ResourceClaimName))
}

// addresses checks that a Pod and its node have at most one address of each family.
func (r *podRules) addresses(s, old *corev1.PodStatus, at *field.Path) {
	var pod, host, oldPod, oldHost []string
	for _, ip := range s.PodIPs {
		pod = append(pod, ip.IP)
	}
	for _, ip := range old.PodIPs {
		oldPod = append(oldPod, ip.IP)
	}
	r.family(pod, oldPod, check.Bare(s.PodIPs), at.Child("podIPs"))
	switch {
	case (s.PodIP != "") != (len(pod) > 0):
		r.Invalid(at, "podIPs", check.Bare(s.PodIPs), "podIP and podIPs must either both be set or both be unset")
	case len(pod) > 0 && s.PodIP != pod[0]:
		r.Invalid(at.Child("podIPs").Index(0), "ip", pod[0], "must be equal to `podIP`")
	}
	for _, ip := range s.HostIPs {
		host = append(host, ip.IP)
	}
	for _, ip := range old.HostIPs {
		oldHost = append(oldHost, ip.IP)
	}
	if len(host) > 0 && s.HostIP != host[0] {
		r.Invalid(at.Child("hostIPs").Index(0), "ip", host[0], "must be equal to `hostIP`")
	}
	r.family(host, oldHost, check.Bare(s.HostIPs), at.Child("hostIPs"))
}

func (r *podRules) family(ips, old []string, shown any, at *field.Path) {
	known := check.SeenIn(old)
	for i, ip := range ips {
		r.Add(check.LegacyIP(ip, &known, at.Index(i))...)
	}
	if len(ips) < 2 {
		return
	}
	dual, err := netutils.IsDualStackIPStrings(ips)
	if err != nil {
		r.Add(field.InternalError(at, &dualStackError{err}))
	}
	if !dual || len(ips) > 2 {
		r.Invalid(at, "", shown, "may specify no more than one IP for each IP family")
	}
}

// dualStackError is the error of kube-apiserver for addresses whose families are unknown.
type dualStackError struct{ error }

func (e *dualStackError) Error() string {
	return "failed to check for dual stack with error:" + e.error.Error()
}

func (r *podRules) statusUsers(all []corev1.ContainerStatus, at *field.Path) {
	for i := range all {
		if all[i].User == nil || all[i].User.Linux == nil {
			continue
		}
		at, user := at.Index(i).Child("user", "linux"), all[i].User.Linux
		if podspec.IsWindows(r.spec) {
			r.Forbidden(at, "", "cannot be set for a windows pod")
			continue
		}
		if user.UID < 0 || user.UID > math.MaxUint32 { // of the running container: more than a Pod may ask for
			r.Invalid(at, "uid", user.UID, fmt.Sprintf("must be between 0 and %d, inclusive", int64(math.MaxUint32)))
		}
		r.Each(at, "gid", user.GID, validation.IsValidGroupID(user.GID))
		for j, id := range user.SupplementalGroups {
			r.Each(at.Child("supplementalGroups").Index(j), "", id, validation.IsValidGroupID(id))
		}
	}
}

var healths = []corev1.ResourceHealthStatus{corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown}

// health checks the allocated devices of containers and their health.
func (r *podRules) health(of *corev1.PodStatus, statuses []corev1.ContainerStatus, all []corev1.Container, at *field.Path) {
	named := byName(all)
	for i := range statuses {
		c := named[statuses[i].Name]
		var claims check.Seen[string]
		if c != nil && len(statuses[i].AllocatedResourcesStatus) > 0 {
			claims = claimNames(c)
		}
		for j := range statuses[i].AllocatedResourcesStatus {
			s, at := &statuses[i].AllocatedResourcesStatus[j], at.Index(i).Child("allocatedResourcesStatus").Index(j)
			if c != nil {
				r.hasDevice(of, c, &claims, s.Name, at)
			}
			var ids check.Seen[string]
			for k := range s.Resources {
				at := at.Child("resources").Index(k)
				check.Enum(&r.Errors, at, "health", s.Resources[k].Health, healths)
				if ids.Again(string(s.Resources[k].ResourceID)) {
					r.Duplicate(at, "resourceID", s.Resources[k].ResourceID)
				}
			}
		}
	}
}

// claimNames returns the claims of a container as statuses name them.
func claimNames(c *corev1.Container) (names check.Seen[string]) {
	for _, claim := range c.Resources.Claims {
		name := "claim:" + claim.Name
		if claim.Request != "" {
			name += "/" + claim.Request
		}
		names.Again(name)
	}
	return names
}

// isExtended reports whether a name claim:CLAIM/REQUEST belongs to the claim that was made for the extended resources of
// a container.
func isExtended(s *corev1.PodExtendedResourceClaimStatus, c *corev1.Container, name string) bool {
	claim, request, ok := strings.Cut(strings.TrimPrefix(name, "claim:"), "/")
	if s == nil || !ok || request == "" || claim != s.ResourceClaimName {
		return false
	}
	return slices.ContainsFunc(s.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
		asked := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]
		return m.ContainerName == c.Name && m.RequestName == request && !asked.IsZero()
	})
}

func (r *podRules) hasDevice(of *corev1.PodStatus, c *corev1.Container, claims *check.Seen[string], name corev1.ResourceName, at *field.Path) {
	if !strings.HasPrefix(string(name), "claim:") {
		if _, ok := c.Resources.Requests[name]; !ok {
			r.Invalid(at, "name", name, "must match one of the container's resource requests")
		}
		return
	}
	if claims.Has(string(name)) || isExtended(of.ExtendedResourceClaimStatus, c, string(name)) {
		return
	}
	r.Invalid(at, "name", name, "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when "+
		"container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty")
}
