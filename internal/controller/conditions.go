package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// remains describes the objects that still exist after the content of a namespace was deleted.
type remains struct {
	objects    map[string]int // by resource and group, "pods."
	finalizers map[string]int // objects by finalizer
	failures   []error        // of deleting, one of a type at most
	// collections of the objects.
	collections []string
	// stale are group versions of extension servers whose kinds are not known, so that their objects are not counted.
	stale []string
	// elsewhere is true if extension servers have some of the objects.
	elsewhere bool
	// undeleted is true if some objects were not marked for deletion yet.
	undeleted bool
}

const (
	// maxMessageBytes bounds the message of a condition, which is written each time that an
	// object goes.
	maxMessageBytes = 4096
	// maxFailureBytes bounds the part of one error, so that other errors have room.
	maxFailureBytes = 512
)

func (r *remains) any() bool { return len(r.objects) > 0 || len(r.failures) > 0 || len(r.stale) > 0 }

// conditions returns the conditions of a terminating namespace, with the messages of
// kube-controller-manager. Each one describes a reason that blocks the deletion, or that there is
// none.
func (r *remains) conditions(now time.Time) []corev1.NamespaceCondition {
	all := []corev1.NamespaceCondition{
		{Type: corev1.NamespaceDeletionDiscoveryFailure, Reason: "ResourcesDiscovered", Message: "All resources successfully discovered"},
		{Type: corev1.NamespaceDeletionGVParsingFailure, Reason: "ParsedGroupVersions", Message: "All legacy kube types successfully parsed"},
		{Type: corev1.NamespaceDeletionContentFailure, Reason: "ContentDeleted", Message: "All content successfully deleted, may be waiting on finalization"},
		{Type: corev1.NamespaceContentRemaining, Reason: "ContentRemoved", Message: "All content successfully removed"},
		{Type: corev1.NamespaceFinalizersRemaining, Reason: "ContentHasNoFinalizers", Message: "All content-preserving finalizers finished"},
	}
	for i := range all {
		all[i].Status, all[i].LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(now)
	}
	in := func(i int, reason, message string) {
		all[i].Status, all[i].Reason, all[i].Message = corev1.ConditionTrue, reason, short(message, maxMessageBytes)
	}
	if len(r.stale) > 0 {
		in(0, "DiscoveryFailed", discoveryFailure(r.stale))
	}
	if n := len(r.failures); n > 0 {
		var texts []string
		for _, err := range r.failures {
			texts = append(texts, short(plain(err), maxFailureBytes))
		}
		in(2, "ContentDeletionFailed", fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", n, strings.Join(sorted(texts), ", ")))
	}
	if len(r.objects) > 0 {
		in(3, "SomeResourcesRemain", "Some resources are remaining: "+counts(r.objects, "%s has %d resource instances"))
	}
	if len(r.finalizers) > 0 {
		in(4, "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "+counts(r.finalizers, "%s in %d resource instances"))
	}
	return all
}

// short returns a text, cut to a number of bytes.
func short(text string, most int) string {
	const more = "..."
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}

// counts lists names with their counts, in order.
func counts(of map[string]int, format string) string {
	var all []string
	for name, n := range of {
		all = append(all, fmt.Sprintf(format, name, n))
	}
	return strings.Join(sorted(all), ", ")
}

func sorted(all []string) []string {
	all = slices.Clone(all)
	slices.Sort(all)
	return all
}

// setConditions sets the conditions of a namespace, and reports whether any has changed. A
// condition keeps its time while its status stays.
func setConditions(status *corev1.NamespaceStatus, next []corev1.NamespaceCondition) (changed bool) {
	for _, n := range next {
		i := slices.IndexFunc(status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == n.Type })
		if i < 0 {
			status.Conditions = append(status.Conditions, n)
			changed = true
			continue
		}
		c := &status.Conditions[i]
		if c.Status == n.Status {
			n.LastTransitionTime = c.LastTransitionTime
		}
		changed = changed || c.Status != n.Status || c.Reason != n.Reason || c.Message != n.Message
		*c = n
	}
	return changed
}
