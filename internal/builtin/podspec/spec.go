// Package podspec has the rules of the spec of a Pod or of the template of a workload. It sets
// defaults, validates, and warns.
//
// Paths, reasons, messages and their order are those of kube-apiserver v1.37.
package podspec

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// The limits of the DNS configuration, which are those of libc.
const (
	maxNameservers  = 3
	maxSearchPaths  = 32
	maxSearchLength = 2048 // bytes, with a space between two paths
)

var (
	restartPolicies    = []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}
	dnsPolicies        = []corev1.DNSPolicy{corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone}
	preemptionPolicies = []corev1.PreemptionPolicy{corev1.PreemptLowerPriority, corev1.PreemptNever}
)

// rules checks one Pod spec, which has its defaults.
type rules struct {
	*check.Errors
	spec *corev1.PodSpec
	// pod is the metadata of the Pod; nil for a template.
	pod *metav1.ObjectMeta
	// volumes are the valid volumes. volumeName is the name of the one that is being checked.
	volumes    map[string]*corev1.VolumeSource
	volumeName string
	// claimNames are the resource claims that containers can use.
	claimNames check.Seen[string]
	// noClaim is the detail of the error for an unknown claim. It is made when it is needed first.
	noClaim string
	// containers are the names of containers and init containers.
	containers check.Seen[string]
	// hostUsers is false if the Pod has its own user namespace.
	hostUsers bool
	// sysAdmin: the stored spec has containers that add CAP_SYS_ADMIN without privilege escalation.
	sysAdmin bool
}

// ValidatePod checks the spec and the annotations of a Pod, which has its defaults. Old is the stored Pod, nil for a new
// one.
func ValidatePod(errs *check.Errors, p, old *corev1.Pod) {
	ValidateAnnotations(errs, p.Annotations, &p.Spec, field.NewPath("metadata", "annotations"))
	r, at := rules{Errors: errs, spec: &p.Spec, pod: &p.ObjectMeta}, field.NewPath("spec")
	r.sysAdmin = old != nil && AddsSysAdmin(&old.Spec)
	r.check(at)
	if r.spec.ServiceAccountName == "" {
		for i := range r.spec.Volumes {
			v := r.spec.Volumes[i].Projected
			for j := 0; v != nil && j < len(v.Sources); j++ {
				if v.Sources[j].ServiceAccountToken != nil {
					r.Forbidden(at.Child("volumes").Index(i).Child("projected", "sources").Index(j), "serviceAccountToken", "must not be specified when serviceAccountName is not set")
				}
			}
		}
	}
	for i := range r.spec.Containers {
		ValidateImage(errs, &r.spec.Containers[i], at.Child("containers").Index(i))
	}
	for i := range r.spec.InitContainers {
		ValidateImage(errs, &r.spec.InitContainers[i], at.Child("initContainers").Index(i))
	}
}

// check validates the spec at a path.
func (r *rules) check(at *field.Path) {
	spec := r.spec
	r.hostUsers = spec.HostUsers == nil || *spec.HostUsers
	r.checkVolumes(at.Child("volumes"))
	r.resourceClaims(at)
	r.checkContainers(at.Child("containers"))
	r.checkInitContainers(at.Child("initContainers"))
	r.checkEphemeral(at.Child("ephemeralContainers"))
	r.podResources(at)
	r.hostNetwork(at)
	check.RequiredEnum(r.Errors, at, "restartPolicy", spec.RestartPolicy, restartPolicies)
	check.RequiredEnum(r.Errors, at, "dnsPolicy", spec.DNSPolicy, dnsPolicies)
	if len(spec.NodeSelector) > 0 {
		r.Add(check.Labels(spec.NodeSelector, at.Child("nodeSelector"))...)
	}
	r.podSecurityContext(at)
	if share := spec.ShareProcessNamespace; share != nil && *share && spec.HostPID {
		r.Invalid(at, "shareProcessNamespace", *share, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	r.affinity(spec.Affinity, at)
	r.dns(at)
	for i, g := range spec.ReadinessGates {
		r.QualifiedName(at.Child("readinessGates").Index(i), "conditionType", string(g.ConditionType))
	}
	var gates check.Seen[string]
	for i, g := range spec.SchedulingGates {
		at := at.Child("schedulingGates").Index(i)
		r.QualifiedName(at, "", g.Name)
		if gates.Again(g.Name) {
			r.Duplicate(at, "", g.Name)
		}
	}
	if len(spec.TopologySpreadConstraints) > 0 {
		r.spread(spec.TopologySpreadConstraints, at)
	}
	r.hostProcess(at)
	r.checkHostUsers(at)
	r.hostnameOverride(at)
	r.names(at)
	r.classes(at)
	r.system(at)
	r.fileRefVolumes(at)
}

// names checks the names of other objects in a spec.
func (r *rules) names(at *field.Path) {
	spec := r.spec
	if n := spec.ServiceAccountName; n != "" {
		r.Each(at, "serviceAccountName", n, check.SubdomainFaults(n))
	}
	if n := spec.NodeName; n != "" {
		r.Each(at, "nodeName", n, check.SubdomainFaults(n))
	}
	if s := spec.ActiveDeadlineSeconds; s != nil && (*s < 1 || *s > math.MaxInt32) {
		r.Invalid(at, "activeDeadlineSeconds", *s, validation.InclusiveRangeError(1, math.MaxInt32))
	}
	if spec.Hostname != "" {
		r.Each(at, "hostname", spec.Hostname, check.LabelFaults(spec.Hostname))
	}
	if spec.Subdomain != "" {
		r.Each(at, "subdomain", spec.Subdomain, check.LabelFaults(spec.Subdomain))
	}
	ValidateTolerations(r.Errors, spec.Tolerations, at.Child("tolerations"))
	for i := range spec.HostAliases {
		a, at := &spec.HostAliases[i], at.Child("hostAliases").Index(i)
		r.IP(at, "ip", a.IP)
		for j, name := range a.Hostnames {
			r.Each(at.Child("hostnames").Index(j), "", name, check.SubdomainFaults(name))
		}
	}
}

func (r *rules) classes(at *field.Path) {
	spec := r.spec
	if n := spec.PriorityClassName; n != "" {
		r.Each(at, "priorityClassName", n, check.SubdomainFaults(n))
	}
	if n := spec.RuntimeClassName; n != nil {
		r.Each(at, "runtimeClassName", *n, check.SubdomainFaults(*n))
	}
	if p := spec.PreemptionPolicy; p != nil {
		check.RequiredEnum(r.Errors, at, "preemptionPolicy", *p, preemptionPolicies)
	}
	if spec.Overhead != nil {
		r.resources(&corev1.ResourceRequirements{Limits: spec.Overhead}, at.Child("overhead"), check.ContainerResourceName)
	}
}

// hostNetwork checks that the host ports of a Pod in the host network equal its container ports. A
// template may leave them out.
func (r *rules) hostNetwork(at *field.Path) {
	if !r.spec.HostNetwork {
		return
	}
	for i := range r.spec.Containers {
		for j, p := range r.spec.Containers[i].Ports {
			if p.HostPort != p.ContainerPort && (p.HostPort != 0 || r.pod != nil) {
				r.Invalid(at.Child("containers").Index(i).Child("ports").Index(j), "hostPort", p.HostPort, "must match `containerPort` when `hostNetwork` is true")
			}
		}
	}
}

func (r *rules) dns(at *field.Path) {
	c := r.spec.DNSConfig
	at = at.Child("dnsConfig")
	if r.spec.DNSPolicy == corev1.DNSNone && (c == nil || len(c.Nameservers) == 0) {
		if c == nil {
			r.Required(at, "", fmt.Sprintf("must provide `dnsConfig` when `dnsPolicy` is %s", corev1.DNSNone))
		} else {
			r.Required(at, "nameservers", fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", corev1.DNSNone))
		}
		return
	}
	if c == nil {
		return
	}
	if len(c.Nameservers) > maxNameservers {
		r.Invalid(at, "nameservers", c.Nameservers, fmt.Sprintf("must not have more than %v nameservers", maxNameservers))
	}
	for i, ip := range c.Nameservers {
		r.IP(at.Child("nameservers").Index(i), "", ip)
	}
	if len(c.Searches) > maxSearchPaths {
		r.Invalid(at, "searches", c.Searches, fmt.Sprintf("must not have more than %v search paths", maxSearchPaths))
	}
	if len(strings.Join(c.Searches, " ")) > maxSearchLength {
		r.Invalid(at, "searches", c.Searches, fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchLength))
	}
	for i, domain := range c.Searches {
		if domain != "." {
			domain = strings.TrimSuffix(domain, ".")
			r.Each(at.Child("searches").Index(i), "", domain, validation.IsDNS1123SubdomainWithUnderscore(domain))
		}
	}
	for i := range c.Options {
		if c.Options[i].Name == "" {
			r.Required(at.Child("options").Index(i), "", "must not be empty")
		}
	}
}

func (r *rules) hostnameOverride(at *field.Path) {
	name := r.spec.HostnameOverride
	if name == nil {
		return
	}
	if full := r.spec.SetHostnameAsFQDN; full != nil && *full {
		r.Forbidden(at, "hostnameOverride", "may not be specified when setHostnameAsFQDN is true")
	}
	if r.spec.HostNetwork {
		r.Forbidden(at, "hostnameOverride", "may not be specified when hostNetwork is true")
	}
	if len(*name) > 64 {
		r.Add(field.TooLong(at.Child("hostnameOverride"), "", 64))
	}
	r.Each(at, "hostnameOverride", *name, check.SubdomainFaults(*name))
}
