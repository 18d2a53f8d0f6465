package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateNamespace checks the finalizers of the spec.
func ValidateNamespace(ns *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	for _, f := range ns.Spec.Finalizers {
		errs = append(errs, validateFinalizer(string(f), field.NewPath("spec", "finalizers"))...)
	}
	return errs
}

// ValidateNamespaceUpdate checks the new object like a created one.
func ValidateNamespaceUpdate(ns, _ *corev1.Namespace) field.ErrorList { return ValidateNamespace(ns) }

// ValidateNamespaceStatus checks that the phase agrees with the deletion timestamp.
func ValidateNamespaceStatus(ns, _ *corev1.Namespace) field.ErrorList {
	path, phase := field.NewPath("status", "Phase"), ns.Status.Phase
	switch {
	case ns.DeletionTimestamp.IsZero() && phase != corev1.NamespaceActive:
		return field.ErrorList{field.Invalid(path, phase, "may only be 'Active' if `deletionTimestamp` is empty")}
	case !ns.DeletionTimestamp.IsZero() && phase != corev1.NamespaceTerminating:
		return field.ErrorList{field.Invalid(path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")}
	}
	return nil
}

// ValidateFinalize checks an update of the subresource finalize.
func ValidateFinalize(ns, _ *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	for i, f := range ns.Spec.Finalizers {
		errs = append(errs, validateFinalizer(string(f), field.NewPath("spec", "finalizers").Index(i))...)
	}
	return errs
}

// plainFinalizers are the standard finalizers, which have no domain.
var plainFinalizers = []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}

func validateFinalizer(name string, path *field.Path) field.ErrorList {
	return append(validation.ValidateFinalizerName(name, path), validateDomain(name, path)...)
}

// validateDomain checks that a finalizer has a domain or is a standard one.
func validateDomain(name string, path *field.Path) (errs field.ErrorList) {
	if !strings.Contains(name, "/") && !slices.Contains(plainFinalizers, name) {
		errs = append(errs, field.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified"))
	}
	return errs
}
