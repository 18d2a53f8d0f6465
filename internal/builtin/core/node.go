//lint:file-ignore SA1019 Nodes have fields that are deprecated, and served.

package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// DefaultNode sets allocatable to capacity if it is missing, and makes podCIDR and podCIDRs agree.
func DefaultNode(n *corev1.Node) {
	check.RoundUp(n.Status.Capacity)
	check.RoundUp(n.Status.Allocatable)
	if len(n.Status.Allocatable) == 0 && n.Status.Capacity != nil { // kube-apiserver stores an empty map as none
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	switch s := &n.Spec; {
	case s.PodCIDR != "" && (len(s.PodCIDRs) == 0 || s.PodCIDRs[0] != s.PodCIDR):
		s.PodCIDRs = []string{s.PodCIDR}
	case len(s.PodCIDRs) > 0:
		s.PodCIDR = s.PodCIDRs[0]
	}
}

// PrepareNode drops fields that are no longer supported.
func PrepareNode(n *corev1.Node) { n.Spec.ConfigSource, n.Status.Config = nil, nil }

// PrepareNodeUpdate drops the fields from an update, unless the stored Node has them.
func PrepareNodeUpdate(n, old *corev1.Node) (changed bool) {
	if n.Spec.ConfigSource != nil && old.Spec.ConfigSource == nil {
		n.Spec.ConfigSource, changed = nil, true
	}
	return changed
}

// ValidateNode checks a new Node and its status.
func ValidateNode(n *corev1.Node) field.ErrorList {
	errs := append(validateAvoidedPods(n), validateNodeTaints(n)...)
	errs = append(errs, validateNodeStatus(n)...)
	if s := n.Status.NodeInfo.Swap; s != nil && s.Capacity != nil && *s.Capacity <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "nodeSwapStatus", "capacity"), *s.Capacity, "must be greater than zero"))
	}
	path, all := field.NewPath("spec", "podCIDRs"), n.Spec.PodCIDRs
	for i, cidr := range all {
		errs = append(errs, validation.IsValidCIDRForLegacyField(path.Index(i), cidr, true, nil)...)
	}
	if len(all) < 2 {
		return errs
	}
	dual, err := dualStack(all)
	if err != nil {
		errs = append(errs, field.InternalError(path, fmt.Errorf("invalid PodCIDRs. failed to check with dual stack with error:%w", err)))
	}
	if !dual || len(all) > 2 {
		errs = append(errs, field.Invalid(path, all, "may specify no more than one CIDR for each IP family"))
	}
	return errs
}

// dualStack reports whether there are CIDRs of both families.
func dualStack(all []string) (bool, error) {
	var v4, v6 bool
	for i, text := range all {
		_, cidr, err := net.ParseCIDR(text)
		if err != nil {
			return false, fmt.Errorf("invalid CIDR[%d]: %v (%w)", i, cidr, err) // kube-apiserver's error has the nil CIDR
		}
		v4, v6 = v4 || cidr.IP.To4() != nil, v6 || cidr.IP.To4() == nil
	}
	return v4 && v6, nil
}

// ValidateNodeUpdate checks the new object, and validates immutable fields.
func ValidateNodeUpdate(n, old *corev1.Node) field.ErrorList {
	return append(ValidateNode(n), ValidateNodeStatus(n, old)...)
}

// ValidateNodeStatus checks an update of the status. It is a part of the check of any update.
func ValidateNodeStatus(n, old *corev1.Node) field.ErrorList {
	errs := append(validateAvoidedPods(n), validateNodeStatus(n)...)
	var addresses check.Seen[corev1.NodeAddress]
	for i, a := range n.Status.Addresses {
		if addresses.Again(a) {
			errs = append(errs, field.Duplicate(field.NewPath("status", "addresses").Index(i), check.Bare(a)))
		}
	}
	if was := old.Spec.PodCIDRs; len(was) > 0 {
		const changed = "node updates may not change podCIDR except from \"\" to valid"
		path := field.NewPath("spec", "podCIDRs")
		if len(was) != len(n.Spec.PodCIDRs) {
			errs = append(errs, field.Forbidden(path, changed))
		} else {
			for i := range was {
				if was[i] != n.Spec.PodCIDRs[i] {
					errs = append(errs, field.Forbidden(path, changed))
				}
			}
		}
	}
	if id := old.Spec.ProviderID; id != "" && id != n.Spec.ProviderID {
		fault := "field cannot be modified once set"
		if n.Spec.ProviderID == "" {
			fault = "field cannot be cleared once set"
		}
		errs = append(errs, field.Invalid(field.NewPath("spec", "providerID"), nil, fault))
	}
	errs = append(errs, validateNodeTaints(n)...)
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "externalID"), "may not be updated"))
	}
	return errs
}

// validateAvoidedPods checks a deprecated annotation that keeps Pods away from a Node.
func validateAvoidedPods(n *corev1.Node) (errs field.ErrorList) {
	text := n.Annotations[corev1.PreferAvoidPodsAnnotationKey]
	if text == "" {
		return nil
	}
	path := field.NewPath("metadata", "annotations")
	var avoid corev1.AvoidPods
	if err := json.Unmarshal([]byte(text), &avoid); err != nil {
		return field.ErrorList{field.Invalid(path.Child("AvoidPods"), corev1.PreferAvoidPodsAnnotationKey, err.Error())}
	}
	for i, a := range avoid.PreferAvoidPods {
		at := path.Child(corev1.PreferAvoidPodsAnnotationKey).Index(i).Child("PodSignature")
		switch c := a.PodSignature.PodController; {
		case c == nil:
			errs = append(errs, field.Required(at, ""))
		case !check.IsTrue(c.Controller):
			errs = append(errs, field.Invalid(at.Child("PodController", "Controller"), false, "must point to a controller"))
		}
	}
	return errs
}

// NodeWarnings warns about fields without effect.
func NodeWarnings(n, _ *corev1.Node) (all []string) {
	if n.Spec.ConfigSource != nil {
		all = append(all, "spec.configSource: the feature is removed")
	}
	if n.Spec.DoNotUseExternalID != "" {
		all = append(all, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range n.Spec.PodCIDRs {
		all = append(all, check.CIDRWarnings(cidr, field.NewPath("spec", "podCIDRs").Index(i))...)
	}
	return all
}

// validateNodeTaints checks taints. Its errors have the path of kube-apiserver's.
func validateNodeTaints(n *corev1.Node) (errs field.ErrorList) {
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	type pair struct {
		key    string
		effect corev1.TaintEffect
	}
	var pairs check.Seen[pair]
	for i, t := range n.Spec.Taints {
		path := field.NewPath("metadata", "taints").Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
		if faults := validation.IsValidLabelValue(t.Value); len(faults) > 0 {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, strings.Join(faults, ";")))
		}
		switch {
		case t.Effect == "":
			errs = append(errs, field.Required(path.Child("effect"), ""))
		case !slices.Contains(effects, t.Effect):
			errs = append(errs, field.NotSupported(path.Child("effect"), t.Effect, effects))
		}
		if pairs.Again(pair{t.Key, t.Effect}) {
			twice := field.Duplicate(path, check.Bare(t))
			twice.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, twice)
		}
	}
	return errs
}

// validateNodeStatus checks quantities and declared features.
func validateNodeStatus(n *corev1.Node) (errs field.ErrorList) {
	for name, q := range n.Status.Capacity {
		errs = check.Quantity(errs, name, q, field.NewPath("status", "capacity", string(name)))
	}
	check.InOrder(errs)
	have := len(errs)
	for name, q := range n.Status.Allocatable {
		errs = check.Quantity(errs, name, q, field.NewPath("status", "allocatable", string(name)))
	}
	check.InOrder(errs[have:])
	path, all := field.NewPath("status", "declaredFeatures"), n.Status.DeclaredFeatures
	for i, f := range all {
		if err := checkFeature(f); err != nil {
			errs = append(errs, field.Invalid(path.Index(i), f, err.Error()))
		}
		switch {
		case i+1 == len(all):
		case all[i+1] == f:
			errs = append(errs, field.Duplicate(path.Index(i+1), f))
		case all[i+1] < f:
			errs = append(errs, field.Invalid(path.Index(i+1), all[i+1], "list must be sorted alphabetically"))
		}
	}
	return errs
}

// checkFeature checks a name such as MyFeature or MyFeature/mySubFeature.
func checkFeature(name string) error {
	if len(name) > validation.DNS1123SubdomainMaxLength {
		return fmt.Errorf("invalid feature name %q: must be no more than %d characters", name, validation.DNS1123SubdomainMaxLength)
	}
	for i, part := range strings.Split(name, "/") {
		upper := part != "" && part[0] >= 'A' && part[0] <= 'Z'
		lower := part != "" && part[0] >= 'a' && part[0] <= 'z'
		other := strings.ContainsFunc(part, func(r rune) bool { return r >= 0x80 || !alphanumeric(byte(r)) })
		if other || !upper && (i == 0 || !lower) {
			return fmt.Errorf("invalid feature name %q: %w", name, errFeature)
		}
	}
	return nil
}

var errFeature = errors.New("must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes")

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
