// Package check has what the rules of many kinds say of single values: each function
// returns what is wrong with one, in the words of kube-apiserver, nil when nothing is.
package check

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// each makes errors of what a function of the library says of a value.
func each[T any](value T, path *field.Path, faults []string) (errs field.ErrorList) {
	for _, fault := range faults {
		errs = append(errs, field.Invalid(path, value, fault))
	}
	return errs
}

// QualifiedName checks a name with or without a domain: "example.com/name".
func QualifiedName(value string, path *field.Path) field.ErrorList {
	return each(value, path, QualifiedNameFaults(value))
}

// DNSLabel checks one part of a name of DNS.
func DNSLabel(value string, path *field.Path) field.ErrorList {
	return each(value, path, LabelFaults(value))
}

// DNSSubdomain checks a name of DNS.
func DNSSubdomain(value string, path *field.Path) field.ErrorList {
	return each(value, path, SubdomainFaults(value))
}

// Segment checks a value that has to fit into a URL.
func Segment(value string, path *field.Path) field.ErrorList {
	return each(value, path, content.IsPathSegmentName(value))
}

// RequiredSegment is Segment of a value that must not be empty.
func RequiredSegment(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return Segment(value, path)
}

// Port checks the number of a port.
func Port(n int32, path *field.Path) field.ErrorList {
	return each(n, path, utilvalidation.IsValidPortNum(int(n)))
}

// PortName checks the name of a port.
func PortName(name string, path *field.Path) field.ErrorList {
	return each(name, path, utilvalidation.IsValidPortName(name))
}

// Protocols are those that ports have.
var Protocols = []corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}

// Protocol checks the protocol of a port.
func Protocol(p corev1.Protocol, path *field.Path) field.ErrorList {
	if p == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return OneOf(p, Protocols, path)
}

// LegacyIP checks an IP address in a field that once took more than it takes now: what was
// known before stays right.
func LegacyIP(ip string, known *Seen[string], path *field.Path) field.ErrorList {
	if known.Has(ip) {
		return nil
	}
	return utilvalidation.IsValidIPForLegacyField(path, ip, true, nil)
}

// LegacyCIDR is LegacyIP of a range of addresses.
func LegacyCIDR(cidr string, known *Seen[string], path *field.Path) field.ErrorList {
	if known.Has(cidr) {
		return nil
	}
	return utilvalidation.IsValidCIDRForLegacyField(path, cidr, true, nil)
}

// EndpointIP checks an address that other hosts send traffic to.
func EndpointIP(text string, path *field.Path) field.ErrorList {
	ip := netutils.ParseIPSloppy(text)
	if ip == nil {
		return field.ErrorList{field.Invalid(path, text, "must be a valid IP address")}
	}
	var errs field.ErrorList
	if ip.IsUnspecified() {
		errs = append(errs, field.Invalid(path, text, fmt.Sprintf("may not be unspecified (%s)", text)))
	}
	if ip.IsLoopback() {
		errs = append(errs, field.Invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
	}
	if ip.IsLinkLocalUnicast() {
		errs = append(errs, field.Invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
	}
	if ip.IsLinkLocalMulticast() {
		errs = append(errs, field.Invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))
	}
	return errs
}

// OneOf wants a value to be one of some.
func OneOf[T ~string](value T, of []T, path *field.Path) field.ErrorList {
	if slices.Contains(of, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, of)}
}

// NotNegative wants a number to be 0 at least.
func NotNegative(n int64, path *field.Path) field.ErrorList {
	if n >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, n, validation.IsNegativeErrorMsg)}
}

// Selector checks a label selector. Old is what stood there before; one that was
// wrong already may have wrong values on. Nil: there was none, or it does not matter.
func Selector(s, old *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if s == nil || isSimple(s) {
		return nil
	}
	errs := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
	if len(errs) > 0 && old != nil && len(metav1validation.ValidateLabelSelector(old, metav1validation.LabelSelectorValidationOptions{}, path)) > 0 {
		return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: true}, path)
	}
	return errs
}

// InOrder sorts errors by their paths: those that were found in the members of a map,
// so that one object always gets one answer.
func InOrder(errs field.ErrorList) {
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return cmp.Compare(a.Field, b.Field) })
}

// Sorted yields the members of a small map in the order of their keys.
func Sorted[K cmp.Ordered, V any](m map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if len(m) == 1 {
			for k, v := range m {
				yield(k, v)
			}
			return
		}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// Equal compares two values that may not be there.
func Equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// IsTrue reports whether a value is there and true.
func IsTrue(b *bool) bool { return b != nil && *b }

// IPWarnings warns about an address that is not in canonical form. Validation rejects text
// that is no address.
func IPWarnings(text string, path *field.Path) []string {
	if a, err := netip.ParseAddr(text); err == nil && a.Is4() {
		return nil // as nearly all are
	}
	if len(utilvalidation.IsValidIPForLegacyField(path, text, false, nil)) > 0 {
		return nil // the library would complain to the log
	}
	return utilvalidation.GetWarningsForIP(path, text)
}

// CIDRWarnings is IPWarnings of a range.
func CIDRWarnings(text string, path *field.Path) []string {
	if len(utilvalidation.IsValidCIDRForLegacyField(path, text, false, nil)) > 0 {
		return nil
	}
	return utilvalidation.GetWarningsForCIDR(path, text)
}
