package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The limits of the lifetime of a token in seconds.
const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

func projectedVolume(r *rules, s *corev1.VolumeSource, at *field.Path) {
	at = at.Child("projected")
	r.fileMode(at, "defaultMode", s.Projected.DefaultMode)
	p := projection{rules: r, at: at}
	for i := range s.Projected.Sources {
		p.source(&s.Projected.Sources[i], at.Child("sources").Index(i))
	}
}

// projection is a projected volume. The paths of its sources must not conflict.
type projection struct {
	*rules
	at    *field.Path
	paths map[string]bool
}

// file adds a path. Shown is the value in the error for a duplicate.
func (p *projection) file(path, shown string) {
	switch {
	case path == "":
	case p.paths[path]:
		p.Invalid(p.at, "", shown, "conflicting duplicate paths")
	default:
		if p.paths == nil {
			p.paths = map[string]bool{}
		}
		p.paths[path] = true
	}
}

func (p *projection) items(at *field.Path, of string, items []corev1.KeyToPath) {
	if of == "" {
		p.Required(at, "name", "")
	}
	for i := range items {
		p.key(at.Child("items").Index(i), &items[i])
		p.file(items[i].Path, of)
	}
}

func (p *projection) source(s *corev1.VolumeProjection, at *field.Path) {
	n := 0
	if s.Secret != nil {
		n++
		p.items(at.Child("secret"), s.Secret.Name, s.Secret.Items)
	}
	if s.ConfigMap != nil {
		n++
		p.items(at.Child("configMap"), s.ConfigMap.Name, s.ConfigMap.Items)
	}
	if s.DownwardAPI != nil {
		n++
		for i := range s.DownwardAPI.Items {
			file := &s.DownwardAPI.Items[i]
			p.downwardFile(at.Child("downwardAPI"), file)
			p.file(file.Path, file.Path)
		}
	}
	if s.ServiceAccountToken != nil {
		n++
		p.token(s.ServiceAccountToken, at.Child("serviceAccountToken"))
	}
	if n > 1 {
		p.Forbidden(at, "", "may not specify more than 1 volume type per source")
	}
}

func (p *projection) token(t *corev1.ServiceAccountTokenProjection, at *field.Path) {
	switch seconds := *t.ExpirationSeconds; {
	case seconds < minTokenSeconds:
		p.Invalid(at, "expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
	case seconds > maxTokenSeconds:
		p.Invalid(at, "expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
	}
	if t.Path == "" {
		p.Required(p.at, "path", "")
		return
	}
	p.localPath(p.at, "path", t.Path)
}
