package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/claimspec"
)

// The default mode of files in a volume: rw-r--r--.
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
		claimspec.Default(&s.Ephemeral.VolumeClaimTemplate.Spec)
	}
	defaultOldVolume(s)
}

// defaultOldVolume sets the defaults of sources that CSI drivers have replaced.
func defaultOldVolume(s *corev1.VolumeSource) {
	if s.ISCSI != nil {
		check.SetIfZero(&s.ISCSI.ISCSIInterface, "default")
	}
	if s.RBD != nil {
		check.SetIfZero(&s.RBD.RBDPool, "rbd")
		check.SetIfZero(&s.RBD.RadosUser, "admin")
		check.SetIfZero(&s.RBD.Keyring, "/etc/ceph/keyring")
	}
	if s.ScaleIO != nil {
		check.SetIfZero(&s.ScaleIO.StorageMode, "ThinProvisioned")
		check.SetIfZero(&s.ScaleIO.FSType, "xfs")
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
	}
}
