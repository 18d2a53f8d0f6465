package apply

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
)

// conflictError is the 409 of an apply. Causes and managers are sorted.
func conflictError(conflicts merge.Conflicts) *apierrors.StatusError {
	slices.SortStableFunc(conflicts, func(a, b merge.Conflict) int { return strings.Compare(a.Manager, b.Manager) })
	causes := make([]metav1.StatusCause, 0, len(conflicts))
	for _, c := range conflicts {
		causes = append(causes, metav1.StatusCause{
			Type:    metav1.CauseTypeFieldManagerConflict,
			Message: "conflict with " + shown(c.Manager),
			Field:   c.Path.String(),
		})
	}
	return apierrors.NewApplyConflict(causes, conflictText(conflicts))
}

func conflictText(conflicts merge.Conflicts) string {
	if len(conflicts) == 1 {
		return fmt.Sprintf("Apply failed with 1 conflict: conflict with %s: %v", shown(conflicts[0].Manager), conflicts[0].Path)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Apply failed with %d conflicts: ", len(conflicts))
	for i, c := range conflicts {
		if i == 0 || conflicts[i-1].Manager != c.Manager {
			if i > 0 {
				b.WriteString("\n")
			}
			fmt.Fprintf(&b, "conflicts with %s:", shown(c.Manager))
		}
		fmt.Fprintf(&b, "\n- %v", c.Path)
	}
	return b.String()
}

// shown describes the manager with an id.
func shown(id string) string {
	var e metav1.ManagedFieldsEntry
	if err := json.Unmarshal([]byte(id), &e); err != nil {
		return fmt.Sprintf("%q", id)
	}
	text := fmt.Sprintf("%q", e.Manager)
	if e.Subresource != "" {
		text += fmt.Sprintf(" with subresource %q", e.Subresource)
	}
	if e.Operation != metav1.ManagedFieldsOperationUpdate {
		return text
	}
	text += " using " + e.APIVersion
	if e.Time != nil {
		text += " at " + e.Time.UTC().Format(time.RFC3339)
	}
	return text
}
