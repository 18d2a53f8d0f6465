package patch

import (
	"errors"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// ErrTest is the error of a JSON patch with a test operation that fails.
var ErrTest = jsonpatch.ErrTestFailed

// Apply applies the JSON patch of an admission plugin, within the bounds of [JSON]. Its errors are
// those of the library: an operation that does not fit, or ErrTest.
func Apply(document, patch []byte) ([]byte, error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	if len(operations) > MaxOperations {
		return nil, fmt.Errorf("the allowed maximum operations in a JSON patch is %d, got %d", MaxOperations, len(operations))
	}
	if err := boundMoves(document, operations, patch); err != nil {
		return nil, err
	}
	out, err := applyOperations(document, operations, MaxBytes)
	if err != nil {
		return nil, err
	}
	if Size(out) > MaxBytes {
		return nil, tooLarge()
	}
	return out, nil
}

// failedOperation is the error of the library for an operation.
type failedOperation struct{ error }

func (e failedOperation) Unwrap() error { return e.error }

// applyAll is applyOperations with the errors of a client's patch.
func applyAll(document []byte, operations jsonpatch.Patch, most int) ([]byte, error) {
	out, err := applyOperations(document, operations, most)
	if failed := (failedOperation{}); errors.As(err, &failed) {
		return nil, unprocessable(failed.error)
	}
	return out, err
}
