package wire

import (
	"strconv"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// AppendEvent appends a watch event and the newline that ends it. The object is
// complete JSON.
func AppendEvent(to []byte, eventType string, object []byte) []byte {
	return append(append(BeginEvent(to, eventType), object...), EventTail...)
}

// BeginEvent appends what stands before the object of an event.
func BeginEvent(to []byte, eventType string) []byte {
	to = append(to, `{"type":"`...)
	to = append(to, eventType...)
	return append(to, `","object":`...)
}

// EventTail ends an event.
const EventTail = "}\n"

// AppendBookmark appends what a BOOKMARK event is about: an object that has nothing
// but its kind and a resource version. One that ends the initial events says so.
func AppendBookmark(to []byte, t *resource.Type, revision uint64, initialEventsEnd bool) []byte {
	to = append(to, Head(t)...)
	to = append(to, `"metadata":{"resourceVersion":"`...)
	to = strconv.AppendUint(to, revision, 10)
	if initialEventsEnd {
		return append(to, `","annotations":{"k8s.io/initial-events-end":"true"}}}`...)
	}
	return append(to, `"}}`...)
}
