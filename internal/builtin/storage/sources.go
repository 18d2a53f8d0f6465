package storage

import (
	"net"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// defaultSource sets the defaults of volume sources.
func defaultSource(s *corev1.PersistentVolumeSource) {
	if h := s.HostPath; h != nil && h.Type == nil {
		kind := corev1.HostPathUnset
		h.Type = &kind
	}
	if i := s.ISCSI; i != nil {
		or(&i.ISCSIInterface, "default")
	}
	if r := s.RBD; r != nil {
		or(&r.RBDPool, "rbd")
		or(&r.RadosUser, "admin")
		or(&r.Keyring, "/etc/ceph/keyring")
	}
	if i := s.ScaleIO; i != nil {
		or(&i.StorageMode, "ThinProvisioned")
		or(&i.FSType, "xfs")
	}
	a := s.AzureDisk
	if a == nil {
		return
	}
	if a.CachingMode == nil {
		a.CachingMode = ptr(corev1.AzureDataDiskCachingReadWrite)
	}
	if a.Kind == nil {
		a.Kind = ptr(corev1.AzureSharedBlobDisk)
	}
	if a.FSType == nil {
		a.FSType = ptr("ext4")
	}
	if a.ReadOnly == nil {
		a.ReadOnly = new(bool)
	}
}

func ptr[T any](v T) *T { return &v }

func or(to *string, value string) {
	if *to == "" {
		*to = value
	}
}

// source is one of the sources of a volume. For some, kube-apiserver's errors have different names
// for the member and its faults.
type source struct {
	name, at string
	there    bool
	validate func(*field.Path) field.ErrorList
}

func sourcesOf(spec *corev1.PersistentVolumeSpec, volume string) []source {
	s := &spec.PersistentVolumeSource
	return []source{
		{"hostPath", "", s.HostPath != nil, func(p *field.Path) field.ErrorList { return hostPath(s.HostPath, p) }},
		{"gcePersistentDisk", "persistentDisk", s.GCEPersistentDisk != nil, func(p *field.Path) field.ErrorList {
			return disk(s.GCEPersistentDisk.PDName, s.GCEPersistentDisk.Partition, p, "pdName")
		}},
		{"awsElasticBlockStore", "", s.AWSElasticBlockStore != nil, func(p *field.Path) field.ErrorList {
			return disk(s.AWSElasticBlockStore.VolumeID, s.AWSElasticBlockStore.Partition, p, "volumeID")
		}},
		{"glusterfs", "", s.Glusterfs != nil, func(p *field.Path) field.ErrorList { return glusterfs(s.Glusterfs, p) }},
		{"flocker", "", s.Flocker != nil, func(p *field.Path) field.ErrorList { return flocker(s.Flocker, p) }},
		{"nfs", "", s.NFS != nil, func(p *field.Path) field.ErrorList { return nfs(s.NFS, p) }},
		{"rbd", "", s.RBD != nil, func(p *field.Path) field.ErrorList {
			return append(some(s.RBD.CephMonitors, p.Child("monitors")), required(p, "image", s.RBD.RBDImage)...)
		}},
		{"quobyte", "", s.Quobyte != nil, func(p *field.Path) field.ErrorList { return quobyte(s.Quobyte, p) }},
		{"cephFS", "cephfs", s.CephFS != nil, func(p *field.Path) field.ErrorList { return some(s.CephFS.Monitors, p.Child("monitors")) }},
		{"iscsi", "", s.ISCSI != nil, func(p *field.Path) field.ErrorList { return iscsi(s.ISCSI, volume, p) }},
		{"cinder", "", s.Cinder != nil, func(p *field.Path) field.ErrorList {
			return append(required(p, "volumeID", s.Cinder.VolumeID), secretNames(s.Cinder.SecretRef, p)...)
		}},
		{"fc", "", s.FC != nil, func(p *field.Path) field.ErrorList { return fc(s.FC, p) }},
		{"flexVolume", "", s.FlexVolume != nil, func(p *field.Path) field.ErrorList { return flexVolume(s.FlexVolume, p) }},
		{"azureFile", "", s.AzureFile != nil, func(p *field.Path) field.ErrorList { return azureFile(s.AzureFile, p) }},
		{"vsphereVolume", "", s.VsphereVolume != nil, func(p *field.Path) field.ErrorList { return required(p, "volumePath", s.VsphereVolume.VolumePath) }},
		{"photonPersistentDisk", "", s.PhotonPersistentDisk != nil, func(p *field.Path) field.ErrorList { return required(p, "pdID", s.PhotonPersistentDisk.PdID) }},
		{"portworxVolume", "", s.PortworxVolume != nil, func(p *field.Path) field.ErrorList { return required(p, "volumeID", s.PortworxVolume.VolumeID) }},
		{"azureDisk", "", s.AzureDisk != nil, func(p *field.Path) field.ErrorList { return azureDisk(s.AzureDisk, p) }},
		{"scaleIO", "", s.ScaleIO != nil, func(p *field.Path) field.ErrorList {
			return required(p, "gateway", s.ScaleIO.Gateway, "system", s.ScaleIO.System, "volumeName", s.ScaleIO.VolumeName)
		}},
		{"local", "", s.Local != nil, func(p *field.Path) field.ErrorList {
			if s.Local.Path == "" {
				return required(p, "path", "")
			}
			return noBacksteps(s.Local.Path, p.Child("path"))
		}},
		{"storageos", "", s.StorageOS != nil, func(p *field.Path) field.ErrorList { return storageOS(s.StorageOS, p) }},
		{"csi", "", s.CSI != nil, func(p *field.Path) field.ErrorList { return csi(s.CSI, p) }},
	}
}

// validateSource checks that a volume has exactly one source.
func validateSource(spec *corev1.PersistentVolumeSpec, volume string, inline bool, path *field.Path) (errs field.ErrorList) {
	n := 0
	for _, s := range sourcesOf(spec, volume) {
		if !s.there {
			continue
		}
		n++
		if n > 1 && s.name != "flexVolume" {
			errs = append(errs, field.Forbidden(path.Child(s.name), "may not specify more than 1 volume type"))
			continue
		}
		at := s.name
		if s.at != "" {
			at = s.at
		}
		errs = append(errs, s.validate(path.Child(at))...)
		if s.name == "local" && (spec.NodeAffinity == nil || inline) {
			errs = append(errs, field.Required(path.Child("nodeAffinity"), "Local volume requires node affinity"))
		}
	}
	if n == 0 {
		errs = append(errs, field.Required(path, "must specify a volume type"))
	}
	return errs
}

// required checks that members are set, given as names and values in turn.
func required(path *field.Path, namesAndValues ...string) (errs field.ErrorList) {
	for i := 0; i < len(namesAndValues); i += 2 {
		if namesAndValues[i+1] == "" {
			errs = append(errs, field.Required(path.Child(namesAndValues[i]), ""))
		}
	}
	return errs
}

func some(all []string, path *field.Path) field.ErrorList {
	if len(all) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

// secretNames checks that a reference has a name and a namespace.
func secretNames(r *corev1.SecretReference, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	return required(path.Child("secretRef"), "name", r.Name, "namespace", r.Namespace)
}

func byteRange(n int32, path *field.Path) field.ErrorList {
	if n < 0 || n > 255 {
		return field.ErrorList{field.Invalid(path, n, utilvalidation.InclusiveRangeError(0, 255))}
	}
	return nil
}

func noBacksteps(text string, path *field.Path) field.ErrorList {
	if slices.Contains(strings.Split(text, "/"), "..") {
		return field.ErrorList{field.Invalid(path, text, "must not contain '..'")}
	}
	return nil
}

var hostPathTypes = []corev1.HostPathType{
	corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
	corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket,
}

func hostPath(h *corev1.HostPathVolumeSource, path *field.Path) field.ErrorList {
	if h.Path == "" {
		return required(path, "path", "")
	}
	errs := noBacksteps(h.Path, path.Child("path"))
	if h.Type != nil {
		errs = append(errs, check.OneOf(*h.Type, hostPathTypes, path.Child("type"))...)
	}
	return errs
}

func disk(name string, partition int32, path *field.Path, member string) field.ErrorList {
	errs := required(path, member, name)
	if partition < 0 || partition > 255 {
		errs = append(errs, field.Invalid(path.Child("partition"), partition, utilvalidation.InclusiveRangeError(1, 255)))
	}
	return errs
}

func glusterfs(g *corev1.GlusterfsPersistentVolumeSource, path *field.Path) field.ErrorList {
	errs := required(path, "endpoints", g.EndpointsName, "path", g.Path)
	ns, at := g.EndpointsNamespace, path.Child("endpointsNamespace")
	if ns != nil && *ns == "" {
		return append(errs, field.Invalid(at, *ns, "if the endpointnamespace is set, it must be a valid namespace name"))
	}
	if ns != nil {
		for _, fault := range validation.ValidateNamespaceName(*ns, false) {
			errs = append(errs, field.Invalid(at, *ns, fault))
		}
	}
	return errs
}

func flocker(f *corev1.FlockerVolumeSource, path *field.Path) (errs field.ErrorList) {
	if f.DatasetName == "" && f.DatasetUUID == "" {
		errs = append(errs, field.Required(path, "one of datasetName and datasetUUID is required"))
	}
	if f.DatasetName != "" && f.DatasetUUID != "" {
		errs = append(errs, field.Invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously"))
	}
	if strings.Contains(f.DatasetName, "/") {
		errs = append(errs, field.Invalid(path.Child("datasetName"), f.DatasetName, "must not contain '/'"))
	}
	return errs
}

func nfs(n *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
	errs := required(at, "server", n.Server, "path", n.Path)
	if !path.IsAbs(n.Path) {
		errs = append(errs, field.Invalid(at.Child("path"), n.Path, "must be an absolute path"))
	}
	return errs
}

func quobyte(q *corev1.QuobyteVolumeSource, path *field.Path) (errs field.ErrorList) {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	switch {
	case q.Registry == "":
		errs = append(errs, field.Required(path.Child("registry"), pairs))
	case len(q.Tenant) >= 65:
		errs = append(errs, field.Required(path.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters"))
	default:
		for pair := range strings.SplitSeq(q.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				errs = append(errs, field.Invalid(path.Child("registry"), q.Registry, pairs))
			}
		}
	}
	return append(errs, required(path, "volume", q.Volume)...)
}

func iscsi(i *corev1.ISCSIPersistentVolumeSource, volume string, path *field.Path) field.ErrorList {
	errs := required(path, "targetPortal", i.TargetPortal)
	if i.InitiatorName != nil && len(volume)+1+len(i.TargetPortal) > 64 {
		errs = append(errs, field.Invalid(path.Child("targetportal"), i.TargetPortal, "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."))
	}
	const format = "must be valid format"
	if i.IQN == "" {
		errs = append(errs, field.Required(path.Child("iqn"), ""))
	} else if !isInitiator(i.IQN) {
		errs = append(errs, field.Invalid(path.Child("iqn"), i.IQN, format))
	}
	errs = append(errs, byteRange(i.Lun, path.Child("lun"))...)
	if (i.DiscoveryCHAPAuth || i.SessionCHAPAuth) && i.SecretRef == nil {
		errs = append(errs, field.Required(path.Child("secretRef"), ""))
	}
	if i.SecretRef != nil {
		errs = append(errs, required(path.Child("secretRef"), "name", i.SecretRef.Name)...)
	}
	if i.InitiatorName != nil && !isInitiator(*i.InitiatorName) {
		errs = append(errs, field.Invalid(path.Child("initiatorname"), *i.InitiatorName, format))
	}
	return errs
}

func fc(f *corev1.FCVolumeSource, path *field.Path) (errs field.ErrorList) {
	targets := path.Child("targetWWNs")
	switch {
	case len(f.TargetWWNs) == 0 && len(f.WWIDs) == 0:
		errs = append(errs, field.Required(targets, "must specify either targetWWNs or wwids, but not both"))
	case len(f.TargetWWNs) > 0 && len(f.WWIDs) > 0:
		errs = append(errs, field.Invalid(targets, f.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously"))
	}
	switch {
	case len(f.TargetWWNs) == 0:
	case f.Lun == nil:
		errs = append(errs, field.Required(path.Child("lun"), "lun is required if targetWWNs is specified"))
	case *f.Lun < 0 || *f.Lun > 255:
		errs = append(errs, field.Invalid(path.Child("lun"), f.Lun, utilvalidation.InclusiveRangeError(0, 255)))
	}
	return errs
}

func flexVolume(f *corev1.FlexPersistentVolumeSource, path *field.Path) field.ErrorList {
	errs := required(path, "driver", f.Driver)
	for key := range check.Sorted(f.Options) {
		domain, _, _ := strings.Cut(key, "/")
		domain = "." + strings.ToLower(domain)
		if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			errs = append(errs, field.Invalid(path.Child("options").Key(key), key, "kubernetes.io and k8s.io namespaces are reserved"))
		}
	}
	return errs
}

func azureFile(a *corev1.AzureFilePersistentVolumeSource, path *field.Path) field.ErrorList {
	errs := required(path, "secretName", a.SecretName, "shareName", a.ShareName)
	if a.SecretNamespace != nil {
		errs = append(errs, required(path, "secretNamespace", *a.SecretNamespace)...)
	}
	return errs
}

func azureDisk(a *corev1.AzureDiskVolumeSource, path *field.Path) field.ErrorList {
	errs := required(path, "diskName", a.DiskName, "diskURI", a.DataDiskURI)
	if a.CachingMode != nil {
		errs = append(errs, check.OneOf(*a.CachingMode, []corev1.AzureDataDiskCachingMode{corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite}, path.Child("cachingMode"))...)
	}
	if a.Kind == nil {
		return errs
	}
	errs = append(errs, check.OneOf(*a.Kind, []corev1.AzureDataDiskKind{corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk}, path.Child("kind"))...)
	switch uri, at := a.DataDiskURI, path.Child("diskURI"); {
	case *a.Kind == corev1.AzureManagedDisk && !strings.HasPrefix(uri, "/subscriptions/"):
		errs = append(errs, field.NotSupported(at, uri, []string{"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"}))
	case *a.Kind != corev1.AzureManagedDisk && !strings.HasPrefix(uri, "https://"):
		errs = append(errs, field.NotSupported(at, uri, []string{"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"}))
	}
	return errs
}

func storageOS(s *corev1.StorageOSPersistentVolumeSource, path *field.Path) (errs field.ErrorList) {
	if s.VolumeName == "" {
		errs = append(errs, field.Required(path.Child("volumeName"), ""))
	} else {
		errs = append(errs, check.DNSLabel(s.VolumeName, path.Child("volumeName"))...)
	}
	if s.VolumeNamespace != "" {
		errs = append(errs, check.DNSLabel(s.VolumeNamespace, path.Child("volumeNamespace"))...)
	}
	if s.SecretRef != nil {
		errs = append(errs, required(path.Child("secretRef"), "name", s.SecretRef.Name, "namespace", s.SecretRef.Namespace)...)
	}
	return errs
}

func csi(c *corev1.CSIPersistentVolumeSource, path *field.Path) field.ErrorList {
	errs := driverName(c.Driver, path.Child("driver"))
	errs = append(errs, required(path, "volumeHandle", c.VolumeHandle)...)
	for _, r := range []struct {
		name string
		ref  *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", c.ControllerPublishSecretRef}, {"controllerExpandSecretRef", c.ControllerExpandSecretRef},
		{"nodePublishSecretRef", c.NodePublishSecretRef}, {"nodeExpandSecretRef", c.NodeExpandSecretRef},
	} {
		if r.ref != nil {
			errs = append(errs, secretReference(r.ref, path.Child(r.name))...)
		}
	}
	return errs
}

func secretReference(r *corev1.SecretReference, path *field.Path) (errs field.ErrorList) {
	if r.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, check.DNSSubdomain(r.Name, path.Child("name"))...)
	}
	if r.Namespace == "" {
		return append(errs, field.Required(path.Child("namespace"), ""))
	}
	return append(errs, check.DNSLabel(r.Namespace, path.Child("namespace"))...)
}

// driverName checks the name of a CSI driver.
func driverName(name string, path *field.Path) (errs field.ErrorList) {
	const longest = 63
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if len(name) > longest {
		errs = append(errs, field.TooLong(path, "", longest))
	}
	for _, fault := range utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)) {
		errs = append(errs, field.Invalid(path, name, fault))
	}
	return errs
}
