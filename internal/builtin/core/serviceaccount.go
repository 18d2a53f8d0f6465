package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// mountable is a deprecated annotation.
const mountable = "kubernetes.io/enforce-mountable-secrets"

// PrepareServiceAccount keeps only the names of references to Secrets.
func PrepareServiceAccount(a *corev1.ServiceAccount) {
	for i := range a.Secrets {
		a.Secrets[i] = corev1.ObjectReference{Name: a.Secrets[i].Name}
	}
}

// PrepareServiceAccountUpdate is PrepareServiceAccount for an update.
func PrepareServiceAccountUpdate(a, _ *corev1.ServiceAccount) bool {
	if !slices.ContainsFunc(a.Secrets, func(r corev1.ObjectReference) bool { return r != corev1.ObjectReference{Name: r.Name} }) {
		return false
	}
	a.Secrets = slices.Clone(a.Secrets)
	PrepareServiceAccount(a)
	return true
}

// ServiceAccountWarnings warns about the deprecated annotation when it is added.
func ServiceAccountWarnings(a, old *corev1.ServiceAccount) []string {
	if old != nil {
		if _, known := old.Annotations[mountable]; known {
			return nil
		}
	}
	if _, ok := a.Annotations[mountable]; !ok {
		return nil
	}
	return []string{"metadata.annotations[" + mountable + "]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
}
