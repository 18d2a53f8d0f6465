package noderestriction

import (
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// pods allows a node to create and delete mirror Pods of its own, to delete and evict the Pods
// that are assigned to it, and to report their status.
func pods(r request) error {
	switch r.Subresource {
	case "":
		switch r.Operation {
		case admissionv1.Create:
			return newPod(r, r.Object.(*corev1.Pod))
		case admissionv1.Delete:
			if r.Old.(*corev1.Pod).Spec.NodeName != r.node {
				return r.Forbidden("node %q can only delete pods with spec.nodeName set to itself", r.node)
			}
			return nil
		}
		return r.Forbidden("unexpected operation %q, node %q can only create and delete mirror pods", r.Operation, r.node)
	case "status":
		if r.Operation != admissionv1.Update {
			return r.Forbidden("unexpected operation %q", r.Operation)
		}
		return podStatus(r, r.Old.(*corev1.Pod), r.Object.(*corev1.Pod))
	case "eviction":
		p, err := podOf(r, r.Name)
		if err == nil && p.Spec.NodeName != r.node {
			err = r.Forbidden("node %s can only evict pods with spec.nodeName set to itself", r.node)
		}
		return err
	}
	return r.Forbidden("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", r.Subresource)
}

// podOf returns a Pod of the request's namespace.
func podOf(r request, name string) (*corev1.Pod, error) {
	return get[corev1.Pod](r, storedPods, r.Namespace+"/", name)
}

// newPod allows mirror Pods without references to other objects: a node may read the objects that
// its Pods refer to.
func newPod(r request, p *corev1.Pod) error {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		return r.Forbidden("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, r.node)
	}
	if p.Spec.NodeName != r.node {
		return r.Forbidden("node %q can only create pods with spec.nodeName set to itself", r.node)
	}
	if err := ownedByNode(r, p); err != nil {
		return err
	}
	what, err := referenced(p)
	switch {
	case err != nil:
		return r.Forbidden("error checking mirror pod for API references: %w", err)
	case what != "":
		return r.Forbidden("node %q can not create pods that reference %s", r.node, what)
	}
	return nil
}

// ownedByNode checks that the only owner of a Pod is the node.
func ownedByNode(r request, p *corev1.Pod) error {
	if len(p.OwnerReferences) > 1 {
		return r.Forbidden("node %q can only create pods with a single owner reference set to itself", r.node)
	}
	if len(p.OwnerReferences) == 0 {
		return r.Forbidden("node %q can only create pods with an owner reference set to itself", r.node)
	}
	owner := p.OwnerReferences[0]
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != r.node:
		return r.Forbidden("node %q can only create pods with an owner reference set to itself", r.node)
	case !ptr.Deref(owner.Controller, false):
		return r.Forbidden("node %q can only create pods with a controller owner reference set to itself", r.node)
	case ptr.Deref(owner.BlockOwnerDeletion, false):
		return r.Forbidden("node %q must not set blockOwnerDeletion on an owner reference", r.node)
	}
	own, err := get[corev1.Node](r, storedNodes, "", r.node)
	switch {
	case apierrors.IsNotFound(err):
		return err
	case err != nil:
		return r.Forbidden("error looking up node %s to verify uid: %w", r.node, err)
	}
	if owner.UID != own.UID {
		return r.Forbidden("node %s UID mismatch: expected %s got %s", r.node, owner.UID, own.UID)
	}
	return nil
}

// referenced returns the objects that a Pod refers to, in the words of kube-apiserver; empty:
// none.
func referenced(p *corev1.Pod) (string, error) {
	switch {
	case p.Spec.ServiceAccountName != "":
		return "serviceaccounts", nil
	case namesSecret(p):
		return "secrets", nil
	case namesConfigMap(p):
		return "configmaps", nil
	case len(p.Spec.ResourceClaims) > 0:
		return "resourceclaims", nil
	}
	for i := range p.Spec.Volumes {
		if what, err := referencedByVolume(&p.Spec.Volumes[i]); what != "" || err != nil {
			return what, err
		}
	}
	return "", nil
}

func referencedByVolume(v *corev1.Volume) (string, error) {
	switch {
	case v.ConfigMap != nil:
		return "configmaps (via configmap volumes)", nil
	case v.Secret != nil:
		return "secrets (via secret volumes)", nil
	case v.CSI != nil:
		return "csidrivers (via CSI volumes)", nil
	case v.Glusterfs != nil:
		return "endpoints (via glusterFS volumes)", nil
	case v.PersistentVolumeClaim != nil:
		return "persistentvolumeclaims", nil
	case v.Ephemeral != nil:
		return "persistentvolumeclaims (via ephemeral volumes)", nil
	case v.AzureFile != nil:
		return "secrets (via azureFile volumes)", nil
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if what, err := referencedBySource(v.Name, &v.Projected.Sources[i]); what != "" || err != nil {
				return what, err
			}
		}
		return "", nil
	case v.VolumeSource == corev1.VolumeSource{}:
		return "", fmt.Errorf("unknown volume type for volume  %q", v.Name)
	}
	return "", nil
}

func referencedBySource(volume string, s *corev1.VolumeProjection) (string, error) {
	switch {
	case s.ConfigMap != nil:
		return "configmaps (via projected volumes)", nil
	case s.Secret != nil:
		return "secrets (via projected volumes)", nil
	case s.ServiceAccountToken != nil:
		return "serviceaccounts (via projected volumes)", nil
	case s.ClusterTrustBundle != nil:
		return "clustertrustbundles", nil
	case s.PodCertificate != nil:
		return "podcertificates", nil
	case s.DownwardAPI != nil:
		return "", nil
	}
	return "", fmt.Errorf("unknown source for projected volume %q", volume)
}

// anyContainer reports whether a function holds for any container of a Pod.
func anyContainer(p *corev1.Pod, f func(c *corev1.Container) bool) bool {
	s := &p.Spec
	has := func(all []corev1.Container) bool {
		for i := range all {
			if f(&all[i]) {
				return true
			}
		}
		return false
	}
	if has(s.InitContainers) || has(s.Containers) {
		return true
	}
	for i := range s.EphemeralContainers {
		if f((*corev1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon)) {
			return true
		}
	}
	return false
}

func namesSecret(p *corev1.Pod) bool {
	if slices.ContainsFunc(p.Spec.ImagePullSecrets, func(r corev1.LocalObjectReference) bool { return r.Name != "" }) {
		return true
	}
	if anyContainer(p, func(c *corev1.Container) bool {
		return slices.ContainsFunc(c.EnvFrom, func(e corev1.EnvFromSource) bool { return e.SecretRef != nil && e.SecretRef.Name != "" }) ||
			slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
				return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Name != ""
			})
	}) {
		return true
	}
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return volumeNamesSecret(&v) })
}

func volumeNamesSecret(v *corev1.Volume) bool {
	named := func(r *corev1.LocalObjectReference) bool { return r != nil && r.Name != "" }
	switch {
	case v.AzureFile != nil:
		return v.AzureFile.SecretName != ""
	case v.CephFS != nil:
		return named(v.CephFS.SecretRef)
	case v.Cinder != nil:
		return named(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		return named(v.FlexVolume.SecretRef)
	case v.Projected != nil:
		return slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.Secret != nil && s.Secret.Name != "" })
	case v.RBD != nil:
		return named(v.RBD.SecretRef)
	case v.Secret != nil:
		return v.Secret.SecretName != ""
	case v.ScaleIO != nil:
		return named(v.ScaleIO.SecretRef)
	case v.ISCSI != nil:
		return named(v.ISCSI.SecretRef)
	case v.StorageOS != nil:
		return named(v.StorageOS.SecretRef)
	case v.CSI != nil:
		return named(v.CSI.NodePublishSecretRef)
	}
	return false
}

func namesConfigMap(p *corev1.Pod) bool {
	return anyContainer(p, func(c *corev1.Container) bool {
		return slices.ContainsFunc(c.EnvFrom, func(e corev1.EnvFromSource) bool { return e.ConfigMapRef != nil && e.ConfigMapRef.Name != "" }) ||
			slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
				return e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil && e.ValueFrom.ConfigMapKeyRef.Name != ""
			})
	}) || slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		switch {
		case v.Projected != nil:
			return slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ConfigMap != nil && s.ConfigMap.Name != "" })
		case v.ConfigMap != nil:
			return v.ConfigMap.Name != ""
		}
		return false
	})
}

// podStatus allows a node to report the status of its Pods, but not which claims they have: a
// claim of a Pod gives its node the right to read it.
func podStatus(r request, old, next *corev1.Pod) error {
	switch {
	case old.Spec.NodeName != r.node:
		return r.Forbidden("node %q can only update pod status for pods with spec.nodeName set to itself", r.node)
	case !labels.Equals(old.Labels, next.Labels):
		return r.Forbidden("node %q cannot update labels through pod status", r.node)
	case !sameClaims(old.Status.ResourceClaimStatuses, next.Status.ResourceClaimStatuses):
		return r.Forbidden("node %q cannot update resource claim statues", r.node)
	case !equality.Semantic.DeepEqual(old.Status.ExtendedResourceClaimStatus, next.Status.ExtendedResourceClaimStatus):
		return r.Forbidden("node %q cannot update extended resource claim status", r.node)
	case !equality.Semantic.DeepEqual(old.Status.NodeAllocatableResourceClaimStatuses, next.Status.NodeAllocatableResourceClaimStatuses):
		return r.Forbidden("node %q cannot update node allocatable resource claim statuses", r.node)
	}
	return nil
}

func sameClaims(a, b []corev1.PodResourceClaimStatus) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.PodResourceClaimStatus) bool {
		return x.Name == y.Name && ptr.Equal(x.ResourceClaimName, y.ResourceClaimName)
	})
}
