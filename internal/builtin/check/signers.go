package check

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The name of a signer is a domain, a slash, and a path that has room for a namespace and a name.
const (
	longestDomain = utilvalidation.DNS1123SubdomainMaxLength
	longestPath   = utilvalidation.DNS1123LabelMaxLength + 1 + utilvalidation.DNS1123SubdomainMaxLength
)

// SignerName checks the name of a signer of certificates.
func SignerName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	domain, path, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(path, "/") {
		return field.ErrorList{field.Invalid(at, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	var errs field.ErrorList
	if len(domain) > longestDomain {
		errs = append(errs, field.TooLong(at, "", longestDomain))
	}
	errs = append(errs, validateLabels(domain, utilvalidation.IsDNS1123Label, at)...)
	if !strings.Contains(domain, ".") {
		errs = append(errs, field.Invalid(at, domain, "should be a domain with at least two segments separated by dots"))
	}
	errs = append(errs, validateLabels(path, utilvalidation.IsDNS1123Subdomain, at)...)
	if most := longestDomain + 1 + longestPath; len(name) > most {
		errs = append(errs, field.TooLong(at, "", most))
	}
	return errs
}

// validateLabels returns the errors of the first invalid label.
func validateLabels(text string, faults func(string) []string, at *field.Path) (errs field.ErrorList) {
	for label := range strings.SplitSeq(text, ".") {
		for _, wrong := range faults(label) {
			errs = append(errs, field.Invalid(at, text, fmt.Sprintf("validating label %q: %s", label, wrong)))
		}
		if len(errs) > 0 {
			break
		}
	}
	return errs
}

// ownDomain is the domain of the signers of the Kubernetes project.
const ownDomain = "kubernetes.io"

// IsOwnSigner reports whether a signer belongs to the Kubernetes project.
func IsOwnSigner(name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	return domain == ownDomain || strings.HasSuffix(domain, "."+ownDomain)
}

// BundleNameFaults returns a message for each fault of the name of a ClusterTrustBundle, or of a prefix of names. The name
// begins with that of the signer, with colons instead of slashes. A bundle without a signer has no colon in its name.
func BundleNameFaults(signer, name string, prefix bool) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
		}
		return validation.NameIsDNSSubdomain(name, prefix)
	}
	want := strings.ReplaceAll(signer, "/", ":") + ":"
	rest, ok := strings.CutPrefix(name, want)
	if !ok {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, want)}
	}
	return validation.NameIsDNSSubdomain(rest, prefix)
}

// UserAnnotations checks the annotations of a request for a certificate: each key has a domain, and all together are no
// larger than those of an object.
func UserAnnotations(all map[string]string, at *field.Path) (errs field.ErrorList) {
	for key := range Sorted(all) {
		errs = append(errs, utilvalidation.IsDomainPrefixedKey(at, strings.ToLower(key))...)
	}
	if validation.ValidateAnnotationsSize(all) != nil {
		errs = append(errs, field.TooLong(at, "", validation.TotalAnnotationSizeLimitB))
	}
	return errs
}
