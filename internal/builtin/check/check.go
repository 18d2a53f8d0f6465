// Package check validates single values for the rules of many kinds. Each function returns errors
// with the messages of kube-apiserver, or nil.
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

// each returns an error for each message about a value.
func each[T any](value T, path *field.Path, faults []string) (errs field.ErrorList) {
	for _, fault := range faults {
		errs = append(errs, field.Invalid(path, value, fault))
	}
	return errs
}

// QualifiedName checks a name with an optional domain, such as "example.com/name".
func QualifiedName(value string, path *field.Path) field.ErrorList {
	return each(value, path, QualifiedNameFaults(value))
}

// DNSLabel checks a DNS label.
func DNSLabel(value string, path *field.Path) field.ErrorList {
	return each(value, path, LabelFaults(value))
}

// DNSSubdomain checks a DNS subdomain.
func DNSSubdomain(value string, path *field.Path) field.ErrorList {
	return each(value, path, SubdomainFaults(value))
}

// Segment checks a path segment of a URL.
func Segment(value string, path *field.Path) field.ErrorList {
	return each(value, path, content.IsPathSegmentName(value))
}

// RequiredSegment is Segment for a value that must not be empty.
func RequiredSegment(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return Segment(value, path)
}

// Port checks a port number.
func Port(n int32, path *field.Path) field.ErrorList {
	return each(n, path, utilvalidation.IsValidPortNum(int(n)))
}

// PortName checks a port name.
func PortName(name string, path *field.Path) field.ErrorList {
	return each(name, path, utilvalidation.IsValidPortName(name))
}

// Protocols are the supported protocols of a port.
var Protocols = []corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}

// Protocol checks the protocol of a port.
func Protocol(p corev1.Protocol, path *field.Path) field.ErrorList {
	if p == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return OneOf(p, Protocols, path)
}

// LegacyIP checks an IP address in a field that once accepted more forms. It accepts known
// addresses, which are those of the stored object.
func LegacyIP(ip string, known *Seen[string], path *field.Path) field.ErrorList {
	if known.Has(ip) {
		return nil
	}
	return utilvalidation.IsValidIPForLegacyField(path, ip, true, nil)
}

// LegacyCIDR is LegacyIP for a CIDR.
func LegacyCIDR(cidr string, known *Seen[string], path *field.Path) field.ErrorList {
	if known.Has(cidr) {
		return nil
	}
	return utilvalidation.IsValidCIDRForLegacyField(path, cidr, true, nil)
}

// EndpointIP checks an address that receives traffic from other hosts.
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

// OneOf checks an enum.
func OneOf[T ~string](value T, of []T, path *field.Path) field.ErrorList {
	if slices.Contains(of, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, of)}
}

// NotNegative checks that a number is not negative.
func NotNegative(n int64, path *field.Path) field.ErrorList {
	if n >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, n, validation.IsNegativeErrorMsg)}
}

// Selector checks a label selector. If old, the stored selector, is invalid, the new one may have
// invalid values. Old may be nil.
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

// InOrder sorts errors by their paths. It makes the response for errors found in a map
// deterministic.
func InOrder(errs field.ErrorList) {
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return cmp.Compare(a.Field, b.Field) })
}

// Sorted iterates over a small map in the order of its keys.
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

// Equal compares two optional values.
func Equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// IsTrue reports whether an optional value is true.
func IsTrue(b *bool) bool { return b != nil && *b }

// IPWarnings warns about an IP address that is not in canonical form. It ignores other text, which
// validation rejects.
func IPWarnings(text string, path *field.Path) []string {
	if a, err := netip.ParseAddr(text); err == nil && a.Is4() {
		return nil // a fast path for nearly all addresses
	}
	if len(utilvalidation.IsValidIPForLegacyField(path, text, false, nil)) > 0 {
		return nil // the library would log an error
	}
	return utilvalidation.GetWarningsForIP(path, text)
}

// CIDRWarnings is IPWarnings for a CIDR.
func CIDRWarnings(text string, path *field.Path) []string {
	if len(utilvalidation.IsValidCIDRForLegacyField(path, text, false, nil)) > 0 {
		return nil
	}
	return utilvalidation.GetWarningsForCIDR(path, text)
}
