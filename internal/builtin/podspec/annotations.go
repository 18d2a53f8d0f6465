package podspec

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// Annotations that fields have replaced.
const (
	seccompPodAnnotation       = "seccomp.security.alpha.kubernetes.io/pod"
	seccompContainerAnnotation = "container.seccomp.security.alpha.kubernetes.io/"
	appArmorAnnotation         = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	tolerationsAnnotation      = "scheduler.alpha.kubernetes.io/tolerations"
)

// ValidateAnnotations checks the annotations of a Pod or a template that have a meaning for
// Kubernetes.
func ValidateAnnotations(errs *check.Errors, all map[string]string, spec *corev1.PodSpec, at *field.Path) {
	if len(all) == 0 {
		return
	}
	r := rules{Errors: errs, spec: spec}
	if value, static := all[corev1.MirrorPodAnnotationKey]; static && spec.NodeName == "" {
		r.Invalid(at.Key(corev1.MirrorPodAnnotationKey), "", value, "must set spec.nodeName if mirror pod annotation is set")
	}
	if value := all[tolerationsAnnotation]; value != "" {
		var list []corev1.Toleration
		if err := json.Unmarshal([]byte(value), &list); err != nil {
			r.Invalid(at, "", tolerationsAnnotation, err.Error())
		} else {
			ValidateTolerations(r.Errors, list, at.Child(tolerationsAnnotation))
		}
	}
	if value, ok := all[corev1.PodDeletionCost]; ok && !isCost(value) {
		r.Invalid(at.Key(corev1.PodDeletionCost), "", value, "must be a 32bit integer")
	}
	if value, ok := all[seccompPodAnnotation]; ok {
		r.seccompAnnotation(value, at, seccompPodAnnotation)
	}
	start := r.Len()
	for key, value := range all {
		if strings.HasPrefix(key, seccompContainerAnnotation) {
			r.seccompAnnotation(value, at, key)
		}
	}
	r.SortFrom(start)
	start = r.Len()
	for key, value := range all {
		name, ok := strings.CutPrefix(key, appArmorAnnotation)
		if !ok {
			continue
		}
		if !hasContainer(spec, name) {
			r.Invalid(at.Key(key), "", name, "container not found")
		}
		if value != "" && value != corev1.DeprecatedAppArmorBetaProfileRuntimeDefault && value != corev1.DeprecatedAppArmorBetaProfileNameUnconfined &&
			!strings.HasPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix) {
			r.Invalid(at.Key(key), "", value, fmt.Sprintf("invalid AppArmor profile name: %q", value))
		}
	}
	r.SortFrom(start)
}

// isCost reports whether s is a valid deletion cost of a Pod.
func isCost(s string) bool {
	if s == "" || s[0] == '+' || s[0] == '0' && s != "0" {
		return false
	}
	_, err := strconv.ParseInt(s, 10, 32)
	return err == nil
}

func (r *rules) seccompAnnotation(value string, at *field.Path, key string) {
	local, isLocal := strings.CutPrefix(value, corev1.SeccompLocalhostProfileNamePrefix)
	switch {
	case value == corev1.SeccompProfileRuntimeDefault, value == corev1.DeprecatedSeccompProfileDockerDefault, value == corev1.SeccompProfileNameUnconfined:
	case isLocal:
		r.relative(at, key, local)
	default:
		r.Invalid(at, key, value, "must be a valid seccomp profile")
	}
}

func hasContainer(spec *corev1.PodSpec, name string) bool {
	for c := range eachContainer(spec, lazyPath{unread: true}) {
		if c.Name == name {
			return true
		}
	}
	return false
}

// ValidateProfileAnnotations checks that the annotations and the fields for a profile of a Pod
// agree. At is the path of the spec.
func ValidateProfileAnnotations(errs *check.Errors, p *corev1.Pod, at *field.Path) {
	r := rules{Errors: errs, spec: &p.Spec}
	r.profileAnnotations(p.Annotations, at)
}

func (r *rules) profileAnnotations(all map[string]string, at *field.Path) {
	if len(all) == 0 {
		return
	}
	r.seccompMatches(all, at)
	if !IsWindows(r.spec) {
		r.appArmorMatches(all, at)
	}
}

func (r *rules) seccompMatches(all map[string]string, at *field.Path) {
	match := func(p *corev1.SeccompProfile, key string, at *field.Path) {
		if annotation, ok := all[key]; ok && p != nil {
			r.matches(profile{"seccomp", string(p.Type), p.LocalhostProfile}, annotation, at.Child("securityContext", "seccompProfile"))
		}
	}
	match(r.spec.SecurityContext.SeccompProfile, seccompPodAnnotation, at)
	for c, of := range eachContainer(r.spec, lazyPath{path: at}) {
		if c.SecurityContext != nil {
			match(c.SecurityContext.SeccompProfile, seccompContainerAnnotation+c.Name, of.path)
		}
	}
}

// appArmorMatches compares AppArmor profiles. A container without one has that of the Pod.
func (r *rules) appArmorMatches(all map[string]string, at *field.Path) {
	for c, of := range eachContainer(r.spec, lazyPath{path: at}) {
		p := r.spec.SecurityContext.AppArmorProfile
		if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			p = c.SecurityContext.AppArmorProfile
		}
		if annotation, ok := all[appArmorAnnotation+c.Name]; ok && p != nil {
			r.matches(profile{"apparmor", string(p.Type), p.LocalhostProfile}, annotation, of.path.Child("securityContext", "appArmorProfile"))
		}
	}
}

// matches compares an annotation with a profile.
func (r *rules) matches(p profile, annotation string, at *field.Path) {
	local, isLocal := strings.CutPrefix(annotation, "localhost/")
	mismatch := false
	switch p.kind {
	case "Unconfined":
		mismatch = annotation != "unconfined"
	case "RuntimeDefault":
		mismatch = annotation != "runtime/default" && (p.of != "seccomp" || annotation != "docker/default")
	case "Localhost":
		if isLocal && (p.local == nil || *p.local != local) {
			r.Forbidden(at, "localhostProfile", p.of+" profile in annotation and field must match")
		}
		mismatch = !isLocal
	}
	if mismatch {
		r.Forbidden(at, "type", p.of+" type in annotation and field must match")
	}
}

// profile is a seccomp or an AppArmor profile: they have the same types.
type profile struct {
	of, kind string
	local    *string
}

// SyncAppArmor sets the AppArmor fields of a new Pod from its annotations. It returns warnings.
func SyncAppArmor(p *corev1.Pod) []string {
	if len(p.Annotations) == 0 || IsWindows(&p.Spec) {
		return nil
	}
	var ofPod *corev1.AppArmorProfile
	if p.Spec.SecurityContext != nil {
		ofPod = p.Spec.SecurityContext.AppArmorProfile
	}
	var warnings []string
	for c := range eachContainer(&p.Spec, lazyPath{unread: true}) {
		key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
		annotation, ok := p.Annotations[key]
		if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			continue
		}
		profile := appArmorProfile(annotation)
		if profile != nil && equality.Semantic.DeepEqual(profile, ofPod) {
			continue
		}
		if profile != nil {
			if c.SecurityContext == nil {
				c.SecurityContext = &corev1.SecurityContext{}
			}
			c.SecurityContext.AppArmorProfile = profile
		}
		warnings = append(warnings, fmt.Sprintf(`%s: deprecated since v1.30; use the "appArmorProfile" field instead`, field.NewPath("metadata", "annotations").Key(key)))
	}
	return warnings
}

// appArmorProfile returns the profile of an annotation, or nil if it is invalid.
func appArmorProfile(annotation string) *corev1.AppArmorProfile {
	local, isLocal := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case annotation == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case annotation == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case isLocal && local != "" && local == strings.TrimSpace(local) && len(local) <= maxLocalProfile:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &local}
	}
	return nil
}

// maxLocalProfile is the maximum length of the name of a profile on the node, in bytes, which is
// that of a path.
const maxLocalProfile = 4095
