package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// The modes of files that a volume makes, where it does not say: rw-r--r--.
const defaultFileMode = 0o644

func defaultVolume(v *corev1.Volume) {
	s := &v.VolumeSource
	if *s == (corev1.VolumeSource{}) {
		s.EmptyDir = &corev1.EmptyDirVolumeSource{}
		return
	}
	if s.Image != nil && s.Image.PullPolicy == "" {
		s.Image.PullPolicy = pullPolicy(s.Image.Reference)
	}
	if s.HostPath != nil && s.HostPath.Type == nil {
		s.HostPath.Type = ptr.To(corev1.HostPathUnset)
	}
	if s.Secret != nil {
		defaultMode(&s.Secret.DefaultMode)
	}
	if s.ConfigMap != nil {
		defaultMode(&s.ConfigMap.DefaultMode)
	}
	if s.DownwardAPI != nil {
		defaultMode(&s.DownwardAPI.DefaultMode)
		defaultFiles(s.DownwardAPI.Items)
	}
	if s.Projected != nil {
		defaultProjected(s.Projected)
	}
	if s.Ephemeral != nil && s.Ephemeral.VolumeClaimTemplate != nil {
		DefaultClaimSpec(&s.Ephemeral.VolumeClaimTemplate.Spec)
	}
	defaultOldVolume(s)
}

// defaultOldVolume is of the sources that drivers have taken over.
func defaultOldVolume(s *corev1.VolumeSource) {
	if s.ISCSI != nil {
		or(&s.ISCSI.ISCSIInterface, "default")
	}
	if s.RBD != nil {
		or(&s.RBD.RBDPool, "rbd")
		or(&s.RBD.RadosUser, "admin")
		or(&s.RBD.Keyring, "/etc/ceph/keyring")
	}
	if s.ScaleIO != nil {
		or(&s.ScaleIO.StorageMode, "ThinProvisioned")
		or(&s.ScaleIO.FSType, "xfs")
	}
	if d := s.AzureDisk; d != nil {
		if d.CachingMode == nil {
			d.CachingMode = ptr.To(corev1.AzureDataDiskCachingReadWrite)
		}
		if d.FSType == nil {
			d.FSType = ptr.To("ext4")
		}
		if d.ReadOnly == nil {
			d.ReadOnly = ptr.To(false)
		}
		if d.Kind == nil {
			d.Kind = ptr.To(corev1.AzureSharedBlobDisk)
		}
	}
}

func defaultMode(mode **int32) {
	if *mode == nil {
		*mode = ptr.To[int32](defaultFileMode)
	}
}

func defaultFiles(all []corev1.DownwardAPIVolumeFile) {
	for i := range all {
		defaultFieldRef(all[i].FieldRef)
	}
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	defaultMode(&p.DefaultMode)
	for i := range p.Sources {
		s := &p.Sources[i]
		if s.DownwardAPI != nil {
			defaultFiles(s.DownwardAPI.Items)
		}
		if s.ServiceAccountToken != nil && s.ServiceAccountToken.ExpirationSeconds == nil {
			s.ServiceAccountToken.ExpirationSeconds = ptr.To[int64](60 * 60)
		}
		s.ClusterTrustBundle, s.PodCertificate = nil, nil // off, as by default
	}
}

// DefaultClaimSpec fills in what a client leaves out of a claim, of its own or in a
// template.
func DefaultClaimSpec(c *corev1.PersistentVolumeClaimSpec) {
	if c.VolumeMode == nil {
		c.VolumeMode = ptr.To(corev1.PersistentVolumeFilesystem)
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
}

// DefaultClaimTemplate fills in what a client leaves out of a claim that stands in
// another object. The kind is always said there.
func DefaultClaimTemplate(c *corev1.PersistentVolumeClaim) {
	c.APIVersion, c.Kind = "v1", "PersistentVolumeClaim"
	or(&c.Status.Phase, corev1.ClaimPending)
	DefaultClaimSpec(&c.Spec)
	roundUp(c.Status.Capacity)
	roundUp(c.Status.AllocatedResources)
}
