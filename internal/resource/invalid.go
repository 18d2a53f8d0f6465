package resource

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits on errors. A 3 MiB body can break rules 100,000 times, and its Status would be 100
// times as large. The first cause is always included.
const (
	// MaxErrors is how many errors of one object, or of one list or map in it, are found and
	// reported.
	MaxErrors = 1000
	// maxCauseBytes bounds the fields and messages of all causes.
	maxCauseBytes = 256 << 10
	// MaxStatusBytes bounds the text of a Status: a library's error may quote each of a
	// million list items.
	MaxStatusBytes = 512 << 10
)

// Invalid returns the response to an object that breaks rules (422). It contains the first
// errors, and how many more there are.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) *apierrors.StatusError {
	said, bytes := 0, 0
	for _, e := range errs {
		if said == MaxErrors {
			break
		}
		bytes += len(e.Field) + len(e.ErrorBody())
		if said > 0 && bytes > maxCauseBytes {
			break
		}
		said++
	}
	response := newInvalid(kind, name, errs[:said])
	if left := len(errs) - said; left > 0 {
		more := fmt.Sprintf("and %d more errors", left)
		response.ErrStatus.Message += ", " + more
		response.ErrStatus.Details.Causes = append(response.ErrStatus.Details.Causes, metav1.StatusCause{Type: metav1.CauseType(field.ErrorTypeTooMany), Message: more})
	}
	return response
}

// newInvalid is apierrors.NewInvalid for many errors: that function's cost grows with the square of
// the text, some 100 MB of memory for a thousand errors.
func newInvalid(kind schema.GroupKind, name string, errs field.ErrorList) *apierrors.StatusError {
	if len(errs) < 2 {
		return apierrors.NewInvalid(kind, name, errs)
	}
	causes, texts, seen := make([]metav1.StatusCause, 0, len(errs)), make([]string, 0, len(errs)), map[string]bool{}
	for _, e := range errs {
		body := e.ErrorBody()
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseType(e.Type), Message: body, Field: e.Field})
		if text := e.Error(); !seen[text] {
			seen[text] = true
			texts = append(texts, text)
		}
	}
	text := strings.Join(texts, ", ")
	if len(texts) > 1 {
		text = "[" + text + "]"
	}
	response := apierrors.NewInvalid(kind, name, errs[:1])
	response.ErrStatus.Message = fmt.Sprintf("%s %q is invalid: %s", kind.String(), name, text)
	response.ErrStatus.Details.Causes = causes
	return response
}

// BoundStatus returns the Status with at most so many bytes of text in its message, in its
// details, and in its causes. It changes s, but not its Details.
func BoundStatus(s *metav1.Status, most int) *metav1.Status {
	s.Message = cut(s.Message, most)
	if s.Details == nil {
		return s
	}
	d := *s.Details
	const name = 1 << 10 // names that exist are shorter
	d.Name, d.Group, d.Kind = cut(d.Name, name), cut(d.Group, name), cut(d.Kind, name)
	for i, c := range d.Causes {
		if most -= len(c.Message) + len(c.Field) + len(c.Type); most < 0 && i > 0 {
			d.Causes = d.Causes[:i:i]
			break
		}
	}
	if len(d.Causes) > 0 { // the first one stays, whatever its size
		c := d.Causes[0]
		c.Message, c.Field = cut(c.Message, MaxStatusBytes), cut(c.Field, MaxStatusBytes)
		d.Causes = slices.Concat([]metav1.StatusCause{c}, d.Causes[1:])
	}
	s.Details = &d
	return s
}

// cut returns the text, or its beginning if it is longer than most bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " ..."
}
