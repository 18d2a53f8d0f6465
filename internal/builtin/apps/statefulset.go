package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/claimspec"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// DefaultStatefulSetOneByOne sets the defaults of versions without updateStrategy.rollingUpdate.maxUnavailable.
func DefaultStatefulSetOneByOne(o *appsv1.StatefulSet) {
	var sent *intstr.IntOrString
	if u := o.Spec.UpdateStrategy.RollingUpdate; u != nil {
		sent = u.MaxUnavailable
	}
	DefaultStatefulSet(o)
	if u := o.Spec.UpdateStrategy.RollingUpdate; u != nil {
		u.MaxUnavailable = sent
	}
}

// DefaultStatefulSet sets the defaults.
func DefaultStatefulSet(o *appsv1.StatefulSet) {
	s := &o.Spec
	if s.PodManagementPolicy == "" {
		s.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}
	if u := &s.UpdateStrategy; u.Type == "" {
		u.Type = appsv1.RollingUpdateStatefulSetStrategyType
		if u.RollingUpdate == nil {
			u.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{}
		}
	}
	if u := &s.UpdateStrategy; u.Type == appsv1.RollingUpdateStatefulSetStrategyType && u.RollingUpdate != nil {
		check.SetIfNil(&u.RollingUpdate.Partition, 0)
		check.SetIfNil(&u.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	check.SetIfNil(&s.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	for _, when := range []*appsv1.PersistentVolumeClaimRetentionPolicyType{
		&s.PersistentVolumeClaimRetentionPolicy.WhenDeleted, &s.PersistentVolumeClaimRetentionPolicy.WhenScaled,
	} {
		if *when == "" {
			*when = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
		}
	}
	check.SetIfNil(&s.Replicas, 1)
	check.SetIfNil(&s.RevisionHistoryLimit, 10)
	for i := range s.VolumeClaimTemplates {
		c := &s.VolumeClaimTemplates[i]
		c.APIVersion, c.Kind = "v1", "PersistentVolumeClaim" // also where the client left them out
		claimspec.DefaultClaim(c)
	}
	podspec.DefaultTemplate(&s.Template)
}

// ValidateStatefulSet checks a new StatefulSet.
func ValidateStatefulSet(o *appsv1.StatefulSet) field.ErrorList {
	var errs check.Errors
	validateStatefulSet(&errs, &o.Spec, true)
	return errs.List()
}

// ValidateStatefulSetUpdate checks an update: only some fields of the spec are mutable.
func ValidateStatefulSetUpdate(o, old *appsv1.StatefulSet) field.ErrorList {
	var errs check.Errors
	validateStatefulSet(&errs, &o.Spec, false)
	at, next, was := field.NewPath("spec"), &o.Spec, &old.Spec
	errs.Immutable(at, "selector", next.Selector, was.Selector)
	errs.Immutable(at, "volumeClaimTemplates", next.VolumeClaimTemplates, was.VolumeClaimTemplates)
	errs.Immutable(at, "serviceName", next.ServiceName, was.ServiceName)
	errs.Immutable(at, "podManagementPolicy", next.PodManagementPolicy, was.PodManagementPolicy)
	return errs.List()
}

var retentions = []appsv1.PersistentVolumeClaimRetentionPolicyType{
	appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
}

// validateStatefulSet checks a spec. Immutable fields are checked only if the object is new.
func validateStatefulSet(errs *check.Errors, s *appsv1.StatefulSetSpec, isNew bool) {
	at := field.NewPath("spec")
	switch s.PodManagementPolicy {
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	default:
		errs.Invalid(at, "podManagementPolicy", s.PodManagementPolicy, "must be 'OrderedReady' or 'Parallel'")
	}
	validateStatefulSetStrategy(errs, &s.UpdateStrategy, at.Child("updateStrategy"))
	check.Enum(errs, at.Child("persistentVolumeClaimRetentionPolicy"), "whenDeleted", s.PersistentVolumeClaimRetentionPolicy.WhenDeleted, retentions)
	check.Enum(errs, at.Child("persistentVolumeClaimRetentionPolicy"), "whenScaled", s.PersistentVolumeClaimRetentionPolicy.WhenScaled, retentions)
	for i := 0; isNew && i < len(s.VolumeClaimTemplates); i++ {
		errs.Add(claimspec.Validate(&s.VolumeClaimTemplates[i].Spec, nil, at.Child("volumeClaimTemplates").Index(i).Child("spec"))...)
	}
	errs.NonNegative(at, "replicas", int64(*s.Replicas))
	errs.NonNegative(at, "minReadySeconds", int64(s.MinReadySeconds))
	if s.Ordinals != nil {
		errs.NonNegative(at, "ordinals.start", int64(s.Ordinals.Start))
	}
	if isNew && s.ServiceName != "" {
		errs.Each(at, "serviceName", s.ServiceName, validation.IsDNS1123Label(s.ServiceName))
	}
	if s.Selector == nil {
		errs.Required(at, "selector", "")
	} else {
		errs.LabelSelector(s.Selector, at.Child("selector"))
		if len(s.Selector.MatchLabels)+len(s.Selector.MatchExpressions) == 0 {
			errs.Invalid(at, "selector", s.Selector, "empty selector is invalid for statefulset")
		}
	}
	t := at.Child("template")
	if selectsTemplate(errs, s.Selector, &s.Template, t) {
		podspec.ValidateTemplate(errs, withClaims(s), t)
		podspec.ValidateTemplateMeta(errs, &s.Template, t)
	} else {
		errs.Invalid(at, "selector", s.Selector, "")
	}
	podspec.RequireRestartAlways(errs, &s.Template, t, "StatefulSet")
}

// withClaims returns the template as the controller uses it for Pods: with volumes for the claims,
// and without the host name and subdomain, which the controller sets.
func withClaims(s *appsv1.StatefulSetSpec) *corev1.PodTemplateSpec {
	t := s.Template
	t.Spec.Subdomain, t.Spec.Hostname = "", ""
	if len(s.VolumeClaimTemplates) == 0 {
		return &t
	}
	own := make(map[string]bool, len(s.VolumeClaimTemplates))
	t.Spec.Volumes = nil
	for i := range s.VolumeClaimTemplates {
		name := s.VolumeClaimTemplates[i].Name
		if own[name] {
			continue
		}
		own[name] = true
		t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
	for _, v := range s.Template.Spec.Volumes {
		if !own[v.Name] {
			t.Spec.Volumes = append(t.Spec.Volumes, v)
		}
	}
	return &t
}

func validateStatefulSetStrategy(errs *check.Errors, s *appsv1.StatefulSetUpdateStrategy, at *field.Path) {
	switch u := s.RollingUpdate; s.Type {
	case appsv1.OnDeleteStatefulSetStrategyType:
		if u != nil {
			errs.Invalid(at, "rollingUpdate", check.Bare(shownStrategy(s).RollingUpdate), "only allowed for updateStrategy 'RollingUpdate'")
		}
	case appsv1.RollingUpdateStatefulSetStrategyType:
		if u == nil {
			break
		}
		at = at.Child("rollingUpdate")
		check.NonNegativeIfSet(errs, at, "partition", u.Partition)
		if m := u.MaxUnavailable; m != nil {
			amount(errs, at, "maxUnavailable", m)
			if isZero(m) {
				errs.Invalid(at, "maxUnavailable", *m, "cannot be 0")
			}
			notAll(errs, at, "maxUnavailable", m)
		}
	default:
		errs.Invalid(at, "", check.Bare(shownStrategy(s)), "must be 'RollingUpdate' or 'OnDelete'")
	}
}

// shownStrategy returns a strategy as kube-apiserver's errors show it, with zero for an unset
// partition.
func shownStrategy(s *appsv1.StatefulSetUpdateStrategy) *appsv1.StatefulSetUpdateStrategy {
	shown := s.DeepCopy()
	if shown.RollingUpdate != nil {
		check.SetIfNil(&shown.RollingUpdate.Partition, 0)
	}
	return shown
}

// ValidateStatefulSetStatus checks an update of the status.
func ValidateStatefulSetStatus(o, old *appsv1.StatefulSet) field.ErrorList {
	var errs check.Errors
	s, at := &o.Status, field.NewPath("status")
	errs.NonNegative(at, "replicas", int64(s.Replicas))
	errs.NonNegative(at, "readyReplicas", int64(s.ReadyReplicas))
	errs.NonNegative(at, "currentReplicas", int64(s.CurrentReplicas))
	errs.NonNegative(at, "updatedReplicas", int64(s.UpdatedReplicas))
	errs.NonNegative(at, "availableReplicas", int64(s.AvailableReplicas))
	errs.NonNegative(at, "observedGeneration", s.ObservedGeneration)
	check.NonNegativeIfSet(&errs, at, "collisionCount", s.CollisionCount)
	errs.AtMostReplicas(at, "readyReplicas", s.ReadyReplicas, s.Replicas)
	errs.AtMostReplicas(at, "currentReplicas", s.CurrentReplicas, s.Replicas)
	errs.AtMostReplicas(at, "updatedReplicas", s.UpdatedReplicas, s.Replicas)
	errs.AtMostReplicas(at, "availableReplicas", s.AvailableReplicas, s.Replicas)
	if s.AvailableReplicas > s.ReadyReplicas {
		errs.Invalid(at, "availableReplicas", s.AvailableReplicas, "cannot be greater than status.readyReplicas")
	}
	notDecremented(&errs, s.CollisionCount, old.Status.CollisionCount)
	return errs.List()
}
