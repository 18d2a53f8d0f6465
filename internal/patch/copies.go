package patch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	if out, ok := quickly(document, operations); ok {
		return out, nil
	}
	work := 0
	for {
		n := group(operations, document, most)
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
// checked again: at least one, if there is one. If no earlier operation of the group has touched
// the source of a copy, the copy has the size of the source in the document. Otherwise it has at
// most the size of the whole document.
func group(operations jsonpatch.Patch, document []byte, most int) int {
	isCopy := func(o jsonpatch.Operation) bool { return o.Kind() == "copy" }
	if !slices.ContainsFunc(operations, isCopy) {
		return len(operations)
	}
	size, copied := len(document), 0
	var t changedPaths
	values := sizes{document: document}
	for i, o := range operations {
		if value := o["value"]; value != nil {
			size += len(*value)
		}
		path, _ := o.Path()
		if o.Kind() == "move" {
			from, _ := o.From()
			t.add(segments(from))
		}
		if isCopy(o) {
			n, known := 0, false
			if text, err := o.From(); err == nil {
				if from := segments(text); !t.has(from) {
					n, known = values.at(from)
				}
			}
			if !known {
				n = size
			}
			if copied > 0 && copied+n > most {
				return i
			}
			copied, size = copied+n, size+n
		}
		t.add(segments(path))
	}
	return len(operations)
}

// maxSegments is the maximum depth to which the paths of a group are compared.
const maxSegments = 16

// segments returns the decoded segments of a JSON pointer.
func segments(pointer string) []string {
	all := strings.Split(pointer, "/")[1:]
	for i, s := range all {
		all[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
	}
	return all
}

// key returns segments as a key of a map.
func key(segments []string) string {
	var b strings.Builder
	for _, s := range segments {
		fmt.Fprintf(&b, "%d:%s/", len(s), s)
	}
	return b.String()
}

// changedPaths are the paths that the operations of a group have touched.
type changedPaths struct {
	paths, above map[string]bool
}

func (t *changedPaths) add(path []string) {
	if t.paths == nil {
		t.paths, t.above = map[string]bool{}, map[string]bool{}
	}
	path = path[:min(len(path), maxSegments)]
	if n := len(path); n > 0 {
		if _, err := strconv.Atoi(path[n-1]); err == nil || path[n-1] == "-" {
			path = path[:n-1] // the other items of a list move, too
		}
	}
	t.paths[key(path)] = true
	for i := range path {
		t.above[key(path[:i])] = true
	}
}

// has reports whether the value at a path may have been touched.
func (t *changedPaths) has(path []string) bool {
	if len(path) > maxSegments || t.above[key(path)] {
		return true
	}
	for i := range len(path) + 1 {
		if t.paths[key(path[:i])] {
			return true
		}
	}
	return false
}

// sizes are the sizes of values in a document.
type sizes struct {
	document []byte
	members  map[string]map[string]json.RawMessage // of objects, by the key of their paths
}

// at returns the size of the value at a path, or of the list that contains it. It returns false if there is no
// such value.
func (s *sizes) at(path []string) (int, bool) {
	if s.members == nil {
		s.members = map[string]map[string]json.RawMessage{}
	}
	value := json.RawMessage(s.document)
	for i, name := range path {
		k := key(path[:i])
		members, known := s.members[k]
		if !known {
			if json.Unmarshal(value, &members) != nil { // perhaps a list
				return len(value), true
			}
			s.members[k] = members
		}
		inner, ok := members[name]
		if !ok {
			return 0, false
		}
		value = inner
	}
	return len(value), true
}

// MayCopy reports whether a JSON patch may have copy operations. A patch of a kilobyte with a few of
// them can make a document of MaxBytes.
func MayCopy(operations []byte) bool {
	return bytes.Contains(operations, []byte("copy")) || bytes.Contains(operations, []byte(`\u`)) // the word may be escaped
}
