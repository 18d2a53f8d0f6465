package registry

import (
	"bytes"
	"strconv"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// managedFields returns the managed fields of stored bytes, nil if there are none.
func managedFields(value []byte) []byte { return locateManaged(value).in(value) }

func locateManaged(value []byte) span { return locate(value, "metadata", "managedFields") }

// withManaged adds managed fields to an encoding.
func withManaged(e wire.Encoded, managed []byte) wire.Encoded {
	if len(managed) == 0 {
		return e
	}
	return wire.Encoded{Bytes: insertManaged(e.Bytes, managedAt(e.Bytes), managed), RevisionAt: e.RevisionAt}
}

// insertManaged adds managed fields at the place that managedAt returns.
func insertManaged(object []byte, at int, managed []byte) []byte {
	member := managedMember
	if object[at-1] == '{' {
		member = member[len(","):]
	}
	out := make([]byte, 0, len(object)+len(member)+len(managed))
	return append(append(append(append(out, object[:at]...), member...), managed...), object[at:]...)
}

const managedMember = `,"managedFields":`

// managedAt returns where managed fields belong: encoding/json writes them as the last member of
// the metadata. It is negative for an object without metadata.
func managedAt(object []byte) int { return locate(object, "metadata").to - 1 }

// withoutManaged returns an object without its managed fields, which are at managed. They are
// half of most objects, and most requests do not use them. It returns the object itself if they do
// not be where encoding/json writes them.
func withoutManaged(object []byte, managed span) []byte {
	before := managed.from - len(managedMember)
	if managed.to == 0 || before < 0 || string(object[before:managed.from]) != managedMember {
		return object
	}
	out := make([]byte, 0, before+len(object)-managed.to)
	return append(append(out, object[:before]...), object[managed.to:]...)
}

// sameStored reports whether an encoding with managed fields equals the stored bytes, except for
// the digits of the resource version. Such an update writes nothing.
func sameStored(current *store.Object, e wire.Encoded, managed []byte) bool {
	digits := len(strconv.FormatUint(uint64(current.Modified), 10))
	size, end := len(e.Bytes)+digits, len(e.Bytes)
	if len(managed) > 0 {
		size += len(managedMember) + len(managed)
	}
	if current.Len() != size || int(current.RevisionAt) != e.RevisionAt {
		return false
	}
	if len(managed) > 0 {
		end = managedAt(e.Bytes)
	}
	at, have := e.RevisionAt, current.Bytes()
	if !bytes.Equal(have[:at], e.Bytes[:at]) || !bytes.Equal(have[at+digits:end+digits], e.Bytes[at:end]) {
		return false
	}
	if tail := len(e.Bytes) - end; !bytes.Equal(have[len(have)-tail:], e.Bytes[end:]) {
		return false
	}
	return len(managed) == 0 || bytes.Equal(managedFields(have), managed)
}
