package apps

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
)

// DefaultStatefulSet fills in what a client leaves out.
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
		orPointer(&u.RollingUpdate.Partition, 0)
		u.RollingUpdate.MaxUnavailable = nil // alpha
	}
	orPointer(&s.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	for _, when := range []*appsv1.PersistentVolumeClaimRetentionPolicyType{
		&s.PersistentVolumeClaimRetentionPolicy.WhenDeleted, &s.PersistentVolumeClaimRetentionPolicy.WhenScaled,
	} {
		if *when == "" {
			*when = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
		}
	}
	orPointer(&s.Replicas, 1)
	orPointer(&s.RevisionHistoryLimit, 10)
	for i := range s.VolumeClaimTemplates {
		core.DefaultClaimTemplate(&s.VolumeClaimTemplates[i])
	}
	core.DefaultTemplate(&s.Template)
}
