package podspec

import corev1 "k8s.io/api/core/v1"

// dropAlpha removes the fields of features that are off by default. They are part of the schemas, so clients may send them.
func dropAlpha(spec *corev1.PodSpec) {
	spec.SchedulingGroup, spec.EvictionResponders = nil, nil
	for i := range spec.Volumes {
		dropAlphaOfVolume(&spec.Volumes[i].VolumeSource)
	}
	for i := range spec.InitContainers {
		dropAlphaOfContainer(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		dropAlphaOfContainer(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		dropAlphaOfContainer((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

func dropAlphaOfVolume(s *corev1.VolumeSource) {
	if s.EmptyDir != nil {
		s.EmptyDir.Mode = nil
	}
	if s.Secret != nil {
		s.Secret.DefaultUser = nil
		dropUsers(s.Secret.Items)
	}
	if s.ConfigMap != nil {
		s.ConfigMap.DefaultUser = nil
		dropUsers(s.ConfigMap.Items)
	}
	if s.DownwardAPI != nil {
		s.DownwardAPI.DefaultUser = nil
		dropFileUsers(s.DownwardAPI.Items)
	}
	if s.Projected == nil {
		return
	}
	s.Projected.DefaultUser = nil
	for i := range s.Projected.Sources {
		p := &s.Projected.Sources[i]
		if p.Secret != nil {
			dropUsers(p.Secret.Items)
		}
		if p.ConfigMap != nil {
			dropUsers(p.ConfigMap.Items)
		}
		if p.DownwardAPI != nil {
			dropFileUsers(p.DownwardAPI.Items)
		}
		if p.ServiceAccountToken != nil {
			p.ServiceAccountToken.User = nil
		}
		if p.ClusterTrustBundle != nil {
			p.ClusterTrustBundle.User = nil
		}
		if p.PodCertificate != nil {
			p.PodCertificate.User = nil
		}
	}
}

func dropUsers(items []corev1.KeyToPath) {
	for i := range items {
		items[i].User = nil
	}
}

func dropFileUsers(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		items[i].User = nil
	}
}

func dropAlphaOfContainer(c *corev1.Container) {
	for i := range c.VolumeMounts {
		c.VolumeMounts[i].BindMountOptions = nil
	}
	for _, p := range [...]*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p == nil {
			continue
		}
		if p.HTTPGet != nil {
			p.HTTPGet.Protocol = nil
		}
		if p.GRPC != nil {
			p.GRPC.Mode = nil
		}
	}
	if c.Lifecycle == nil {
		return
	}
	for _, h := range [...]*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
		if h != nil && h.HTTPGet != nil {
			h.HTTPGet.Protocol = nil
		}
	}
}
