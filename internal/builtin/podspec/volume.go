package podspec

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/claimspec"
)

// badMode is the detail of the error for an invalid mode of a file.
const badMode = "must be a number between 0 and 0777 (octal), both inclusive"

// volumeSource is one kind of volume.
type volumeSource struct {
	// name is the member in the error for several sources.
	name  string
	set   func(*corev1.VolumeSource) bool
	check func(*rules, *corev1.VolumeSource, *field.Path)
}

// volumeSources are all sources, in the order of their checks.
var volumeSources = []volumeSource{
	{"emptyDir", func(s *corev1.VolumeSource) bool { return s.EmptyDir != nil }, emptyDir},
	{"hostPath", func(s *corev1.VolumeSource) bool { return s.HostPath != nil }, hostPath},
	{"gitRepo", func(s *corev1.VolumeSource) bool { return s.GitRepo != nil }, gitRepo},
	{"gcePersistentDisk", func(s *corev1.VolumeSource) bool { return s.GCEPersistentDisk != nil }, gcePersistentDisk},
	{"awsElasticBlockStore", func(s *corev1.VolumeSource) bool { return s.AWSElasticBlockStore != nil }, awsElasticBlockStore},
	{"secret", func(s *corev1.VolumeSource) bool { return s.Secret != nil }, secretVolume},
	{"nfs", func(s *corev1.VolumeSource) bool { return s.NFS != nil }, nfs},
	{"iscsi", func(s *corev1.VolumeSource) bool { return s.ISCSI != nil }, iscsi},
	{"glusterfs", func(s *corev1.VolumeSource) bool { return s.Glusterfs != nil }, glusterfs},
	{"flocker", func(s *corev1.VolumeSource) bool { return s.Flocker != nil }, flocker},
	{"persistentVolumeClaim", func(s *corev1.VolumeSource) bool { return s.PersistentVolumeClaim != nil }, claimVolume},
	{"rbd", func(s *corev1.VolumeSource) bool { return s.RBD != nil }, rbd},
	{"cinder", func(s *corev1.VolumeSource) bool { return s.Cinder != nil }, cinder},
	{"cephFS", func(s *corev1.VolumeSource) bool { return s.CephFS != nil }, cephFS},
	{"quobyte", func(s *corev1.VolumeSource) bool { return s.Quobyte != nil }, quobyte},
	{"downwarAPI", func(s *corev1.VolumeSource) bool { return s.DownwardAPI != nil }, downwardVolume},
	{"fc", func(s *corev1.VolumeSource) bool { return s.FC != nil }, fibreChannel},
	{"flexVolume", func(s *corev1.VolumeSource) bool { return s.FlexVolume != nil }, flexVolume},
	{"configMap", func(s *corev1.VolumeSource) bool { return s.ConfigMap != nil }, configMapVolume},
	{"azureFile", func(s *corev1.VolumeSource) bool { return s.AzureFile != nil }, azureFile},
	{"vsphereVolume", func(s *corev1.VolumeSource) bool { return s.VsphereVolume != nil }, vsphere},
	{"photonPersistentDisk", func(s *corev1.VolumeSource) bool { return s.PhotonPersistentDisk != nil }, photon},
	{"portworxVolume", func(s *corev1.VolumeSource) bool { return s.PortworxVolume != nil }, portworx},
	{"azureDisk", func(s *corev1.VolumeSource) bool { return s.AzureDisk != nil }, azureDisk},
	{"storageos", func(s *corev1.VolumeSource) bool { return s.StorageOS != nil }, storageOS},
	{"projected", func(s *corev1.VolumeSource) bool { return s.Projected != nil }, projectedVolume},
	{"scaleIO", func(s *corev1.VolumeSource) bool { return s.ScaleIO != nil }, scaleIO},
	{"csi", func(s *corev1.VolumeSource) bool { return s.CSI != nil }, csiVolume},
	{"ephemeral", func(s *corev1.VolumeSource) bool { return s.Ephemeral != nil }, ephemeralVolume},
	{"image", func(s *corev1.VolumeSource) bool { return s.Image != nil }, imageVolume},
}

// checkVolumes checks the volumes, and sets r.volumes to the valid ones.
func (r *rules) checkVolumes(at *field.Path) {
	if len(r.spec.Volumes) == 0 {
		return
	}
	made := r.madeClaims()
	r.volumes = make(map[string]*corev1.VolumeSource, len(r.spec.Volumes))
	for i := range r.spec.Volumes {
		v, at, start := &r.spec.Volumes[i], at.Index(i), r.Len()
		r.volumeName = v.Name
		r.checkVolumeSource(&v.VolumeSource, at)
		if v.Name == "" {
			r.Required(at, "name", "")
		} else {
			r.Each(at, "name", v.Name, check.LabelFaults(v.Name))
		}
		if r.volumes[v.Name] != nil {
			r.Duplicate(at, "name", v.Name)
		}
		if r.Len() == start {
			r.volumes[v.Name] = &v.VolumeSource
		}
		if c := v.PersistentVolumeClaim; c != nil && made.Has(c.ClaimName) {
			r.Invalid(at.Child("persistentVolumeClaim"), "claimName", c.ClaimName, "must not reference a PVC that gets created for an ephemeral volume")
		}
	}
}

// madeClaims returns the names of the claims for the ephemeral volumes of the Pod.
func (r *rules) madeClaims() (names check.Seen[string]) {
	if r.pod == nil || r.pod.Name == "" {
		return names
	}
	for i := range r.spec.Volumes {
		if v := &r.spec.Volumes[i]; v.Ephemeral != nil {
			names.Again(r.pod.Name + "-" + v.Name)
		}
	}
	return names
}

func (r *rules) checkVolumeSource(s *corev1.VolumeSource, at *field.Path) {
	found := false
	for i := range volumeSources {
		source := &volumeSources[i]
		switch {
		case !source.set(s):
		case found:
			r.Forbidden(at, source.name, "may not specify more than 1 volume type")
		default:
			found = true
			source.check(r, s, at)
		}
	}
	if s.ISCSI != nil && s.ISCSI.InitiatorName != nil && len(r.volumeName)+1+len(s.ISCSI.TargetPortal) > 64 {
		r.Invalid(at, "name", r.volumeName, "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.")
	}
	if !found {
		r.Required(at, "", "must specify a volume type")
	}
}

func emptyDir(r *rules, s *corev1.VolumeSource, at *field.Path) {
	if limit := s.EmptyDir.SizeLimit; limit != nil && limit.Sign() < 0 {
		r.Forbidden(at.Child("emptyDir"), "sizeLimit", "SizeLimit field must be a valid resource quantity")
	}
}

var hostPathTypes = []corev1.HostPathType{
	corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
	corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket,
}

func hostPath(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("hostPath")
	if s.HostPath.Path == "" {
		r.Required(at, "path", "")
		return
	}
	r.noBacksteps(at, "path", s.HostPath.Path)
	if t := s.HostPath.Type; t != nil {
		check.Enum(r.Errors, at, "type", *t, hostPathTypes)
	}
}

func secretVolume(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("secret")
	if s.Secret.SecretName == "" {
		r.Required(at, "secretName", "")
	}
	r.fileMode(at, "defaultMode", s.Secret.DefaultMode)
	r.keys(at, s.Secret.Items)
}

func configMapVolume(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("configMap")
	if s.ConfigMap.Name == "" {
		r.Required(at, "name", "")
	}
	r.fileMode(at, "defaultMode", s.ConfigMap.DefaultMode)
	r.keys(at, s.ConfigMap.Items)
}

func (r *rules) fileMode(at *field.Path, name string, mode *int32) {
	if mode != nil && (*mode > 0o777 || *mode < 0) {
		r.Invalid(at, name, *mode, badMode)
	}
}

func (r *rules) keys(at *field.Path, items []corev1.KeyToPath) {
	for i := range items {
		r.key(at.Child("items").Index(i), &items[i])
	}
}

func (r *rules) key(at *field.Path, k *corev1.KeyToPath) {
	if k.Key == "" {
		r.Required(at, "key", "")
	}
	if k.Path == "" {
		r.Required(at, "path", "")
	}
	r.localPath(at, "path", k.Path)
	r.fileMode(at, "mode", k.Mode)
}

// relative checks that a path is relative and has no "..".
func (r *rules) relative(at *field.Path, name, p string) {
	if path.IsAbs(p) {
		r.Invalid(at, name, p, "must be a relative path")
	}
	r.noBacksteps(at, name, p)
}

func (r *rules) noBacksteps(at *field.Path, name, p string) {
	if hasBackstep(p) {
		r.Invalid(at, name, p, "must not contain '..'")
	}
}

func hasBackstep(p string) bool {
	if !strings.Contains(p, "..") {
		return false
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}

// localPath checks that a path is relative, and does not start with "..", which the kubelet uses.
func (r *rules) localPath(at *field.Path, name, p string) {
	r.relative(at, name, p)
	if strings.HasPrefix(p, "..") && !strings.HasPrefix(p, "../") {
		r.Invalid(at, name, p, "must not start with '..'")
	}
}

func claimVolume(r *rules, s *corev1.VolumeSource, at *field.Path) {
	if s.PersistentVolumeClaim.ClaimName == "" {
		r.Required(at.Child("persistentVolumeClaim"), "claimName", "")
	}
}

func downwardVolume(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("downwardAPI")
	r.fileMode(at, "defaultMode", s.DownwardAPI.DefaultMode)
	for i := range s.DownwardAPI.Items {
		r.downwardFile(at, &s.DownwardAPI.Items[i])
	}
}

func (r *rules) downwardFile(at *field.Path, file *corev1.DownwardAPIVolumeFile) {
	if file.Path == "" {
		r.Required(at, "path", "")
	}
	r.localPath(at, "path", file.Path)
	switch {
	case file.FieldRef != nil:
		r.fieldRef(at.Child("fieldRef"), file.FieldRef, volumeFields)
		if file.ResourceFieldRef != nil {
			r.Invalid(at, "", "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case file.ResourceFieldRef != nil:
		r.resourceRef(at.Child("resourceFieldRef"), file.ResourceFieldRef, true)
	default:
		r.Required(at, "", "one of fieldRef and resourceFieldRef is required")
	}
	r.fileMode(at, "mode", file.Mode)
}

// csiDriver checks the name of a driver.
func (r *rules) csiDriver(at *field.Path, name, driver string) {
	if driver == "" {
		r.Required(at, name, "")
		return
	}
	if len(driver) > 63 {
		r.Add(field.TooLong(check.Member(at, name), "", 63))
	}
	r.Each(at, name, driver, check.SubdomainFaults(strings.ToLower(driver)))
}

func csiVolume(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("csi")
	r.csiDriver(at, "driver", s.CSI.Driver)
	switch ref := s.CSI.NodePublishSecretRef; {
	case ref == nil:
	case ref.Name == "":
		r.Required(at.Child("nodePublishSecretRef"), "name", "")
	default:
		r.Each(at, "name", ref.Name, check.SubdomainFaults(ref.Name))
	}
}

func ephemeralVolume(r *rules, s *corev1.VolumeSource, at *field.Path) {
	if t := s.Ephemeral.VolumeClaimTemplate; t == nil {
		r.Required(at.Child("ephemeral"), "volumeClaimTemplate", "")
	} else {
		claimspec.ValidateTemplate(r.Errors, t, at.Child("ephemeral", "volumeClaimTemplate"))
	}
	if r.pod == nil || r.pod.Name == "" || r.volumeName == "" {
		return
	}
	claim := r.pod.Name + "-" + r.volumeName
	for _, fault := range check.SubdomainFaults(claim) {
		r.Invalid(at, "name", r.volumeName, fmt.Sprintf("PVC name %q: %v", claim, fault))
	}
}

func imageVolume(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("image")
	if s.Image.Reference == "" {
		r.Required(at, "reference", "")
	}
	check.RequiredEnum(r.Errors, at, "pullPolicy", s.Image.PullPolicy, pullPolicies)
}
