package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
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
	if s.ClusterTrustBundle != nil {
		n++
		p.bundle(s.ClusterTrustBundle, at.Child("clusterTrustBundle"))
	}
	if s.PodCertificate != nil {
		n++
		p.certificate(s.PodCertificate, at.Child("podCertificate"))
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

func (p *projection) bundle(b *corev1.ClusterTrustBundleProjection, at *field.Path) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		p.Invalid(at, "", check.Bare(b), "only one of name and signerName may be used")
	case b.Name != nil:
		p.bundleName(*b.Name, at)
		if b.LabelSelector != nil {
			p.Invalid(at, "labelSelector", b.LabelSelector, "labelSelector must be unset if name is specified")
		}
	case b.SignerName != nil:
		if *b.SignerName == "" {
			p.Required(at, "signerName", "must be a valid signer name")
		}
		p.Add(check.SignerName(*b.SignerName, at.Child("signerName"))...)
		p.LabelSelector(b.LabelSelector, at.Child("labelSelector"))
	default:
		p.Required(at, "", "either name or signerName must be specified")
	}
	if b.Path == "" {
		p.Required(at, "path", "")
	}
	p.localPath(at, "path", b.Path)
	// Unlike other paths, an empty one counts.
	if p.paths[b.Path] {
		p.Invalid(p.at, "", b.Path, "conflicting duplicate paths")
	}
	if p.paths == nil {
		p.paths = map[string]bool{}
	}
	p.paths[b.Path] = true
}

// bundleName checks the name of a bundle, which has that of its signer before the last colon.
func (p *projection) bundleName(name string, at *field.Path) {
	if name == "" {
		p.Required(at, "name", "must be a valid object name")
	}
	signer := ""
	if i := strings.LastIndex(name, ":"); i >= 0 {
		signer = strings.ReplaceAll(name[:i], ":", "/")
	}
	for _, fault := range check.BundleNameFaults(signer, name, false) {
		p.Invalid(at, "name", name, "not a valid clustertrustbundlename: "+fault)
	}
}

// The lifetimes of certificates for Pods, in seconds, and the types of their keys.
const (
	minCertificateSeconds    = 60 * 60
	maxCertificateSeconds    = 91 * 24 * 60 * 60
	maxOwnCertificateSeconds = 24 * 60 * 60 // of the signers of Kubernetes
)

var keyTypes = []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"}

func (p *projection) certificate(c *corev1.PodCertificateProjection, at *field.Path) {
	p.Add(check.SignerName(c.SignerName, at.Child("signerName"))...)
	p.Add(check.UserAnnotations(c.UserAnnotations, at.Child("userAnnotations"))...)
	check.Enum(p.Errors, at, "keyType", c.KeyType, keyTypes)
	if s := c.MaxExpirationSeconds; s != nil {
		if *s < minCertificateSeconds {
			p.Invalid(at, "maxExpirationSeconds", *s, "if provided, maxExpirationSeconds must be >= 3600")
		}
		most := int32(maxCertificateSeconds)
		if check.IsOwnSigner(c.SignerName) {
			most = maxOwnCertificateSeconds
		}
		if *s > most {
			p.Invalid(at, "maxExpirationSeconds", *s, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", most))
		}
	}
	n := 0
	for _, f := range [...]struct{ name, path string }{
		{"credentialBundlePath", c.CredentialBundlePath}, {"keyPath", c.KeyPath}, {"certificateChainPath", c.CertificateChainPath},
	} {
		if f.path != "" {
			n++
			p.localPath(at, f.name, f.path)
			p.file(f.path, f.path)
		}
	}
	if n == 0 {
		p.Required(at, "", "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")
	}
}
