package core

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Annotations that once were what fields are now.
const (
	seccompPodAnnotation       = "seccomp.security.alpha.kubernetes.io/pod"
	seccompContainerAnnotation = "container.seccomp.security.alpha.kubernetes.io/"
	appArmorAnnotation         = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	tolerationsAnnotation      = "scheduler.alpha.kubernetes.io/tolerations"
)

// podAnnotations checks the annotations of a Pod or a template that mean something.
func (f *Faults) podAnnotations(all map[string]string, spec *corev1.PodSpec, at *field.Path) {
	if len(all) == 0 {
		return
	}
	if value, static := all[corev1.MirrorPodAnnotationKey]; static && spec.NodeName == "" {
		f.Invalid(at.Key(corev1.MirrorPodAnnotationKey), "", value, "must set spec.nodeName if mirror pod annotation is set")
	}
	if value := all[tolerationsAnnotation]; value != "" {
		var list []corev1.Toleration
		if err := json.Unmarshal([]byte(value), &list); err != nil {
			f.Invalid(at, "", tolerationsAnnotation, err.Error())
		} else {
			f.tolerations(list, at.Child(tolerationsAnnotation))
		}
	}
	if value, ok := all[corev1.PodDeletionCost]; ok && !isCost(value) {
		f.Invalid(at.Key(corev1.PodDeletionCost), "", value, "must be a 32bit integer")
	}
	if value, ok := all[seccompPodAnnotation]; ok {
		f.seccompAnnotation(value, at, seccompPodAnnotation)
	}
	start := len(f.list)
	for key, value := range all {
		if strings.HasPrefix(key, seccompContainerAnnotation) {
			f.seccompAnnotation(value, at, key)
		}
	}
	f.sortFrom(start)
	start = len(f.list)
	for key, value := range all {
		name, ok := strings.CutPrefix(key, appArmorAnnotation)
		if !ok {
			continue
		}
		if !hasContainer(spec, name) {
			f.Invalid(at.Key(key), "", name, "container not found")
		}
		if value != "" && value != corev1.DeprecatedAppArmorBetaProfileRuntimeDefault && value != corev1.DeprecatedAppArmorBetaProfileNameUnconfined &&
			!strings.HasPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix) {
			f.Invalid(at.Key(key), "", value, fmt.Sprintf("invalid AppArmor profile name: %q", value))
		}
	}
	f.sortFrom(start)
}

// isCost tells the numbers that say how much the deletion of a Pod costs.
func isCost(s string) bool {
	if s == "" || s[0] == '+' || s[0] == '0' && s != "0" {
		return false
	}
	_, err := strconv.ParseInt(s, 10, 32)
	return err == nil
}

func (f *Faults) seccompAnnotation(value string, at *field.Path, key string) {
	local, isLocal := strings.CutPrefix(value, corev1.SeccompLocalhostProfileNamePrefix)
	switch {
	case value == corev1.SeccompProfileRuntimeDefault, value == corev1.DeprecatedSeccompProfileDockerDefault, value == corev1.SeccompProfileNameUnconfined:
	case isLocal:
		f.relative(at, key, local)
	default:
		f.Invalid(at, key, value, "must be a valid seccomp profile")
	}
}

func hasContainer(spec *corev1.PodSpec, name string) bool {
	for c := range eachContainer(spec, place{unread: true}) {
		if c.Name == name {
			return true
		}
	}
	return false
}

// seccompMatches: annotations and fields that say the same say the same.
func (r *podRules) seccompMatches(all map[string]string, at *field.Path) {
	if len(all) == 0 {
		return
	}
	check := func(p *corev1.SeccompProfile, key string, at *field.Path) {
		if annotation, ok := all[key]; ok && p != nil {
			r.matches(profile{"seccomp", string(p.Type), p.LocalhostProfile}, annotation, at.Child("securityContext", "seccompProfile"))
		}
	}
	check(r.spec.SecurityContext.SeccompProfile, seccompPodAnnotation, at)
	for c, of := range eachContainer(r.spec, place{path: at}) {
		at := of.path
		if c.SecurityContext != nil {
			check(c.SecurityContext.SeccompProfile, seccompContainerAnnotation+c.Name, at)
		}
	}
}

// appArmorMatches is the same for AppArmor, where containers have the profile of
// the Pod.
func (r *podRules) appArmorMatches(all map[string]string, at *field.Path) {
	if len(all) == 0 || isWindows(r.spec) {
		return
	}
	for c, of := range eachContainer(r.spec, place{path: at}) {
		at := of.path
		p := r.spec.SecurityContext.AppArmorProfile
		if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			p = c.SecurityContext.AppArmorProfile
		}
		if annotation, ok := all[appArmorAnnotation+c.Name]; ok && p != nil {
			r.matches(profile{"apparmor", string(p.Type), p.LocalhostProfile}, annotation, at.Child("securityContext", "appArmorProfile"))
		}
	}
}

// matches compares an annotation with a profile.
func (f *Faults) matches(p profile, annotation string, at *field.Path) {
	local, isLocal := strings.CutPrefix(annotation, "localhost/")
	mismatch := false
	switch p.kind {
	case "Unconfined":
		mismatch = annotation != "unconfined"
	case "RuntimeDefault":
		mismatch = annotation != "runtime/default" && (p.of != "seccomp" || annotation != "docker/default")
	case "Localhost":
		if isLocal && (p.local == nil || *p.local != local) {
			f.Forbidden(at, "localhostProfile", p.of+" profile in annotation and field must match")
		}
		mismatch = !isLocal
	}
	if mismatch {
		f.Forbidden(at, "type", p.of+" type in annotation and field must match")
	}
}

// profile is of seccomp or of AppArmor, which say it in the same words.
type profile struct {
	of, kind string
	local    *string
}
