package patch

import (
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A copy operation can double the document, so 30 of them could fill any memory. The
// library has one limit for the whole process, which a program that embeds the server may
// set for itself. So operations are applied in groups whose copies cannot add up to more
// than MaxBytes, or that have a single copy, and the size is checked between groups.

// maxCopyWork bounds the bytes that are read and written for all groups of a patch, about
// 20 to 40 ns each. It is five times the size of the largest document.
const maxCopyWork = 5 * MaxBytes

// applyAll applies operations to a document, which may have at most most bytes between two
// groups.
func applyAll(document []byte, operations jsonpatch.Patch, most int) ([]byte, error) {
	work := 0
	for {
		n := group(operations, len(document), most)
		out, err := guarded(func() ([]byte, error) { return operations[:n].Apply(document) })
		if err != nil {
			return nil, &operationError{err}
		}
		document, operations = out, operations[n:]
		if len(operations) == 0 {
			return document, nil
		}
		if Size(document) > most {
			return nil, tooLarge()
		}
		if work += len(document); work > maxCopyWork {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the patch copies too often for an object of %d bytes", len(document)))
		}
	}
}

// group returns how many operations can be applied before the document's size has to be
// checked again: at least one, if there is one.
func group(operations jsonpatch.Patch, size, most int) int {
	copied := 0
	for i, o := range operations {
		if value := o["value"]; value != nil {
			size += len(*value)
		}
		if o.Kind() != "copy" {
			continue
		}
		if copied > 0 && copied+size > most {
			return i
		}
		copied, size = copied+size, 2*size // at most the whole document is copied
	}
	return len(operations)
}
