package columns

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// storage are the kinds of volumes.
var storage = []kind{
	of(volumeColumns, volume),
	of(claimColumns, claim),
	of(func() []column {
		d := storagev1.StorageClass{}
		return nameAndAge(str("Provisioner", doc(d, "provisioner")), str("ReclaimPolicy", doc(d, "reclaimPolicy")),
			str("VolumeBindingMode", doc(d, "volumeBindingMode")), str("AllowVolumeExpansion", doc(d, "allowVolumeExpansion")))
	}, func(o *storagev1.StorageClass, r *resource.Row) { storageClass(o, r, o.Name) }).
		first(defaultClass, func(o runtime.Object, r *resource.Row) {
			c := o.(*storagev1.StorageClass)
			storageClass(c, r, c.Name+" (default)")
		}),
	of(func() []column {
		return nameAndAge(str("DriverName", doc(storagev1.VolumeAttributesClass{}, "driverName")))
	}, func(o *storagev1.VolumeAttributesClass, r *resource.Row) {
		r.String(o.Name)
		r.String(o.DriverName)
		since(r, o)
	}),
	of(func() []column {
		d := storagev1.VolumeAttachmentSpec{}
		attacher := str("Attacher", doc(d, "attacher"))
		attacher.Format = "name"
		return nameAndAge(attacher, str("PV", doc(storagev1.VolumeAttachmentSource{}, "persistentVolumeName")), str("Node", doc(d, "nodeName")),
			flag("Attached", doc(storagev1.VolumeAttachmentStatus{}, "attached")))
	}, func(o *storagev1.VolumeAttachment, r *resource.Row) {
		r.String(o.Name)
		r.String(o.Spec.Attacher)
		r.String(deref(o.Spec.Source.PersistentVolumeName, ""))
		r.String(o.Spec.NodeName)
		r.Bool(o.Status.Attached)
		since(r, o)
	}),
	of(func() []column {
		return nameAndAge(num("Drivers", "Drivers indicates the number of CSI drivers registered on the node"))
	}, func(o *storagev1.CSINode, r *resource.Row) {
		r.String(o.Name)
		r.Int(int64(len(o.Spec.Drivers)))
		since(r, o)
	}),
	of(func() []column {
		d := storagev1.CSIDriverSpec{}
		return nameAndAge(flag("AttachRequired", doc(d, "attachRequired")), flag("PodInfoOnMount", doc(d, "podInfoOnMount")),
			flag("StorageCapacity", doc(d, "storageCapacity")), str("TokenRequests", doc(d, "tokenRequests")),
			flag("RequiresRepublish", doc(d, "requiresRepublish")), str("Modes", doc(d, "volumeLifecycleModes")))
	}, driver),
}

func storageClass(o *storagev1.StorageClass, r *resource.Row, title string) {
	r.String(title)
	r.String(o.Provisioner)
	r.String(string(deref(o.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)))
	r.String(string(deref(o.VolumeBindingMode, storagev1.VolumeBindingImmediate)))
	r.Bool(deref(o.AllowVolumeExpansion, false))
	since(r, o)
}

// defaultClass prefers the newest class that is marked as the default, and of equally new ones the first by name.
func defaultClass(o, other runtime.Object) bool {
	c := o.(*storagev1.StorageClass)
	if c.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" && c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] != "true" {
		return false
	}
	if other == nil {
		return true
	}
	d := other.(*storagev1.StorageClass)
	if c.CreationTimestamp.Equal(&d.CreationTimestamp) {
		return c.Name < d.Name
	}
	return c.CreationTimestamp.After(d.CreationTimestamp.Time)
}

func volumeColumns() []column {
	spec, status := corev1.PersistentVolumeSpec{}, corev1.PersistentVolumeStatus{}
	return append(nameAndAge(
		str("Capacity", doc(spec, "capacity")), str("Access Modes", doc(spec, "accessModes")),
		str("Reclaim Policy", doc(spec, "persistentVolumeReclaimPolicy")), str("Status", doc(status, "phase")),
		str("Claim", doc(spec, "claimRef")), str("StorageClass", "StorageClass of the pv"),
		str("VolumeAttributesClass", "VolumeAttributesClass of the pv"), str("Reason", doc(status, "reason"))),
		wide(str("VolumeMode", doc(spec, "volumeMode")))...)
}

func volume(o *corev1.PersistentVolume, r *resource.Row) {
	claim := ""
	if c := o.Spec.ClaimRef; c != nil {
		claim = c.Namespace + "/" + c.Name
	}
	size := o.Spec.Capacity[corev1.ResourceStorage]
	phase := string(o.Status.Phase)
	if o.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	r.String(o.Name)
	r.String(size.String())
	r.String(accessModes(o.Spec.AccessModes))
	r.String(string(o.Spec.PersistentVolumeReclaimPolicy))
	r.String(phase)
	r.String(claim)
	r.String(class(o.Annotations, o.Spec.StorageClassName))
	r.String(deref(o.Spec.VolumeAttributesClassName, "<unset>"))
	r.String(o.Status.Reason)
	since(r, o)
	r.String(string(deref(o.Spec.VolumeMode, "<unset>")))
}

func claimColumns() []column {
	spec, status := corev1.PersistentVolumeClaimSpec{}, corev1.PersistentVolumeClaimStatus{}
	return append(nameAndAge(
		str("Status", doc(status, "phase")), str("Volume", doc(spec, "volumeName")), str("Capacity", doc(status, "capacity")),
		str("Access Modes", doc(status, "accessModes")), str("StorageClass", "StorageClass of the pvc"),
		str("VolumeAttributesClass", "VolumeAttributesClass of the pvc")),
		wide(str("VolumeMode", doc(spec, "volumeMode")))...)
}

func claim(o *corev1.PersistentVolumeClaim, r *resource.Row) {
	phase, capacity, modes := string(o.Status.Phase), "", ""
	if o.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	if o.Spec.VolumeName != "" {
		size := o.Status.Capacity[corev1.ResourceStorage]
		capacity, modes = size.String(), accessModes(o.Status.AccessModes)
	}
	r.String(o.Name)
	r.String(phase)
	r.String(o.Spec.VolumeName)
	r.String(capacity)
	r.String(modes)
	r.String(class(o.Annotations, deref(o.Spec.StorageClassName, "")))
	r.String(deref(o.Spec.VolumeAttributesClassName, "<unset>"))
	since(r, o)
	r.String(string(deref(o.Spec.VolumeMode, "<unset>")))
}

// class returns the storage class. The annotation, which is older, overrides the field.
func class(annotations map[string]string, field string) string {
	if class, ok := annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	return field
}

// accessModes returns the short names of access modes, without duplicates, in kubectl's order.
func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var short []string
	for _, m := range []struct {
		mode corev1.PersistentVolumeAccessMode
		name string
	}{
		{corev1.ReadWriteOnce, "RWO"},
		{corev1.ReadOnlyMany, "ROX"},
		{corev1.ReadWriteMany, "RWX"},
		{corev1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(modes, m.mode) {
			short = append(short, m.name)
		}
	}
	return strings.Join(short, ",")
}

func driver(o *storagev1.CSIDriver, r *resource.Row) {
	s := &o.Spec
	modes := make([]string, len(s.VolumeLifecycleModes))
	for i, m := range s.VolumeLifecycleModes {
		modes[i] = string(m)
	}
	r.String(o.Name)
	r.Bool(deref(s.AttachRequired, true))
	r.Bool(deref(s.PodInfoOnMount, false))
	r.Bool(deref(s.StorageCapacity, false))
	if s.TokenRequests == nil {
		r.String("<unset>")
	} else {
		audiences := make([]string, len(s.TokenRequests))
		for i, t := range s.TokenRequests {
			audiences[i] = t.Audience
		}
		joined(r, audiences, "")
	}
	r.Bool(deref(s.RequiresRepublish, false))
	joined(r, modes, "<none>")
	since(r, o)
}
