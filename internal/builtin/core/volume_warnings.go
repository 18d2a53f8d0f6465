package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// volume warns of drivers that are no longer there.
func (w *warnings) volume(v *corev1.Volume, i int) {
	for _, old := range [...]struct {
		name string
		set  bool
		why  string
	}{
		{"photonPersistentDisk", v.PhotonPersistentDisk != nil, "deprecated in v1.11, non-functional in v1.16+"},
		{"gitRepo", v.GitRepo != nil, "deprecated in v1.11, and disabled by default in v1.33+"},
		{"scaleIO", v.ScaleIO != nil, "deprecated in v1.16, non-functional in v1.22+"},
		{"flocker", v.Flocker != nil, "deprecated in v1.22, non-functional in v1.25+"},
		{"storageOS", v.StorageOS != nil, "deprecated in v1.22, non-functional in v1.25+"},
		{"quobyte", v.Quobyte != nil, "deprecated in v1.22, non-functional in v1.25+"},
		{"glusterfs", v.Glusterfs != nil, "deprecated in v1.25, non-functional in v1.26+"},
		{"cephfs", v.CephFS != nil, "deprecated in v1.28, non-functional in v1.31+"},
		{"rbd", v.RBD != nil, "deprecated in v1.28, non-functional in v1.31+"},
	} {
		if old.set {
			w.add("%s: %s", w.below("spec", "volumes").Index(i).Child(old.name), old.why)
		}
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		at := w.below("spec", "volumes").Index(i).Child("ephemeral", "volumeClaimTemplate", "spec")
		w.list = append(w.list, ClaimWarnings(&v.Ephemeral.VolumeClaimTemplate.Spec, at)...)
	}
}

// ClaimWarnings are those about what a claim asks for.
func ClaimWarnings(c *corev1.PersistentVolumeClaimSpec, at *field.Path) (list []string) {
	for _, part := range [...]struct {
		name string
		list corev1.ResourceList
	}{{"requests", c.Resources.Requests}, {"limits", c.Resources.Limits}} {
		if q := part.list[corev1.ResourceStorage]; q.MilliValue()%1000 != 0 {
			list = append(list, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer", at.Child("resources", part.name).Key("storage"), q.String()))
		}
	}
	return list
}

// filePath is a file in a volume, and what it comes from.
type filePath struct{ path, from string }

func (p filePath) String() string {
	if p.from == "" {
		return fmt.Sprintf("%q", p.path)
	}
	return fmt.Sprintf("%q (%s)", p.path, p.from)
}

// meets tells whether one is the other, or in it.
func (p filePath) meets(other filePath) bool {
	return strings.HasPrefix(other.path+"/", p.path+"/") || strings.HasPrefix(p.path+"/", other.path+"/")
}

// overlaps warns of files in a volume that hide each other.
func (w *warnings) overlaps(v *corev1.Volume) {
	switch {
	case v.ConfigMap != nil:
		w.meeting(v.Name, fmt.Sprintf("ConfigMap %q", v.ConfigMap.Name), keyPaths(v.ConfigMap.Items, ""))
	case v.Secret != nil:
		w.meeting(v.Name, fmt.Sprintf("Secret %q", v.Secret.SecretName), keyPaths(v.Secret.Items, ""))
	case v.DownwardAPI != nil:
		w.meeting(v.Name, "DownwardAPI", downwardPaths(v.DownwardAPI.Items, ""))
	case v.Projected != nil:
		var all []filePath
		for i := range v.Projected.Sources {
			s := &v.Projected.Sources[i]
			switch {
			case *s == (corev1.VolumeProjection{}):
				w.add("volume %q (Projected) has no sources provided", v.Name)
			case s.ConfigMap != nil && s.ConfigMap.Items != nil:
				all = append(all, keyPaths(s.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", s.ConfigMap.Name))...)
			case s.Secret != nil && s.Secret.Items != nil:
				all = append(all, keyPaths(s.Secret.Items, fmt.Sprintf("Secret %q", s.Secret.Name))...)
			case s.DownwardAPI != nil && s.DownwardAPI.Items != nil:
				all = append(all, downwardPaths(s.DownwardAPI.Items, "DownwardAPI")...)
			case s.ServiceAccountToken != nil:
				all = append(all, filePath{s.ServiceAccountToken.Path, "ServiceAccountToken"})
			}
		}
		w.meeting(v.Name, "Projected", all)
	}
}

// maxCompared is how many files of a volume are compared with each other: the work
// grows with the square.
const maxCompared = 1000

func (w *warnings) meeting(volume, what string, all []filePath) {
	all = all[:min(len(all), maxCompared)]
	for i := range all {
		all[i].path = strings.TrimRight(all[i].path, "/")
		for _, other := range all[:i] {
			if all[i].path != "" && other.path != "" && all[i].meets(other) {
				w.add("volume %q (%s): overlapping paths: %s with %s", volume, what, all[i], other)
			}
		}
	}
}

func keyPaths(items []corev1.KeyToPath, from string) (all []filePath) {
	for i := range items {
		all = append(all, filePath{items[i].Path, from})
	}
	return all
}

func downwardPaths(items []corev1.DownwardAPIVolumeFile, from string) (all []filePath) {
	for i := range items {
		all = append(all, filePath{items[i].Path, from})
	}
	return all
}
