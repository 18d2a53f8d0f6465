package registry

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apivalidation "k8s.io/apimachinery/pkg/util/validation"
)

// withoutValidLabels returns metadata for validation. If all labels and annotations pass a fast
// check, as most do, it leaves them out: the library matches each of them against several regular
// expressions, which is most of the cost of validation. The library checks all others, and makes
// the error messages.
func withoutValidLabels(meta metav1.Object) metav1.Object {
	of, ok := meta.(metav1.ObjectMetaAccessor)
	if !ok {
		return meta
	}
	full, ok := of.GetObjectMeta().(*metav1.ObjectMeta)
	if !ok || !validLabels(full.Labels) || !validAnnotations(full.Annotations) {
		return meta
	}
	rest := *full
	rest.Labels, rest.Annotations = nil, nil
	return &rest
}

func validLabels(labels map[string]string) bool {
	for key, value := range labels {
		if !validKey(key) || value != "" && !validName(value) {
			return false
		}
	}
	return true
}

func validAnnotations(annotations map[string]string) bool {
	for key := range annotations {
		if !validKey(key) {
			return false
		}
	}
	return validation.ValidateAnnotationsSize(annotations) == nil
}

// validKey reports whether a key is a name, or a DNS subdomain, a slash and a name.
func validKey(key string) bool {
	domain, name, ok := strings.Cut(key, "/")
	if !ok {
		return validName(key)
	}
	return validSubdomain(domain) && validName(name)
}

// validName reports whether s has up to 63 letters, digits, '-', '_' and '.', and begins and ends
// with a letter or digit.
func validName(s string) bool {
	if s == "" || len(s) > apivalidation.LabelValueMaxLength || !letter(s[0]) || !letter(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !letter(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// validSubdomain reports whether s consists of labels of lowercase letters, digits and '-' with
// dots between them, which begin and end with a letter or digit.
func validSubdomain(s string) bool {
	if len(s) > apivalidation.DNS1123SubdomainMaxLength {
		return false
	}
	before := byte('.')
	for i := range len(s) {
		c := s[i]
		switch {
		case alphanumeric(c):
		case c == '-' && before != '.':
		case c == '.' && alphanumeric(before):
		default:
			return false
		}
		before = c
	}
	return alphanumeric(before)
}

// letter reports whether c is a letter or a digit.
func letter(c byte) bool { return alphanumeric(c) || 'A' <= c && c <= 'Z' }

// alphanumeric reports whether c is a lowercase letter or a digit.
func alphanumeric(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
