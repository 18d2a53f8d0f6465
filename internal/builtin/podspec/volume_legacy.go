package podspec

import (
	"net"
	"path"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// This file has the volumes whose drivers were once part of Kubernetes.

func (r *rules) need(at *field.Path, name, value string) {
	if value == "" {
		r.Required(at, name, "")
	}
}

// needName checks that a reference to a Secret has a name.
func (r *rules) needName(at *field.Path, ref *corev1.LocalObjectReference) {
	if ref != nil && ref.Name == "" {
		r.Required(at.Child("secretRef"), "name", "")
	}
}

func (r *rules) byte(at *field.Path, name string, n, least int32) {
	if n < 0 || n > 255 {
		r.Invalid(at, name, n, validation.InclusiveRangeError(int(least), 255))
	}
}

func gitRepo(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("gitRepo")
	r.need(at, "repository", s.GitRepo.Repository)
	r.relative(at, "directory", s.GitRepo.Directory)
}

func gcePersistentDisk(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("persistentDisk")
	r.need(at, "pdName", s.GCEPersistentDisk.PDName)
	r.byte(at, "partition", s.GCEPersistentDisk.Partition, 1)
}

func awsElasticBlockStore(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("awsElasticBlockStore")
	r.need(at, "volumeID", s.AWSElasticBlockStore.VolumeID)
	r.byte(at, "partition", s.AWSElasticBlockStore.Partition, 1)
}

func nfs(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("nfs")
	r.need(at, "server", s.NFS.Server)
	r.need(at, "path", s.NFS.Path)
	if !path.IsAbs(s.NFS.Path) {
		r.Invalid(at, "path", s.NFS.Path, "must be an absolute path")
	}
}

// iscsiNames are the forms of names by their prefixes.
var iscsiNames = []struct {
	prefix string
	form   *regexp.Regexp
}{
	{"iqn", regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`)},
	{"eui", regexp.MustCompile(`^eui.[[:alnum:]]{16}$`)},
	{"naa", regexp.MustCompile(`^naa.[[:alnum:]]{32}$`)},
}

func (r *rules) iscsiName(at *field.Path, name, value string) {
	for _, n := range iscsiNames {
		if strings.HasPrefix(value, n.prefix) {
			if !n.form.MatchString(value) {
				r.Invalid(at, name, value, "must be valid format")
			}
			return
		}
	}
	r.Invalid(at, name, value, "must be valid format starting with iqn, eui, or naa")
}

func iscsi(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("iscsi")
	v := s.ISCSI
	r.need(at, "targetPortal", v.TargetPortal)
	if v.IQN == "" {
		r.Required(at, "iqn", "")
	} else {
		r.iscsiName(at, "iqn", v.IQN)
	}
	r.byte(at, "lun", v.Lun, 0)
	if (v.DiscoveryCHAPAuth || v.SessionCHAPAuth) && v.SecretRef == nil {
		r.Required(at, "secretRef", "")
	}
	if v.InitiatorName != nil {
		r.iscsiName(at, "initiatorname", *v.InitiatorName)
	}
}

func glusterfs(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("glusterfs")
	r.need(at, "endpoints", s.Glusterfs.EndpointsName)
	r.need(at, "path", s.Glusterfs.Path)
}

func flocker(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("flocker")
	v := s.Flocker
	switch {
	case v.DatasetName == "" && v.DatasetUUID == "":
		r.Required(at, "", "one of datasetName and datasetUUID is required")
	case v.DatasetName != "" && v.DatasetUUID != "":
		r.Invalid(at, "", "resource", "datasetName and datasetUUID can not be specified simultaneously")
	}
	if strings.Contains(v.DatasetName, "/") {
		r.Invalid(at, "datasetName", v.DatasetName, "must not contain '/'")
	}
}

func rbd(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("rbd")
	if len(s.RBD.CephMonitors) == 0 {
		r.Required(at, "monitors", "")
	}
	r.need(at, "image", s.RBD.RBDImage)
}

func cinder(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("cinder")
	r.need(at, "volumeID", s.Cinder.VolumeID)
	r.needName(at, s.Cinder.SecretRef)
}

func cephFS(r *rules, s *corev1.VolumeSource, at *field.Path) {
	if len(s.CephFS.Monitors) == 0 {
		r.Required(at.Child("cephfs"), "monitors", "")
	}
}

func quobyte(r *rules, s *corev1.VolumeSource, at *field.Path) {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	at = at.Child("quobyte")
	v := s.Quobyte
	switch {
	case v.Registry == "":
		r.Required(at, "registry", pairs)
	case len(v.Tenant) >= 65:
		r.Required(at, "tenant", "must be a UUID and may not exceed a length of 64 characters")
	default:
		for pair := range strings.SplitSeq(v.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				r.Invalid(at, "registry", v.Registry, pairs)
			}
		}
	}
	r.need(at, "volume", v.Volume)
}

func fibreChannel(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("fc")
	v := s.FC
	switch {
	case len(v.TargetWWNs) == 0 && len(v.WWIDs) == 0:
		r.Required(at, "targetWWNs", "must specify either targetWWNs or wwids, but not both")
	case len(v.TargetWWNs) > 0 && len(v.WWIDs) > 0:
		r.Invalid(at, "targetWWNs", v.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously")
	}
	switch {
	case len(v.TargetWWNs) == 0:
	case v.Lun == nil:
		r.Required(at, "lun", "lun is required if targetWWNs is specified")
	default:
		r.byte(at, "lun", *v.Lun, 0)
	}
}

func flexVolume(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("flexVolume")
	r.need(at, "driver", s.FlexVolume.Driver)
	start := r.Len()
	for key := range s.FlexVolume.Options {
		domain, _, _ := strings.Cut(key, "/")
		domain = "." + strings.ToLower(domain)
		if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			r.Invalid(at.Child("options").Key(key), "", key, "kubernetes.io and k8s.io namespaces are reserved")
		}
	}
	r.SortFrom(start)
}

func azureFile(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("azureFile")
	r.need(at, "secretName", s.AzureFile.SecretName)
	r.need(at, "shareName", s.AzureFile.ShareName)
}

func vsphere(r *rules, s *corev1.VolumeSource, at *field.Path) {
	r.need(at.Child("vsphereVolume"), "volumePath", s.VsphereVolume.VolumePath)
}

func photon(r *rules, s *corev1.VolumeSource, at *field.Path) {
	r.need(at.Child("photonPersistentDisk"), "pdID", s.PhotonPersistentDisk.PdID)
}

func portworx(r *rules, s *corev1.VolumeSource, at *field.Path) {
	r.need(at.Child("portworxVolume"), "volumeID", s.PortworxVolume.VolumeID)
}

var (
	azureCachingModes = []corev1.AzureDataDiskCachingMode{corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite}
	azureDiskKinds    = []corev1.AzureDataDiskKind{corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk}
)

func azureDisk(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("azureDisk")
	v := s.AzureDisk
	r.need(at, "diskName", v.DiskName)
	r.need(at, "diskURI", v.DataDiskURI)
	check.Enum(r.Errors, at, "cachingMode", *v.CachingMode, azureCachingModes)
	check.Enum(r.Errors, at, "kind", *v.Kind, azureDiskKinds)
	prefix, form := "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if *v.Kind == corev1.AzureManagedDisk {
		prefix, form = "/subscriptions/", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if !strings.HasPrefix(v.DataDiskURI, prefix) {
		r.Add(field.NotSupported(at.Child("diskURI"), v.DataDiskURI, []string{form}))
	}
}

func storageOS(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("storageos")
	v := s.StorageOS
	if v.VolumeName == "" {
		r.Required(at, "volumeName", "")
	} else {
		r.Each(at, "volumeName", v.VolumeName, check.LabelFaults(v.VolumeName))
	}
	if v.VolumeNamespace != "" {
		r.Each(at, "volumeNamespace", v.VolumeNamespace, check.LabelFaults(v.VolumeNamespace))
	}
	r.needName(at, v.SecretRef)
}

func scaleIO(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("scaleIO")
	r.need(at, "gateway", s.ScaleIO.Gateway)
	r.need(at, "system", s.ScaleIO.System)
	r.need(at, "volumeName", s.ScaleIO.VolumeName)
}
