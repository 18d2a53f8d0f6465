package wire

import (
	"strconv"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// AppendEvent appends a watch event and its final newline. The object is complete JSON.
func AppendEvent(to []byte, eventType string, object []byte) []byte {
	return append(append(BeginEvent(to, eventType), object...), EventTail...)
}

// BeginEvent appends the part of an event before its object.
func BeginEvent(to []byte, eventType string) []byte {
	to = append(to, `{"type":"`...)
	to = append(to, eventType...)
	return append(to, `","object":`...)
}

// EventTail ends an event.
const EventTail = "}\n"

// AppendBookmark appends the object of a BOOKMARK event: kind, apiVersion and resource
// version, and an annotation where the bookmark ends the initial events.
func AppendBookmark(to []byte, t *resource.Type, revision uint64, initialEventsEnd bool) []byte {
	to = append(to, Head(t)...)
	to = append(to, `"metadata":{"resourceVersion":"`...)
	to = strconv.AppendUint(to, revision, 10)
	if initialEventsEnd {
		return append(to, `","annotations":{"k8s.io/initial-events-end":"true"}}}`...)
	}
	return append(to, `"}}`...)
}
