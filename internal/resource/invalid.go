package resource

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits on the causes of a 422. A 3 MiB body can violate rules 100,000 times, and the
// Status would be 100 times as large. The first cause is always included.
const (
	maxCauses     = 1000
	maxCauseBytes = 256 << 10 // of fields and messages
)

// Invalid is the answer to an object that breaks rules: row F8. It contains the first
// errors, and how many more there are.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) *apierrors.StatusError {
	said, bytes := 0, 0
	for _, e := range errs {
		if said == maxCauses {
			break
		}
		bytes += len(e.Field) + len(e.ErrorBody())
		if said > 0 && bytes > maxCauseBytes {
			break
		}
		said++
	}
	answer := apierrors.NewInvalid(kind, name, errs[:said])
	if left := len(errs) - said; left > 0 {
		more := fmt.Sprintf("and %d more errors", left)
		answer.ErrStatus.Message += ", " + more
		answer.ErrStatus.Details.Causes = append(answer.ErrStatus.Details.Causes, metav1.StatusCause{Type: metav1.CauseType(field.ErrorTypeTooMany), Message: more})
	}
	return answer
}
