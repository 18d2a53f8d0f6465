package podspec

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// The limits of Windows names in bytes, and of a GMSA credential spec in KiB.
const (
	maxCredentialKiB = 64
	maxWindowsDomain = 256
	maxWindowsUser   = 104
)

var (
	controlForm  = regexp.MustCompile(`[[:cntrl:]]+`)
	netBiosForm  = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	domainForm   = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)
	badUserForm  = regexp.MustCompile(`["/\\:;|=,\+\*\?<>@\[\]]`)
	dotsUserForm = regexp.MustCompile(`^[\. ]+$`)
)

func (r *rules) windowsOptions(o *corev1.WindowsSecurityContextOptions, at *field.Path) {
	if o == nil {
		return
	}
	at = at.Child("windowsOptions")
	if n := o.GMSACredentialSpecName; n != nil {
		r.Each(at, "gmsaCredentialSpecName", n, check.SubdomainFaults(*n))
	}
	if s := o.GMSACredentialSpec; s != nil {
		switch n := len(*s); {
		case n == 0:
			r.Invalid(at, "gmsaCredentialSpec", s, "gmsaCredentialSpec cannot be an empty string")
		case n > maxCredentialKiB*1024:
			r.Invalid(at, "gmsaCredentialSpec", s, fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", maxCredentialKiB))
		}
	}
	if o.RunAsUserName != nil {
		r.windowsUser(*o.RunAsUserName, at)
	}
}

// windowsUser checks a name of the form DOMAIN\USER.
func (r *rules) windowsUser(name string, at *field.Path) {
	bad := func(detail string) { r.Invalid(at, "runAsUserName", name, "runAsUserName"+detail) }
	switch {
	case name == "":
		bad(" cannot be an empty string")
		return
	case controlForm.MatchString(name):
		bad(" cannot contain control characters")
		return
	case strings.Count(name, `\`) > 1:
		bad(" cannot contain more than one backslash")
		return
	}
	domain, user, hasDomain := strings.Cut(name, `\`)
	if !hasDomain {
		domain, user = "", name
	}
	if len(domain) >= maxWindowsDomain {
		bad(fmt.Sprintf("'s Domain length must be under %d characters", maxWindowsDomain))
	}
	if hasDomain && !netBiosForm.MatchString(domain) && !domainForm.MatchString(domain) {
		bad("'s Domain doesn't match the NetBios nor the DNS format")
	}
	switch {
	case user == "":
		bad("'s User cannot be empty")
	case len(user) > maxWindowsUser:
		bad(fmt.Sprintf("'s User length must not be longer than %d characters", maxWindowsUser))
	}
	if dotsUserForm.MatchString(user) {
		bad("'s User cannot contain only periods or spaces")
	}
	if badUserForm.MatchString(user) {
		bad(`'s User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	}
}

// hostProcess checks HostProcess containers: either all containers of a Pod are, or none.
func (r *rules) hostProcess(at *field.Path) {
	var ofPod *bool
	if o := r.spec.SecurityContext.WindowsOptions; o != nil {
		ofPod = o.HostProcess
	}
	all, host := 0, 0
	for c, of := range eachContainer(r.spec, lazyPath{path: at}) {
		at := of.path
		all++
		own := ofPod
		if c.SecurityContext != nil && c.SecurityContext.WindowsOptions != nil && c.SecurityContext.WindowsOptions.HostProcess != nil {
			own = c.SecurityContext.WindowsOptions.HostProcess
			if ofPod != nil && *ofPod != *own {
				r.Invalid(at.Child("securityContext", "windowsOptions"), "hostProcess", *own,
					fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *ofPod))
			}
		}
		if own != nil && *own {
			host++
		}
	}
	if host == 0 {
		return
	}
	if host != all {
		r.Invalid(at, "", "", "If pod contains any hostProcess containers then all containers must be HostProcess containers")
	}
	if !r.spec.HostNetwork {
		r.Invalid(at, "hostNetwork", false, "hostNetwork must be true if pod contains any hostProcess containers")
	}
}

var systems = []corev1.OSName{corev1.Linux, corev1.Windows}

// system checks the fields that depend on the operating system.
func (r *rules) system(at *field.Path) {
	os := r.spec.OS
	switch {
	case os == nil:
	case os.Name == "":
		r.Required(at.Child("os"), "name", "")
	case os.Name == corev1.Linux:
		const detail = "windows options cannot be set for a linux pod"
		if r.spec.SecurityContext.WindowsOptions != nil {
			r.Forbidden(at.Child("securityContext"), "windowsOptions", detail)
		}
		for c, of := range eachContainer(r.spec, lazyPath{path: at}) {
			at := of.path
			if c.SecurityContext != nil && c.SecurityContext.WindowsOptions != nil {
				r.Forbidden(at.Child("securityContext"), "windowsOptions", detail)
			}
		}
	case os.Name == corev1.Windows:
		r.windows(at)
	default:
		check.Enum(r.Errors, at, "os", os.Name, systems)
	}
}

// windows rejects fields that a Windows Pod cannot have.
func (r *rules) windows(at *field.Path) {
	const never = "cannot be set for a windows pod"
	forbid := func(at *field.Path, name string, set bool) {
		if set {
			r.Forbidden(at, name, never)
		}
	}
	c, in := r.spec.SecurityContext, at.Child("securityContext")
	forbid(in, "appArmorProfile", c.AppArmorProfile != nil)
	forbid(in, "seLinuxOptions", c.SELinuxOptions != nil)
	forbid(in, "seccompProfile", c.SeccompProfile != nil)
	forbid(in, "fsGroup", c.FSGroup != nil)
	forbid(in, "fsGroupChangePolicy", c.FSGroupChangePolicy != nil)
	forbid(in, "sysctls", len(c.Sysctls) > 0)
	forbid(in, "runAsUser", c.RunAsUser != nil)
	forbid(in, "runAsGroup", c.RunAsGroup != nil)
	forbid(in, "supplementalGroups", c.SupplementalGroups != nil)
	forbid(in, "supplementalGroupsPolicy", c.SupplementalGroupsPolicy != nil)
	forbid(in, "seLinuxChangePolicy", c.SELinuxChangePolicy != nil)
	forbid(at, "hostUsers", r.spec.HostUsers != nil)
	forbid(at, "hostPID", r.spec.HostPID)
	forbid(at, "hostIPC", r.spec.HostIPC)
	forbid(at, "shareProcessNamespace", r.spec.ShareProcessNamespace != nil)
	for each, of := range eachContainer(r.spec, lazyPath{path: at}) {
		at := of.path
		c, in := each.SecurityContext, at.Child("securityContext")
		if c == nil {
			continue
		}
		forbid(in, "appArmorProfile", c.AppArmorProfile != nil)
		forbid(in, "seLinuxOptions", c.SELinuxOptions != nil)
		forbid(in, "seccompProfile", c.SeccompProfile != nil)
		forbid(in, "capabilities", c.Capabilities != nil)
		forbid(in, "readOnlyRootFilesystem", c.ReadOnlyRootFilesystem != nil)
		forbid(in, "privileged", c.Privileged != nil)
		forbid(in, "allowPrivilegeEscalation", c.AllowPrivilegeEscalation != nil)
		forbid(in, "procMount", c.ProcMount != nil)
		forbid(in, "runAsUser", c.RunAsUser != nil)
		forbid(in, "runAsGroup", c.RunAsGroup != nil)
	}
}

// IsWindows reports whether spec.os is Windows.
func IsWindows(spec *corev1.PodSpec) bool { return spec.OS != nil && spec.OS.Name == corev1.Windows }
