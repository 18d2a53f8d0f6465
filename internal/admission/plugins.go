package admission

import (
	"fmt"
	"slices"
	"strings"
)

// The plugins of kube-apiserver that are steps here, by their names there.
const (
	limitRanger        = "LimitRanger"
	serviceAccount     = "ServiceAccount"
	podSecurityPlugin  = "PodSecurity"
	priority           = "Priority"
	defaultTolerations = "DefaultTolerationSeconds"
	runtimeClass       = "RuntimeClass"
	subjectRestriction = "CertificateSubjectRestriction"
	ResourceQuota      = "ResourceQuota"
	// DefaultStorageClass, ClaimResize and DefaultIngressClass are of package
	// defaultclass, ResourceQuota of package quota.
	DefaultStorageClass = "DefaultStorageClass"
	ClaimResize         = "PersistentVolumeClaimResize"
	DefaultIngressClass = "DefaultIngressClass"
)

// plugin is a name that kube-apiserver knows.
type plugin struct {
	name string
	part part
}

// part is what a plugin is to this server.
type part uint8

const (
	// absent: what it does is not done here.
	absent part = iota
	// on: it is done, unless it is switched off.
	on
	// off: it is done if it is switched on.
	off
	// always: it is done in any case.
	always
)

// plugins are all of kube-apiserver v1.36, in its order.
var plugins = []plugin{
	{"AlwaysAdmit", absent},
	{"NamespaceAutoProvision", absent},
	{"NamespaceLifecycle", always},
	{"NamespaceExists", absent},
	{"LimitPodHardAntiAffinityTopology", absent},
	{limitRanger, on},
	{serviceAccount, off},
	{"NodeRestriction", absent},
	{"TaintNodesByCondition", always},
	{"AlwaysPullImages", absent},
	{"ImagePolicyWebhook", absent},
	{podSecurityPlugin, on},
	{"PodNodeSelector", absent},
	{priority, on},
	{defaultTolerations, on},
	{"PodTolerationRestriction", absent},
	{"EventRateLimit", absent},
	{"ExtendedResourceToleration", absent},
	{DefaultStorageClass, on},
	{"StorageObjectInUseProtection", always},
	{"PodGroupProtection", absent},
	{"OwnerReferencesPermissionEnforcement", absent},
	{ClaimResize, on},
	{runtimeClass, on},
	{"CertificateApproval", absent},
	{"CertificateSigning", absent},
	{"ClusterTrustBundleAttest", absent},
	{subjectRestriction, on},
	{DefaultIngressClass, on},
	{"DenyServiceExternalIPs", absent},
	{"PodTopologyLabels", absent},
	{"PodGroupWorkloadExists", absent},
	{"NodeDeclaredFeatureValidator", absent},
	{"JobValidation", absent},
	{"PodResizeValidator", absent},
	{"MutatingAdmissionPolicy", absent},
	{"MutatingAdmissionWebhook", absent},
	{"ValidatingAdmissionPolicy", absent},
	{"ValidatingAdmissionWebhook", absent},
	{ResourceQuota, on},
	{"AlwaysDeny", absent},
}

// Plugins are those that are switched on, by name. The zero value has those that are
// on by default.
type Plugins struct{ changed map[string]bool }

// On reports whether a plugin is switched on.
func (p Plugins) On(name string) bool {
	if is, ok := p.changed[name]; ok {
		return is
	}
	i := slices.IndexFunc(plugins, func(q plugin) bool { return q.name == name })
	return i >= 0 && (plugins[i].part == on || plugins[i].part == always)
}

// Choose switches plugins on and off. A plugin that is no part of this server can be
// switched off.
func Choose(enable, disable []string) (Plugins, error) {
	p := Plugins{map[string]bool{}}
	for _, name := range enable {
		switch what, err := lookup(name); {
		case err != nil:
			return p, err
		case what == absent:
			return p, fmt.Errorf("the admission plugin %s is not a part of this server; these are: %s", name, named(on, off, always))
		}
		p.changed[name] = true
	}
	for _, name := range disable {
		switch what, err := lookup(name); {
		case err != nil:
			return p, err
		case what == always:
			return p, fmt.Errorf("the admission plugin %s cannot be switched off; these can: %s", name, named(on, off))
		case p.changed[name]:
			return p, fmt.Errorf("the admission plugin %s is to be switched on and off", name)
		}
		p.changed[name] = false
	}
	return p, nil
}

func lookup(name string) (part, error) {
	for _, q := range plugins {
		if q.name == name {
			return q.part, nil
		}
	}
	return absent, fmt.Errorf("there is no admission plugin %q: want some of %s", name, named(absent, on, off, always))
}

// named are those of the plugins that are one of the parts, in their order.
func named(parts ...part) string {
	var all []string
	for _, q := range plugins {
		if slices.Contains(parts, q.part) {
			all = append(all, q.name)
		}
	}
	return strings.Join(all, ", ")
}

// Switched returns, as text, which plugins are on by default, which are
// off, and which are always on.
func Switched() (byDefault, optional, fixed string) { return named(on), named(off), named(always) }
