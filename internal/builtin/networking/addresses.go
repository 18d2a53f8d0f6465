package networking

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// ValidateIPAddress checks the parent reference of an address.
func ValidateIPAddress(a *networkingv1.IPAddress) (errs field.ErrorList) {
	path, p := field.NewPath("spec", "parentRef"), a.Spec.ParentRef
	if p == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	if p.Group != "" { // the core group, of Services, is ""
		errs = append(errs, check.DNSSubdomain(p.Group, path.Child("group"))...)
	}
	errs = append(errs, check.RequiredSegment(p.Resource, path.Child("resource"))...)
	errs = append(errs, check.RequiredSegment(p.Name, path.Child("name"))...)
	if p.Namespace != "" {
		errs = append(errs, check.Segment(p.Namespace, path.Child("namespace"))...)
	}
	return errs
}

// ValidateIPAddressUpdate checks the new object, and that its parent is unchanged.
func ValidateIPAddressUpdate(a, old *networkingv1.IPAddress) field.ErrorList {
	errs := ValidateIPAddress(a)
	if !check.Equal(a.Spec.ParentRef, old.Spec.ParentRef) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "parentRef"), check.Bare(a.Spec.ParentRef), validation.FieldImmutableErrorMsg))
	}
	return errs
}

// ValidateServiceCIDR checks that there is one CIDR, or one of each family.
func ValidateServiceCIDR(c *networkingv1.ServiceCIDR) (errs field.ErrorList) {
	path, all := field.NewPath("spec", "cidrs"), c.Spec.CIDRs
	switch {
	case len(all) == 0:
		return field.ErrorList{field.Required(path, "at least one CIDR required")}
	case len(all) > 2:
		return field.ErrorList{field.Invalid(path, check.Bare(c.Spec), "may only hold up to 2 values")}
	}
	for i, text := range all {
		errs = append(errs, utilvalidation.IsValidCIDR(path.Index(i), text)...)
	}
	if len(all) == 2 {
		a, err1 := netip.ParsePrefix(all[0])
		b, err2 := netip.ParsePrefix(all[1])
		if err1 == nil && err2 == nil && a.Addr().Is4() == b.Addr().Is4() {
			errs = append(errs, field.Invalid(path, all, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
		}
	}
	return errs
}

// ValidateServiceCIDRUpdate checks an update: a CIDR of the other family can be added, and the
// first one is immutable.
func ValidateServiceCIDRUpdate(c, old *networkingv1.ServiceCIDR) (errs field.ErrorList) {
	path, all, was := field.NewPath("spec", "cidrs"), c.Spec.CIDRs, old.Spec.CIDRs
	if len(all) != len(was) && (len(was) != 1 || len(all) != 2) {
		return field.ErrorList{field.Invalid(path, all, validation.FieldImmutableErrorMsg)}
	}
	for i := range was {
		if all[i] != was[i] {
			errs = append(errs, field.Invalid(path.Index(i), all[i], validation.FieldImmutableErrorMsg))
		}
	}
	if len(all) != len(was) {
		errs = append(errs, ValidateServiceCIDR(c)...)
	}
	return errs
}
