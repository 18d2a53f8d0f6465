package podspec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

var (
	procMounts           = []corev1.ProcMountType{corev1.DefaultProcMount, corev1.UnmaskedProcMount}
	seccompTypes         = []corev1.SeccompProfileType{corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined}
	appArmorTypes        = []corev1.AppArmorProfileType{corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined}
	fsGroupChanges       = []corev1.PodFSGroupChangePolicy{corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch}
	supplementalPolicies = []corev1.SupplementalGroupsPolicy{corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict}
	seLinuxChanges       = []corev1.PodSELinuxChangePolicy{corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive}
)

// securityContext checks the security context of a container. Privileged ones are allowed: clusters
// that run their own components as Pods need them.
func (r *rules) securityContext(c *corev1.SecurityContext, at *field.Path) {
	if c == nil {
		return
	}
	at = at.Child("securityContext")
	r.user(at, "runAsUser", c.RunAsUser)
	r.group(at, "runAsGroup", c.RunAsGroup)
	if m := c.ProcMount; m != nil {
		check.Enum(r.Errors, at, "procMount", *m, procMounts)
		if *m == corev1.UnmaskedProcMount && r.hostUsers {
			r.Invalid(at, "procMount", m, "`hostUsers` must be false to use `Unmasked`")
		}
	}
	r.seccomp(c.SeccompProfile, at)
	if c.AllowPrivilegeEscalation != nil && !*c.AllowPrivilegeEscalation {
		if c.Privileged != nil && *c.Privileged {
			r.Invalid(at, "", check.Bare(c), "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
		}
		if c.Capabilities != nil {
			for _, add := range c.Capabilities.Add {
				if add == sysAdmin && !r.sysAdmin {
					r.Invalid(at, "", check.Bare(c), SysAdminEscalates)
				}
			}
		}
	}
	r.windowsOptions(c.WindowsOptions, at)
	r.appArmor(c.AppArmorProfile, at)
}

const sysAdmin = "CAP_SYS_ADMIN"

// SysAdminEscalates is the detail of the error for a container that adds the capability CAP_SYS_ADMIN without privilege
// escalation.
const SysAdminEscalates = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"

// AddsSysAdmin reports whether a container of a spec adds the capability CAP_SYS_ADMIN and does not ask for privilege
// escalation. An update of such a spec may then deny the escalation.
func AddsSysAdmin(spec *corev1.PodSpec) bool {
	adds := func(c *corev1.SecurityContext) bool {
		return c != nil && (c.AllowPrivilegeEscalation == nil || !*c.AllowPrivilegeEscalation) &&
			c.Capabilities != nil && slices.Contains(c.Capabilities.Add, sysAdmin)
	}
	of := func(c corev1.Container) bool { return adds(c.SecurityContext) }
	return slices.ContainsFunc(spec.InitContainers, of) || slices.ContainsFunc(spec.Containers, of) ||
		slices.ContainsFunc(spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return adds(c.SecurityContext) })
}

func (r *rules) user(at *field.Path, name string, id *int64) {
	if id != nil {
		r.Each(at, name, *id, validation.IsValidUserID(*id))
	}
}

func (r *rules) group(at *field.Path, name string, id *int64) {
	if id != nil {
		r.Each(at, name, *id, validation.IsValidGroupID(*id))
	}
}

func (r *rules) seccomp(p *corev1.SeccompProfile, at *field.Path) {
	if p == nil {
		return
	}
	at = at.Child("seccompProfile")
	if p.Type == "" {
		r.Required(at, "type", "type is required when seccompProfile is set")
	} else {
		check.Enum(r.Errors, at, "type", p.Type, seccompTypes)
	}
	switch local := p.Type == corev1.SeccompProfileTypeLocalhost; {
	case local && p.LocalhostProfile == nil:
		r.Required(at, "localhostProfile", "must be set when seccomp type is Localhost")
	case local:
		r.relative(at, "localhostProfile", *p.LocalhostProfile)
	case p.LocalhostProfile != nil:
		r.Invalid(at, "localhostProfile", check.Bare(p), "can only be set when seccomp type is Localhost")
	}
}

func (r *rules) appArmor(p *corev1.AppArmorProfile, at *field.Path) {
	if p == nil {
		return
	}
	at = at.Child("appArmorProfile")
	switch local := p.LocalhostProfile; p.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		switch {
		case local == nil, *local == "":
			r.Required(at, "localhostProfile", "must be set when AppArmor type is Localhost")
		case strings.TrimSpace(*local) != *local:
			r.Invalid(at, "localhostProfile", *local, "must not be padded with whitespace")
		}
		if local != nil && len(*local) > maxLocalProfile {
			r.Add(field.TooLong(at.Child("localhostProfile"), "", maxLocalProfile))
		}
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if local != nil {
			r.Invalid(at, "localhostProfile", local, "can only be set when AppArmor type is Localhost")
		}
	case "":
		r.Required(at, "type", "type is required when appArmorProfile is set")
	default:
		check.Enum(r.Errors, at, "type", p.Type, appArmorTypes)
	}
}

// podSecurityContext checks the security context of a Pod.
func (r *rules) podSecurityContext(at *field.Path) {
	c := r.spec.SecurityContext
	at = at.Child("securityContext")
	r.group(at, "fsGroup", c.FSGroup)
	r.user(at, "runAsUser", c.RunAsUser)
	r.group(at, "runAsGroup", c.RunAsGroup)
	for i := range c.SupplementalGroups {
		r.Each(at.Child("supplementalGroups").Index(i), "", c.SupplementalGroups[i], validation.IsValidGroupID(c.SupplementalGroups[i]))
	}
	r.sysctls(c.Sysctls, at)
	if p := c.FSGroupChangePolicy; p != nil {
		check.Enum(r.Errors, at, "fsGroupChangePolicy", *p, fsGroupChanges)
	}
	r.seccomp(c.SeccompProfile, at)
	r.windowsOptions(c.WindowsOptions, at)
	r.appArmor(c.AppArmorProfile, at)
	if p := c.SupplementalGroupsPolicy; p != nil {
		check.Enum(r.Errors, at, "supplementalGroupsPolicy", *p, supplementalPolicies)
	}
	if p := c.SELinuxChangePolicy; p != nil {
		check.Enum(r.Errors, at, "seLinuxChangePolicy", *p, seLinuxChanges)
	}
}

// maxSysctl is the maximum length of the name of a sysctl in bytes.
const maxSysctl = 253

var sysctlForm = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

func (r *rules) sysctls(all []corev1.Sysctl, at *field.Path) {
	var names check.Seen[string]
	for i := range all {
		name, at := all[i].Name, at.Child("sysctls").Index(i)
		again := names.Again(name)
		switch {
		case name == "":
			r.Required(at, "name", "")
		case len(name) > maxSysctl || !sysctlForm.MatchString(name):
			r.Invalid(at, "name", name, fmt.Sprintf("must have at most %d characters and match regex %s", maxSysctl, sysctlForm))
		case again:
			r.Duplicate(at, "name", name)
		}
		switch net, ipc := sysctlNamespace(name); {
		case net && r.spec.HostNetwork:
			r.Invalid(at, "name", name, "may not be specified when 'hostNetwork' is true")
		case ipc && r.spec.HostIPC:
			r.Invalid(at, "name", name, "may not be specified when 'hostIPC' is true")
		}
	}
}

// sysctlNamespace reports whether a sysctl belongs to the network or the IPC namespace.
func sysctlNamespace(name string) (net, ipc bool) {
	if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '/' { // the form with slashes
		name = strings.NewReplacer("/", ".", ".", "/").Replace(name)
	}
	name, _, _ = strings.Cut(name, "*")
	switch name {
	case "kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced", "kernel.shm",
		"kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.msg":
		return false, true
	}
	return strings.HasPrefix(name, "net."), strings.HasPrefix(name, "fs.mqueue.")
}

// checkHostUsers checks that a Pod with its own user namespace uses no other host namespace.
func (r *rules) checkHostUsers(at *field.Path) {
	if r.hostUsers {
		return
	}
	const when = "when `hostUsers` is false"
	if r.spec.HostNetwork {
		r.Forbidden(at, "hostNetwork", when)
	}
	if r.spec.HostPID {
		r.Forbidden(at, "HostPID", when)
	}
	if r.spec.HostIPC {
		r.Forbidden(at, "HostIPC", when)
	}
	for c, of := range eachContainer(r.spec, lazyPath{path: at}) {
		at := of.path
		if len(c.VolumeDevices) > 0 {
			r.Forbidden(at, "volumeDevices", when)
		}
	}
}
