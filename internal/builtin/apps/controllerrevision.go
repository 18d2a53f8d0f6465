package apps

import (
	"bytes"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// DefaultControllerRevision removes white space from the data.
func DefaultControllerRevision(r *appsv1.ControllerRevision) { check.Compact(&r.Data) }

// ValidateControllerRevision checks a new ControllerRevision: its data is a JSON object.
func ValidateControllerRevision(r *appsv1.ControllerRevision) field.ErrorList {
	var errs check.Errors
	errs.NonNegative(nil, "revision", r.Revision)
	at := field.NewPath("data")
	var v any
	if r.Data.Raw == nil {
		errs.Required(at, "", "data is mandatory")
	} else if err := json.Unmarshal(r.Data.Raw, &v); err != nil {
		errs.Invalid(at, "", "<value omitted>", fmt.Sprintf("error parsing data: %v", err))
	} else if v == nil {
		errs.Required(at, "", "data is mandatory")
	} else if _, ok := v.(map[string]any); !ok {
		errs.Required(at, "", "data must be a valid JSON object")
	}
	return errs.List()
}

// ValidateControllerRevisionUpdate checks an update: data is immutable.
func ValidateControllerRevisionUpdate(r, old *appsv1.ControllerRevision) field.ErrorList {
	var errs check.Errors
	errs.NonNegative(nil, "revision", r.Revision)
	if !bytes.Equal(compact(r.Data.Raw), compact(old.Data.Raw)) {
		errs.Invalid(nil, "data", r.Data, apivalidation.FieldImmutableErrorMsg)
	}
	return errs.List()
}

// compact returns JSON without white space. It returns invalid JSON unchanged.
func compact(data []byte) []byte {
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		return data
	}
	return b.Bytes()
}
