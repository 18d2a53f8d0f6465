package wire

import (
	"strconv"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// AppendEvent appends a watch event and the newline that ends it. The object is
// complete JSON.
func AppendEvent(to []byte, eventType string, object []byte) []byte {
	to = append(to, `{"type":"`...)
	to = append(to, eventType...)
	to = append(to, `","object":`...)
	to = append(to, object...)
	return append(to, "}\n"...)
}

// AppendBookmark appends a BOOKMARK event: an object that has nothing but its
// kind and a resource version. One that ends the initial events says so.
func AppendBookmark(to []byte, t *resource.Type, revision uint64, initialEventsEnd bool) []byte {
	to = append(to, `{"type":"BOOKMARK","object":{"kind":"`...)
	to = append(to, t.Kind...)
	to = append(to, `","apiVersion":"`...)
	to = appendGroupVersion(to, t)
	to = append(to, `","metadata":{"resourceVersion":"`...)
	to = strconv.AppendUint(to, revision, 10)
	if initialEventsEnd {
		return append(to, `","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n"...)
	}
	return append(to, `"}}}`+"\n"...)
}
