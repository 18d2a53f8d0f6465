package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// TrustBundle is a ClusterTrustBundle.
type TrustBundle = certificatesv1.ClusterTrustBundle

// AnyName accepts every name: the rules for the name of a ClusterTrustBundle depend on its signer,
// so ValidateTrustBundle has them.
func AnyName(string, bool) []string { return nil }

// longestBundle is the maximum size of the certificates of a bundle, in bytes.
const longestBundle = 1 << 20

// ValidateTrustBundle checks a new bundle.
func ValidateTrustBundle(b *TrustBundle) field.ErrorList {
	return append(validateBundleNames(b), validateAnchors(b.Spec.TrustBundle, field.NewPath("spec", "trustBundle"))...)
}

// ValidateTrustBundleUpdate checks an update. Certificates that do not change are not parsed again.
func ValidateTrustBundleUpdate(b, old *TrustBundle) field.ErrorList {
	errs := validateBundleNames(b)
	if b.Spec.TrustBundle != old.Spec.TrustBundle {
		errs = append(errs, validateAnchors(b.Spec.TrustBundle, field.NewPath("spec", "trustBundle"))...)
	}
	return append(errs, validation.ValidateImmutableField(b.Spec.SignerName, old.Spec.SignerName, field.NewPath("spec", "signerName"))...)
}

// validateBundleNames checks the name of a bundle and the name of its signer.
func validateBundleNames(b *TrustBundle) (errs field.ErrorList) {
	named := func(member, name string, prefix bool) {
		for _, wrong := range check.BundleNameFaults(b.Spec.SignerName, name, prefix) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", member), name, wrong))
		}
	}
	if b.GenerateName != "" {
		named("generateName", b.GenerateName, true)
	}
	if b.Name != "" {
		named("name", b.Name, false)
	}
	if b.Spec.SignerName != "" {
		errs = append(errs, check.SignerName(b.Spec.SignerName, field.NewPath("spec", "signerName"))...)
	}
	return errs
}

// validateAnchors requires certificates of authorities in PEM, each of them once.
func validateAnchors(text string, at *field.Path) (errs field.ErrorList) {
	if len(text) > longestBundle {
		return field.ErrorList{field.TooLong(at, "", longestBundle)}
	}
	wrong := func(format string, args ...any) {
		errs = append(errs, field.Invalid(at, "<value omitted>", fmt.Sprintf(format, args...)))
	}
	places := map[string][]int{}
	var all []string // the certificates, in their order
	i := 0
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if fault := anchorFault(block); fault != "" {
			wrong("entry %d %s", i, fault)
		} else {
			key := string(block.Bytes)
			if places[key] == nil {
				all = append(all, key)
			}
			places[key] = append(places[key], i)
		}
		i++
	}
	if len(errs) > 0 {
		return errs
	}
	if len(all) == 0 {
		wrong("at least one trust anchor must be provided")
	}
	for _, key := range all {
		if len(places[key]) > 1 {
			wrong("duplicate trust anchor (indices %v)", places[key])
		}
	}
	return errs
}

// anchorFault returns the fault of an entry of a bundle; empty: there is none.
func anchorFault(b *pem.Block) string {
	if b.Type != "CERTIFICATE" {
		return "has bad block type: " + b.Type
	}
	if len(b.Headers) != 0 {
		return "has PEM block headers"
	}
	c, err := x509.ParseCertificate(b.Bytes)
	switch {
	case err != nil:
		return "does not parse as X.509"
	case !c.IsCA:
		return "does not have the CA bit set"
	case !c.BasicConstraintsValid:
		return "has invalid basic constraints"
	}
	return ""
}
