package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/claimspec"
)

// volume warns about removed or deprecated drivers.
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
		for _, text := range claimspec.Warnings(&v.Ephemeral.VolumeClaimTemplate.Spec, at.path) {
			w.add("%s", text)
		}
	}
}

// filePath is the path of a file in a volume, and its source.
type filePath struct {
	path string
	from origin
}

func (p filePath) String() string {
	if p.from.kind == "" {
		return fmt.Sprintf("%q", p.path)
	}
	return fmt.Sprintf("%q (%s)", p.path, p.from)
}

// origin is the source of files: a kind, and for most a name.
type origin struct{ kind, name string }

func (o origin) String() string {
	switch o.kind {
	case "ConfigMap", "Secret", "ClusterTrustBundle":
		return fmt.Sprintf("%s %q", o.kind, o.name)
	}
	return o.kind
}

// meets reports whether the paths are equal or one contains the other.
func (p filePath) meets(other filePath) bool {
	short, long := p.path, other.path
	if len(short) > len(long) {
		short, long = long, short
	}
	return strings.HasPrefix(long, short) && (len(long) == len(short) || long[len(short)] == '/')
}

// overlaps warns about files in a volume that hide each other.
func (w *warnings) overlaps(v *corev1.Volume) {
	switch {
	case v.ConfigMap != nil:
		w.meeting(v.Name, origin{"ConfigMap", v.ConfigMap.Name}, keyPaths(v.ConfigMap.Items, origin{}))
	case v.Secret != nil:
		w.meeting(v.Name, origin{"Secret", v.Secret.SecretName}, keyPaths(v.Secret.Items, origin{}))
	case v.DownwardAPI != nil:
		w.meeting(v.Name, origin{kind: "DownwardAPI"}, downwardPaths(v.DownwardAPI.Items, origin{}))
	case v.Projected != nil:
		var all []filePath
		for i := range v.Projected.Sources {
			s := &v.Projected.Sources[i]
			switch {
			case *s == (corev1.VolumeProjection{}):
				w.add("volume %q (Projected) has no sources provided", v.Name)
			case s.ConfigMap != nil && s.ConfigMap.Items != nil:
				all = append(all, keyPaths(s.ConfigMap.Items, origin{"ConfigMap", s.ConfigMap.Name})...)
			case s.Secret != nil && s.Secret.Items != nil:
				all = append(all, keyPaths(s.Secret.Items, origin{"Secret", s.Secret.Name})...)
			case s.DownwardAPI != nil && s.DownwardAPI.Items != nil:
				all = append(all, downwardPaths(s.DownwardAPI.Items, origin{kind: "DownwardAPI"})...)
			case s.ServiceAccountToken != nil:
				all = append(all, filePath{s.ServiceAccountToken.Path, origin{kind: "ServiceAccountToken"}})
			case s.ClusterTrustBundle != nil:
				name := s.ClusterTrustBundle.Name
				if name == nil {
					name = s.ClusterTrustBundle.SignerName
				}
				if name != nil {
					all = append(all, filePath{s.ClusterTrustBundle.Path, origin{"ClusterTrustBundle", *name}})
				}
			case s.PodCertificate != nil:
				c := s.PodCertificate
				all = append(all, filePath{c.CertificateChainPath, origin{kind: "PodCertificate chain"}}, filePath{c.KeyPath, origin{kind: "PodCertificate key"}},
					filePath{c.CredentialBundlePath, origin{kind: "PodCertificate credential bundle"}})
			}
		}
		w.meeting(v.Name, origin{kind: "Projected"}, all)
	}
}

func (w *warnings) meeting(volume string, what origin, all []filePath) {
	for i := range all {
		all[i].path = strings.TrimRight(all[i].path, "/")
		for _, other := range all[:i] {
			if !w.another() {
				return
			}
			if all[i].path != "" && other.path != "" && all[i].meets(other) {
				w.add("volume %q (%s): overlapping paths: %s with %s", volume, what, all[i], other)
			}
		}
	}
}

func keyPaths(items []corev1.KeyToPath, from origin) (all []filePath) {
	for i := range items {
		all = append(all, filePath{items[i].Path, from})
	}
	return all
}

func downwardPaths(items []corev1.DownwardAPIVolumeFile, from origin) (all []filePath) {
	for i := range items {
		all = append(all, filePath{items[i].Path, from})
	}
	return all
}
