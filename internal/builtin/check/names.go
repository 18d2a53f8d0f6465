package check

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Nearly all names are checked without the regular expressions of the library. The library makes
// the messages for the others.

// LabelFaults returns the messages about an invalid DNS label.
func LabelFaults(name string) []string {
	if len(name) <= utilvalidation.DNS1123LabelMaxLength && isPlain(name, "") {
		return nil
	}
	return utilvalidation.IsDNS1123Label(name)
}

// SubdomainFaults returns the messages about an invalid DNS subdomain.
func SubdomainFaults(name string) []string {
	if len(name) <= utilvalidation.DNS1123SubdomainMaxLength && isPlain(name, ".") {
		return nil
	}
	return utilvalidation.IsDNS1123Subdomain(name)
}

// QualifiedNameFaults returns the messages about an invalid qualified name.
func QualifiedNameFaults(name string) []string {
	domain, rest, ok := strings.Cut(name, "/")
	if !ok {
		domain, rest = "a", name
	}
	if len(domain) <= utilvalidation.DNS1123SubdomainMaxLength && isPlain(domain, ".") && isWord(rest) {
		return nil
	}
	return utilvalidation.IsQualifiedName(name)
}

// Labels checks the keys and values of labels.
func Labels(all map[string]string, path *field.Path) field.ErrorList {
	if arePlain(all) {
		return nil
	}
	return metav1validation.ValidateLabels(all, path)
}

func arePlain(labels map[string]string) bool {
	for name, value := range labels {
		if value != "" && !isWord(value) || len(QualifiedNameFaults(name)) > 0 {
			return false
		}
	}
	return true
}

// isSimple reports whether a selector is valid at a glance. It is a fast path: other
// selectors may be valid, too.
func isSimple(s *metav1.LabelSelector) bool {
	return len(s.MatchExpressions) == 0 && arePlain(s.MatchLabels)
}

// isPlain reports whether a name consists of lower-case letters and digits, separated by dashes or
// by single characters of others.
func isPlain(name, others string) bool {
	last := byte('-')
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-' && alphanumeric(last), c == '-' && last == '-' && i > 0:
			last = c
		case alphanumeric(last) && strings.IndexByte(others, c) >= 0:
			last = c
		default:
			return false
		}
	}
	return alphanumeric(last)
}

// isWord reports whether s can be the name part of a label key, or a label value that is not
// empty: up to 63 letters, digits, and "-_." within.
func isWord(s string) bool {
	if s == "" || len(s) > utilvalidation.LabelValueMaxLength || !alphanumeric(s[0]) || !alphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
