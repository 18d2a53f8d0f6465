package patch

import (
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Operations are those of a JSON patch, decoded. The zero value has none.
type Operations struct {
	all  jsonpatch.Patch
	size int // of the text
}

// Decode decodes a JSON patch. The text of an error is that of the decoder.
func Decode(patch []byte) (Operations, error) {
	all, err := jsonpatch.DecodePatch(patch)
	return Operations{all, len(patch)}, err
}

// Len returns the number of operations.
func (o Operations) Len() int { return len(o.all) }

// MarshalJSON implements json.Marshaler. The members of an operation are sorted.
func (o Operations) MarshalJSON() ([]byte, error) { return json.Marshal(o.all) }

// Apply applies the operations to a document, within the limits of JSON. The text of an error is that
// of the first operation that fails, or names the limit.
func (o Operations) Apply(document []byte) ([]byte, error) {
	if err := o.bound(document); err != nil {
		return nil, err
	}
	out, err := applyAll(document, o.all, MaxBytes)
	if err == nil && Size(out) > MaxBytes {
		err = tooLarge()
	}
	var failed *operationError
	if errors.As(err, &failed) {
		err = failed.error
	}
	return out, err
}

// bound refuses operations that are too many, or too many for the document.
func (o Operations) bound(document []byte) error {
	if len(o.all) > MaxOperations {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"The allowed maximum operations in a JSON patch is %d, got %d", MaxOperations, len(o.all)))
	}
	return boundMoves(document, o.all, o.size)
}

// operationError is the error of an operation that does not fit the document.
type operationError struct{ error }
