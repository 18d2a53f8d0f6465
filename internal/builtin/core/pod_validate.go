package core

import (
	"fmt"
	"math"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// ValidatePod checks a new Pod.
func ValidatePod(p *corev1.Pod) field.ErrorList {
	var errs check.Errors
	podspec.ValidatePod(&errs, p, nil)
	at := field.NewPath("spec")
	if len(p.Spec.EphemeralContainers) > 0 {
		errs.Forbidden(at, "ephemeralContainers", "cannot be set on create")
	}
	if p.Spec.NodeName != "" && len(p.Spec.SchedulingGates) > 0 {
		errs.Forbidden(at, "nodeName", "cannot be set until all schedulingGates have been cleared")
	}
	podspec.ValidateProfileAnnotations(&errs, p, at)
	return errs.List()
}

// podRules checks an update of a Pod, or of one of its subresources.
type podRules struct {
	check.Errors
	spec *corev1.PodSpec
}

// updatable lists the mutable fields for the error of an update.
const updatable = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`," +
	"`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// ValidatePodUpdate checks an update of a Pod. Few fields of the spec are mutable.
func ValidatePodUpdate(p, old *corev1.Pod) field.ErrorList {
	r := podRules{spec: &p.Spec}
	podspec.ValidatePod(&r.Errors, p, old)
	r.annotationUpdates(p, old)
	at := field.NewPath("spec")
	if !r.sameContainers(p.Spec.Containers, old.Spec.Containers, at.Child("containers")) ||
		!r.sameContainers(p.Spec.InitContainers, old.Spec.InitContainers, at.Child("initContainers")) ||
		!r.deadline(old.Spec.ActiveDeadlineSeconds, at) {
		return r.List()
	}
	r.moreTolerations(old.Spec.Tolerations, at.Child("tolerations"))
	r.fewerGates(old.Spec.SchedulingGates, at.Child("schedulingGates"))
	if equality.Semantic.DeepEqual(&p.Spec, &old.Spec) {
		return r.List()
	}
	if next := r.withUpdatable(&old.Spec, at); !equality.Semantic.DeepEqual(next, &old.Spec) {
		r.Forbidden(at, "", "pod updates may not change fields other than "+updatable+"\n"+diff.Diff(check.Bare(&old.Spec), check.Bare(next)))
	}
	return r.List()
}

// annotationUpdates checks that immutable annotations do not change.
func (r *podRules) annotationUpdates(p, old *corev1.Pod) {
	at, start := field.NewPath("metadata", "annotations"), r.Len()
	for key, had := range old.Annotations {
		if has, ok := p.Annotations[key]; ok && has == had {
			continue
		}
		switch {
		case strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix):
			r.Forbidden(at.Key(key), "", "may not remove or update AppArmor annotations")
		case key == corev1.MirrorPodAnnotationKey:
			r.Forbidden(at.Key(key), "", "may not remove or update mirror pod annotation")
		}
	}
	for key := range p.Annotations {
		if _, had := old.Annotations[key]; had {
			continue
		}
		switch {
		case strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix):
			r.Forbidden(at.Key(key), "", "may not add AppArmor annotations")
		case key == corev1.MirrorPodAnnotationKey:
			r.Forbidden(at.Key(key), "", "may not add mirror pod annotation")
		}
	}
	r.SortFrom(start)
	podspec.ValidateAnnotations(&r.Errors, p.Annotations, &p.Spec, at)
}

// sameContainers checks that the number of containers is unchanged, and the images.
func (r *podRules) sameContainers(next, old []corev1.Container, at *field.Path) bool {
	if len(next) != len(old) {
		r.Forbidden(at, "", "pod updates may not add or remove containers")
		return false
	}
	for i := range next {
		if next[i].Image == "" {
			r.Required(at.Index(i), "image", "")
		}
		podspec.ValidateImage(&r.Errors, &next[i], at.Index(i))
	}
	return true
}

// deadline checks that the deadline is set or decreased. It reports whether to go on.
func (r *podRules) deadline(old *int64, at *field.Path) bool {
	switch next := r.spec.ActiveDeadlineSeconds; {
	case next == nil && old != nil:
		r.Invalid(at, "activeDeadlineSeconds", next, "must not update from a positive integer to nil value")
	case next == nil:
	case *next < 0 || *next > math.MaxInt32:
		r.Invalid(at, "activeDeadlineSeconds", *next, validation.InclusiveRangeError(0, math.MaxInt32))
		return false
	case old != nil && *old < *next:
		r.Invalid(at, "activeDeadlineSeconds", *next, "must be less than or equal to previous value")
		return false
	}
	return true
}

func (r *podRules) moreTolerations(old []corev1.Toleration, at *field.Path) {
	type what struct {
		key, value string
		op         corev1.TolerationOperator
		effect     corev1.TaintEffect
	}
	have := make(map[what]bool, len(r.spec.Tolerations))
	for _, t := range r.spec.Tolerations {
		have[what{t.Key, t.Value, t.Operator, t.Effect}] = true
	}
	for _, t := range old {
		if !have[what{t.Key, t.Value, t.Operator, t.Effect}] {
			r.Forbidden(at, "", "existing toleration can not be modified except its tolerationSeconds")
			return
		}
	}
	podspec.ValidateTolerations(&r.Errors, r.spec.Tolerations, at)
}

func (r *podRules) fewerGates(old []corev1.PodSchedulingGate, at *field.Path) {
	var had check.Seen[string]
	for _, g := range old {
		had.Again(g.Name)
	}
	last := make(map[string]int, len(r.spec.SchedulingGates)) // the last of several with one name
	for i, g := range r.spec.SchedulingGates {
		last[g.Name] = i
	}
	for i, g := range r.spec.SchedulingGates {
		if !had.Has(g.Name) && last[g.Name] == i {
			r.Forbidden(at.Index(i), "name", fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", g.Name))
		}
	}
}

// withUpdatable returns the new spec with the mutable fields of the old one.
func (r *podRules) withUpdatable(old *corev1.PodSpec, at *field.Path) *corev1.PodSpec {
	next := r.spec.DeepCopy()
	for i := range next.Containers {
		next.Containers[i].Image = old.Containers[i].Image
	}
	for i := range next.InitContainers {
		next.InitContainers[i].Image = old.InitContainers[i].Image
	}
	next.ActiveDeadlineSeconds = old.ActiveDeadlineSeconds
	next.SchedulingGates = old.SchedulingGates
	next.Tolerations = old.Tolerations
	if len(old.SchedulingGates) > 0 {
		r.gated(next, old, at)
	}
	return next
}

// gated checks a Pod with scheduling gates: its node selector and affinity can be narrowed.
func (r *podRules) gated(next, old *corev1.PodSpec, at *field.Path) {
	for key, value := range old.NodeSelector {
		if has, ok := next.NodeSelector[key]; !ok || has != value {
			r.Invalid(at, "nodeSelector", next.NodeSelector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)")
			break
		}
	}
	next.NodeSelector = old.NodeSelector
	had, has := nodeAffinityOf(old), nodeAffinityOf(next)
	if equality.Semantic.DeepEqual(had, has) {
		return
	}
	r.narrower(has, had, at.Child("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"))
	switch {
	case next.Affinity == nil:
		next.Affinity = &corev1.Affinity{NodeAffinity: had}
	case old.Affinity == nil && next.Affinity.PodAffinity == nil && next.Affinity.PodAntiAffinity == nil:
		next.Affinity = nil
	default:
		next.Affinity.NodeAffinity = had
	}
}

func nodeAffinityOf(spec *corev1.PodSpec) *corev1.NodeAffinity {
	if spec.Affinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity
}

func (r *podRules) narrower(next, old *corev1.NodeAffinity, at *field.Path) {
	if old == nil || old.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return
	}
	had := old.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	var has []corev1.NodeSelectorTerm
	if next != nil && next.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		has = next.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	if len(had) > 0 && len(had) != len(has) {
		r.Invalid(at, "", check.Bare(has), "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
		return
	}
	for i := range had {
		fromNothing := len(had[i].MatchExpressions)+len(had[i].MatchFields) == 0 && len(has[i].MatchExpressions)+len(has[i].MatchFields) > 0
		if fromNothing || !startsWith(has[i].MatchExpressions, had[i].MatchExpressions) || !startsWith(has[i].MatchFields, had[i].MatchFields) {
			r.Invalid(at.Index(i), "", check.Bare(has[i]), "only additions are allowed (no mutations or deletions)")
		}
	}
}

func startsWith(all, first []corev1.NodeSelectorRequirement) bool {
	return len(all) >= len(first) && (len(first) == 0 || reflect.DeepEqual(all[:len(first)], first))
}
