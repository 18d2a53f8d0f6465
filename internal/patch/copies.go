package patch

import (
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A copy of a JSON patch can double the document, and 30 of them can fill the memory of
// any machine. The library has one bound for all of a process, which is not ours to set:
// a program that embeds the server may use the library, too. So operations are applied in groups
// whose copies cannot add up to more than MaxBytes, or that have one copy alone, and the
// size is looked at between them.

// maxCopyWork bounds the bytes that are read and written for the groups of one patch,
// about 20 ns each.
const maxCopyWork = 64 << 20

// applyAll applies operations to a document; most is how many bytes it may have between
// two groups.
func applyAll(document []byte, operations jsonpatch.Patch, most int) ([]byte, error) {
	work := 0
	for {
		n := group(operations, len(document), most)
		out, err := guarded(func() ([]byte, error) { return operations[:n].Apply(document) })
		if err != nil {
			return nil, unprocessable(err)
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

// group is how many of the operations can be applied to a document of a size before it
// has to be looked at again: at least one, if there is one.
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
