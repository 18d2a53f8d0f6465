package builtin

import corev1 "k8s.io/api/core/v1"

// qosClass is how much a Pod can count on what it asks for: it is guaranteed when
// each of its containers limits cpu and memory to what it requests, and best effort
// when none says anything of them.
func qosClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	guaranteed, any := true, false
	for _, part := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range part {
			r := &part[i].Resources
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				request, limit := r.Requests[name], r.Limits[name]
				any = any || request.Sign() > 0 || limit.Sign() > 0
				_, requested := r.Requests[name]
				if limit.Sign() <= 0 || requested && request.Cmp(limit) != 0 {
					guaranteed = false
				}
			}
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}
